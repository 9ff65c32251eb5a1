"""A bucket of Google Cloud Storage, or a part of one, as an object store.

Each operation is one request, sent once (a listing: one per 1000 keys); `retrying` handles
transient errors. A create has the condition `ifGenerationMatch=0`, and Google answers 412 to all
writers but one. The body of an upload is the object alone, so no record can end it.
Sizes are bytes.

The identity is that of Google's library: workload identity, `GOOGLE_APPLICATION_CREDENTIALS`, the
machine's service account, or a developer's login. `STORAGE_EMULATOR_HOST` leads to an emulator.

Source: Cloud Storage JSON API, objects insert, get and list.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from datetime import datetime
from threading import Lock
from typing import Any, Final
from urllib.parse import quote

import google.auth
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
from google.auth.transport.requests import AuthorizedSession
from requests import Response, Session
from requests.exceptions import RequestException

from sparklog.core.errors import InvalidConfig
from sparklog.core.per_process import PerProcess
from sparklog.store.base import (
    Data,
    ObjectInfo,
    ObjectNotFound,
    ObjectStore,
    PutOutcome,
    check_key,
    check_prefix,
    check_range,
    folder_of,
    http_range,
    key_prefix,
)
from sparklog.store.cloud_requests import CloudRequest, LostAnswer, pooled
from sparklog.store.settings import StoreSettings

EMULATOR_VARIABLE: Final = "STORAGE_EMULATOR_HOST"
GOOGLE: Final = "https://storage.googleapis.com"
RIGHTS: Final = "the role Storage Object User"
_SCOPE: Final = "https://www.googleapis.com/auth/devstorage.read_write"
_LISTED: Final = "items(name,size,updated),nextPageToken"
_BODY: Final = {"Content-Type": "application/octet-stream"}


class GcsStore(ObjectStore):
    """Objects under `gs://bucket/prefix`. Thread-safe, and safe to use after a fork."""

    def __init__(
        self, bucket: str, prefix: str, environment: Mapping[str, str], settings: StoreSettings
    ) -> None:
        """Use `prefix` of `bucket`; nothing is sent yet.

        Raises:
            InvalidConfig: no bucket, or a prefix that is no key.
        """
        place = f"gs://{bucket}"
        if not bucket:
            raise InvalidConfig(f"name a bucket: gs://bucket/prefix. root={place}/{prefix}")
        self._prefix = key_prefix(place, prefix)
        self.url = f"{place}/{self._prefix}".rstrip("/")
        emulator = environment.get(EMULATOR_VARIABLE)
        self.endpoint = _with_scheme(emulator) if emulator else GOOGLE
        self._granted: set[tuple[str, str]] = set()
        """Operations that Google allowed before, and the folders, as in `s3`."""
        self._objects = f"/storage/v1/b/{quote(bucket, safe='')}/o"
        self._session = PerProcess(lambda: _OpenSession(bool(emulator), settings))
        self._timeout = (settings.connect_timeout_s, settings.read_timeout_s)
        weakref.finalize(self, _close, self._session)

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """See `ObjectStore.get`."""
        check_range(start, end)
        if end is not None and end <= (start or 0):
            self.head(key)
            return b""
        wanted = http_range(start, end)
        headers = {"Accept-Encoding": "identity", **({"Range": wanted} if wanted else {})}
        answer = self._send(
            "get", key, "GET", self._path(key), {"alt": "media"}, headers=headers, allowed=416
        )
        return answer.content if answer.ok else b""  # 416: the range starts at the end or beyond

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        """See `ObjectStore.put_if_absent`; `TransientStoreError` if Google answered "not now"."""
        try:
            answer = self._upload(key, data, {"ifGenerationMatch": "0"})
        except LostAnswer:
            return PutOutcome.UNKNOWN
        return PutOutcome.CREATED if answer.ok else PutOutcome.EXISTS

    def put(self, key: str, data: bytes) -> None:
        """See `ObjectStore.put`."""
        self._upload(key, data, {})

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`. Cost: one request per 1000 keys, sent as they are needed."""
        check_prefix(prefix)
        parameters = {"prefix": self._prefix + prefix, "fields": _LISTED}
        if start_after > prefix:
            parameters["startOffset"] = self._prefix + start_after
        while True:
            page = self._send("list", prefix, "GET", self._objects, parameters).json()
            for found in page.get("items", ()):
                key = found["name"].removeprefix(self._prefix)
                if key > start_after:
                    yield _info(key, found)
            if "nextPageToken" not in page:
                return
            parameters["pageToken"] = page["nextPageToken"]

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        self._send("delete", key, "DELETE", self._path(key), {}, allowed=404)

    def delete_if(self, key: str, data: bytes) -> bool:
        """See `ObjectStore.delete_if`."""
        path = self._path(key)
        try:
            found = self._send("head", key, "GET", path, {}).json()
            if self.get(key) != data:
                return False
            condition = {"ifGenerationMatch": str(found["generation"])}
            answer = self._send("delete", key, "DELETE", path, condition, allowed=412)
        except ObjectNotFound:
            return True
        return answer.ok

    def head(self, key: str) -> ObjectInfo:
        """See `ObjectStore.head`."""
        return _info(key, self._send("head", key, "GET", self._path(key), {}).json())

    def close(self) -> None:
        """Close this process's connections; a later request opens new ones."""
        _close(self._session)

    def _path(self, key: str) -> str:
        return f"{self._objects}/{quote(self._named(key), safe='')}"

    def _named(self, key: str) -> str:
        check_key(key)
        return self._prefix + key

    def _upload(self, key: str, data: Data, condition: dict[str, str]) -> Response:
        """Send an object. Returns an answer that is not `ok` if the condition does not hold."""
        parameters = {"uploadType": "media", "name": self._named(key), **condition}
        path = f"/upload{self._objects}"
        return self._send(
            "put", key, "POST", path, parameters, headers=_BODY, data=bytes(data), allowed=412
        )

    def _send(
        self,
        operation: str,
        key: str,
        method: str,
        path: str,
        parameters: dict[str, str],
        *,
        allowed: int = 0,
        headers: dict[str, str] | None = None,
        data: bytes | None = None,
    ) -> Response:
        """Send one request and return its answer: a success, or one of the `allowed` status.

        Raises:
            InvalidConfig: no identity, no rights, or no such bucket.
            `TransientStoreError`: not now, or no answer. Unavailable: the request is refused.
            ObjectNotFound: no such object.
        """
        where = f"root={self.url} key={key} endpoint={self.endpoint}"
        act = operation, folder_of(key)
        request = CloudRequest(
            "Google Cloud Storage", RIGHTS, operation, where, act in self._granted
        )
        try:
            answer = (
                self._session.get()
                .open()
                .request(
                    method,
                    f"{self.endpoint}{path}",
                    params=parameters,
                    headers=headers,
                    data=data,
                    timeout=self._timeout,
                )
            )
        except DefaultCredentialsError as error:
            raise InvalidConfig(
                "Google Cloud Storage needs an identity; give the machine one, or set "
                f"GOOGLE_APPLICATION_CREDENTIALS. operation={operation} {where} error={error}"
            ) from error
        except GoogleAuthError as error:
            raise request.unidentified(error) from error
        except RequestException as error:
            raise request.unanswered(error) from error
        status = answer.status_code
        if answer.ok or status == allowed:
            self._granted.add(act)
            return answer
        if status == 404 and operation in ("put", "list"):
            if request.granted:
                raise request.withdrawn(status, answer.reason)
            raise InvalidConfig(f"no such bucket; create it or use another root. {where}")
        raise request.answered(status, answer.reason)


class _OpenSession:
    """One process's connections, made at the first request. Thread-safe."""

    def __init__(self, anonymous: bool, settings: StoreSettings) -> None:
        self._anonymous = anonymous
        self._settings = settings
        self._lock = Lock()
        self._session: Session | None = None

    def open(self) -> Session:
        """Return the session; the first call looks for an identity."""
        with self._lock:
            if self._session is None:
                session = Session()
                if not self._anonymous:
                    credentials = google.auth.default(scopes=[_SCOPE])[0]
                    session = AuthorizedSession(credentials)  # type: ignore[no-untyped-call]
                self._session = pooled(session, self._settings)
            return self._session

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.close()


def _close(session: PerProcess[_OpenSession]) -> None:
    mine = session.take()
    if mine is not None:
        mine.close()


def _with_scheme(emulator: str) -> str:
    return emulator.rstrip("/") if "://" in emulator else f"http://{emulator}"


def _info(key: str, found: dict[str, Any]) -> ObjectInfo:
    modified = datetime.fromisoformat(found["updated"])
    return ObjectInfo(key, int(found["size"]), round(modified.timestamp() * 1000))
