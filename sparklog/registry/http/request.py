"""A request of the REST API: path, query and body, checked and bounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sparklog.core.bounded_json import parse_json
from sparklog.core.errors import InvalidJson
from sparklog.registry.decisions import LATEST_VERSION
from sparklog.registry.model import refusal
from sparklog.registry.model.refusal import RegistryRefused
from sparklog.registry.model.schema import VERSION_MAX, SchemaContent, is_whole, read_content
from sparklog.registry.model.subjects import checked_scope, checked_subject
from sparklog.registry.records import ID_MAX

BODY_BYTES_MAX: Final = 4 << 20
"""A schema of the largest size, escaped as JSON, with its references and metadata."""
PAGE_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request, without its transport."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes = b""

    def subject(self) -> str:
        """Return the subject of the path. Raises RegistryRefused."""
        return checked_subject(self.path["subject"])

    def scope(self) -> str | None:
        """Return the subject or context of the path; None for the registry as a whole."""
        given = self.path.get("subject")
        return None if given is None else checked_scope(given)

    def version(self) -> int:
        """Return the version of the path; -1 is the latest. Raises RegistryRefused."""
        given = self.path["version"]
        if given in ("latest", "-1"):
            return LATEST_VERSION
        if given.isascii() and given.isdigit() and 0 < int(given[:11]) <= VERSION_MAX:
            return int(given)
        raise RegistryRefused(
            refusal.INVALID_VERSION,
            f"The specified version '{given[:40]}' is not a valid version id. Allowed values are "
            'between [1, 2^31-1] and the string "latest"',
        )

    def schema_id(self) -> int:
        """Return the id of the path. Raises RegistryRefused: none can have it."""
        given = self.path["id"]
        if given.isascii() and given.isdigit() and int(given[:11]) <= ID_MAX:
            return int(given)
        raise RegistryRefused(404, f"HTTP 404 Not Found: no id: {given[:40]!r}")

    def flag(self, name: str) -> bool:
        """Return a flag of the query; absent is false."""
        return self.query.get(name, "").lower() == "true"

    def page(self, found: Sequence[Any]) -> list[Any]:
        """Return the part of a list that `offset` and `limit` of the query select."""
        offset, limit = self._number("offset", 0), self._number("limit", -1)
        limit = PAGE_MAX if limit < 0 else limit
        return list(found[max(offset, 0) :][:limit])

    def _number(self, name: str, default: int) -> int:
        given = self.query.get(name)
        if given is None:
            return default
        try:
            return int(given[:11])
        except ValueError:
            raise RegistryRefused(refusal.UNPROCESSABLE, f"{name} is no number") from None

    def document(self) -> Mapping[str, Any]:
        """Return the body, a JSON object. Raises RegistryRefused."""
        try:
            found = parse_json(self.body, "the body", bytes_max=BODY_BYTES_MAX)
        except InvalidJson as error:
            raise RegistryRefused(refusal.UNPROCESSABLE, str(error)) from error
        if not isinstance(found, Mapping):
            raise RegistryRefused(refusal.UNPROCESSABLE, "the body is no JSON object")
        return found

    def content(self) -> SchemaContent:
        """Return the schema of the body. Raises RegistryRefused."""
        return read_content(self.document())

    def number(self, name: str, highest: int) -> int | None:
        """Return a number of the body, or None; -1 and 0 stand for none. Raises RegistryRefused."""
        found = self.document().get(name)
        if found is None or (is_whole(found) and found in (-1, 0)):
            return None
        if not is_whole(found) or not 1 <= found <= highest:
            raise RegistryRefused(refusal.UNPROCESSABLE, f"{name} is no number up to {highest}")
        return found
