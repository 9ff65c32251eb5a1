"""RemoteSchemas: schemas of a registry with Confluent's REST API, by its URL.

Ids, GUIDs and versions name one schema for ever, so each is asked for once. An answer is bounded,
redirects are not followed, and a user in the URL logs in by HTTP's basic scheme.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Callable, Mapping
from http import HTTPStatus
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from sparklog.core.bounded_json import parse_json
from sparklog.core.errors import InvalidConfig, InvalidJson, InvalidRequest, Unavailable
from sparklog.registry.formats.parsed import ParsedSchema, parse_schema
from sparklog.registry.model.schema import SchemaContent, SubjectVersion, read_content
from sparklog.registry.model.subjects import DEFAULT_CONTEXT
from sparklog.registry.references import referred_texts

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

TIMEOUT_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 4 << 20
KEPT_MAX: Final = 1000
"""Schemas of each kind that are kept."""
VERSIONS_MAX: Final = 200
"""The newest versions of a subject that are looked at."""

Found = TypeVar("Found")


class RemoteSchemas:
    """A `SchemaSource` over HTTP."""

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        """Use the registry at `url`; nothing is sent yet.

        Raises:
            InvalidConfig: not an address of HTTP.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise InvalidConfig(f"no URL of a schema registry: {error}") from None
        if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
            raise InvalidConfig("the URL of a schema registry is http://HOST:PORT or https://…")
        name = f"[{host}]" if ":" in host else host
        where = name if port is None else f"{name}:{port}"
        self._url = urlunsplit((parts.scheme, where, parts.path.rstrip("/"), "", ""))
        self._login = _login(parts.username, parts.password)
        self._timeout_s = timeout_s
        self._opener: OpenerDirector | None = None
        self._kept: OrderedDict[object, Any] = OrderedDict()
        self._lock = Lock()

    def content(self, context: str, schema_id: int) -> SchemaContent | None:
        """Return the schema of an id, or None. Raises Unavailable, InvalidRequest."""
        of_context = "" if context == DEFAULT_CONTEXT else f"?subject={quote(f':{context}:', '')}"
        return self._content(f"/schemas/ids/{schema_id}{of_context}")

    def content_of_guid(self, guid: str) -> SchemaContent | None:
        """Return the schema of a GUID, or None. Raises as `content`."""
        return self._content(f"/schemas/guids/{quote(guid, '')}")

    def contents_of_subject(self, subject: str) -> list[SchemaContent]:
        """Return the schemas of a subject's newest versions, in order. Raises as `content`."""
        numbers = self._get(f"/subjects/{quote(subject, '')}/versions")
        if not isinstance(numbers, list):
            return []
        found = (self.version(subject, int(n)) for n in numbers[-VERSIONS_MAX:])
        return [version.content for version in found if version is not None]

    def version(self, subject: str, number: int) -> SubjectVersion | None:
        """Return one version of a subject, or None. Raises as `content`."""

        def asked() -> SubjectVersion | None:
            document = self._get(f"/subjects/{quote(subject, '')}/versions/{number}?deleted=true")
            if not isinstance(document, Mapping):
                return None
            schema_id = document.get("id")
            known = schema_id if isinstance(schema_id, int) else -1
            return SubjectVersion(subject, number, known, read_content(document))

        return self._once(("version", subject, number), asked)

    def parsed(self, content: SchemaContent) -> ParsedSchema:
        """Return a schema, parsed. Raises RegistryRefused: not valid; and as `content`."""
        found = self._once(content, lambda: parse_schema(content, self.referred(content)))
        assert found is not None, "a parser returns or raises"
        return found

    def referred(self, content: SchemaContent) -> dict[str, str]:
        """Return the texts that a schema needs, by name. Raises as `parsed`."""
        return referred_texts(self, content)

    def close(self) -> None:
        """Do nothing: each request has a connection of its own."""

    def _content(self, path: str) -> SchemaContent | None:
        def asked() -> SchemaContent | None:
            document = self._get(path)
            return read_content(document) if isinstance(document, Mapping) else None

        return self._once(path, asked)

    def _once(self, key: object, asked: Callable[[], Found | None]) -> Found | None:
        """Return the answer that is kept, or ask; an absent one is asked for again."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                kept: Found = self._kept[key]
                return kept
        found = asked()
        if found is not None:
            with self._lock:
                self._kept[key] = found
                if len(self._kept) > KEPT_MAX:
                    self._kept.popitem(last=False)
        return found

    def _get(self, path: str) -> Any:
        """Return the JSON document at a path; None if there is none."""
        from urllib.error import HTTPError  # noqa: PLC0415 - slow to import, seldom used
        from urllib.request import Request  # noqa: PLC0415 - likewise

        request = Request(self._url + path, headers=self._login)  # noqa: S310 - HTTP, checked
        try:
            with self._opened().open(request, timeout=self._timeout_s) as answer:
                data = answer.read(ANSWER_BYTES_MAX + 1)
        except HTTPError as error:
            error.close()
            if error.code == HTTPStatus.NOT_FOUND:
                return None
            text = f"the schema registry refuses a request. url={self._url} status={error.code}"
            wrong = error.code < HTTPStatus.INTERNAL_SERVER_ERROR
            raise (InvalidRequest(text) if wrong else Unavailable(text)) from None
        except OSError as error:
            raise Unavailable(
                f"the schema registry does not answer. url={self._url} reason={error}"
            ) from error
        try:
            return parse_json(data, "the registry's answer", bytes_max=ANSWER_BYTES_MAX)
        except InvalidJson as error:
            raise Unavailable(f"no schema registry answers. url={self._url} {error}") from error

    def _opened(self) -> OpenerDirector:
        if self._opener is None:
            from urllib import request  # noqa: PLC0415 - as above

            class Direct(request.HTTPRedirectHandler):
                def redirect_request(self, *_: Any) -> None:
                    return None

            self._opener = request.build_opener(Direct)
        return self._opener


def _login(user: str | None, password: str | None) -> dict[str, str]:
    if user is None:
        return {}
    text = f"{unquote(user)}:{unquote(password or '')}"
    return {"Authorization": f"Basic {base64.b64encode(text.encode()).decode()}"}
