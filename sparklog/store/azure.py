"""A container of Azure Blob Storage, or a part of one, as an object store.

Each operation is one request, sent once; `retrying` handles transient errors. Three operations may
cost more. A listing takes one request per 1000 keys. A read from the end asks for the size first,
because Azure has no range that counts from the end. Azure's library repeats a read whose body
breaks off, up to three times. Sizes are bytes.

Put Blob with `If-None-Match: *` creates an object, and Azure answers 409 BlobAlreadyExists to all
writers but one. An account with a hierarchical namespace is refused: it lists folders as blobs.

Source: Azure Storage REST API, Put Blob, Get Blob, List Blobs, Get Account Information.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any, Final, TypeVar

from azure.core import MatchConditions
from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
from azure.core.pipeline.transport import RequestsTransport
from azure.identity import CredentialUnavailableError, DefaultAzureCredential
from azure.storage.blob import ContainerClient
from requests import Session

from sparklog.core.errors import InvalidConfig
from sparklog.core.per_process import PerProcess
from sparklog.store.azure_access import KEY_VARIABLES, AzureAccess
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
    key_prefix,
)
from sparklog.store.cloud_requests import CloudRequest, LostAnswer, pooled
from sparklog.store.settings import StoreSettings

T = TypeVar("T")

PAGE_KEYS: Final = 1000
"""Keys in one page of a listing, as on S3; Azure gives up to 5000."""
ONE_REQUEST_BYTES: Final = 5000 * 1024 * 1024
"""Largest object of one Put Blob. The client sends larger ones, and larger reads, in blocks."""
RIGHTS: Final = "the role Storage Blob Data Contributor"
_EXISTS: Final = ("BlobAlreadyExists", "ConditionNotMet")


class AzureStore(ObjectStore):
    """Objects under `abfs://container@account/prefix`. Thread-safe, and safe after a fork."""

    def __init__(
        self,
        container: str,
        account: str,
        prefix: str,
        access: AzureAccess,
        settings: StoreSettings,
    ) -> None:
        """Use `prefix` of `container`; nothing is sent yet.

        Raises:
            InvalidConfig: no container or account, or a prefix that is no key.
        """
        place = f"abfs://{container}@{account}"
        if not container or not account:
            raise InvalidConfig(
                f"name a container and an account: abfs://container@account/prefix. root={place}"
            )
        self._prefix = key_prefix(place, prefix)
        self.url = f"{place}/{self._prefix}".rstrip("/")
        self._endpoint = access.endpoint_url(account)
        self._granted: set[tuple[str, str]] = set()
        """Operations that Azure allowed before, and the folders, as in `s3`."""
        self._client = PerProcess(lambda: _Client(container, self._endpoint, access, settings))
        weakref.finalize(self, _close, self._client)

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """See `ObjectStore.get`."""
        check_range(start, end)
        if end is not None and end <= (start or 0):
            self.head(key)
            return b""
        if start is not None and start < 0:
            start = max(0, self.head(key).size_bytes + start)
        name, offset = self._named(key), start or 0
        length = None if end is None else end - offset

        def read(container: ContainerClient) -> bytes:
            try:
                data: bytes = container.download_blob(name, offset, length).readall()
            except HttpResponseError as error:
                if error.status_code == 416:  # the range starts at the end or beyond
                    return b""
                raise
            return data

        return self._run("get", key, read)

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        """See `ObjectStore.put_if_absent`; `TransientStoreError` if Azure answered "not now"."""
        name = self._named(key)
        try:
            self._client.get().container().upload_blob(name, bytes(data), overwrite=False)
        except AzureError as error:
            if isinstance(error, HttpResponseError) and _code(error) in _EXISTS:
                return PutOutcome.EXISTS
            translated = self._translated(error, "put", key)
            if isinstance(translated, LostAnswer):
                return PutOutcome.UNKNOWN
            raise translated from error
        self._granted.add(("put", folder_of(key)))
        return PutOutcome.CREATED

    def put(self, key: str, data: bytes) -> None:
        """See `ObjectStore.put`."""
        name = self._named(key)
        self._run("put", key, lambda container: container.upload_blob(name, data, overwrite=True))

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`. Cost: one request per 1000 keys, sent as they are needed."""
        check_prefix(prefix)
        arguments: dict[str, Any] = {
            "name_starts_with": self._prefix + prefix,
            "results_per_page": PAGE_KEYS,
        }
        if start_after > prefix:
            arguments["start_from"] = self._prefix + start_after
        pages: Iterator[Any] | None = None

        def next_page(container: ContainerClient) -> Any:
            nonlocal pages
            if pages is None:  # sends nothing yet
                pages = container.list_blobs(**arguments).by_page()
            return next(pages, None)

        while True:
            page = self._run("list", prefix, next_page)
            if page is None:
                return
            for blob in page:
                key = blob.name.removeprefix(self._prefix)
                if key > start_after:
                    yield ObjectInfo(key, blob.size, _milliseconds(blob))

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        name = self._named(key)
        try:
            self._run("delete", key, lambda container: container.delete_blob(name))
        except ObjectNotFound:
            return

    def delete_if(self, key: str, data: bytes) -> bool:
        """See `ObjectStore.delete_if`."""
        name = self._named(key)
        try:
            found = self._run("head", key, lambda c: c.get_blob_client(name).get_blob_properties())
            if self.get(key) != data:
                return False
        except ObjectNotFound:
            return True
        same = MatchConditions.IfNotModified
        try:
            self._client.get().container().delete_blob(name, etag=found.etag, match_condition=same)
        except AzureError as error:
            if isinstance(error, HttpResponseError) and error.status_code in (404, 412):
                return error.status_code == 404
            raise self._translated(error, "delete", key) from error
        return True

    def head(self, key: str) -> ObjectInfo:
        """See `ObjectStore.head`."""
        blob = self._named(key)
        found = self._run("head", key, lambda c: c.get_blob_client(blob).get_blob_properties())
        return ObjectInfo(key, found.size, _milliseconds(found))

    def close(self) -> None:
        """Close this process's connections; a later request opens new ones."""
        _close(self._client)

    def _named(self, key: str) -> str:
        check_key(key)
        return self._prefix + key

    def _run(self, operation: str, key: str, request: Callable[[ContainerClient], T]) -> T:
        try:
            result = request(self._client.get().container())
        except AzureError as error:
            raise self._translated(error, operation, key) from error
        self._granted.add((operation, folder_of(key)))
        return result

    def _translated(self, error: AzureError, operation: str, key: str) -> Exception:
        where = f"root={self.url} key={key} endpoint={self._endpoint}"
        granted = (operation, folder_of(key)) in self._granted
        return _translated(error, CloudRequest("Azure", RIGHTS, operation, where, granted))


class _Client:
    """One process's client of one container, made at the first request. Thread-safe."""

    def __init__(
        self, container: str, endpoint: str, access: AzureAccess, settings: StoreSettings
    ) -> None:
        self._name = container
        self._endpoint = endpoint
        self._access = access
        self._settings = settings
        self._lock = Lock()
        self._container: ContainerClient | None = None

    def container(self) -> ContainerClient:
        """Return the client; the first call looks at the account.

        Raises:
            InvalidConfig: the account has a hierarchical namespace.
        """
        with self._lock:
            if self._container is None:
                self._container = self._connected()
        return self._container

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            container, self._container = self._container, None
        if container is not None:
            container.close()

    def _connected(self) -> ContainerClient:
        # The library would write a line of INFO for each request and for each token.
        for name in ("azure.core.pipeline.policies.http_logging_policy", "azure.identity"):
            logging.getLogger(name).setLevel(logging.WARNING)
        settings, access = self._settings, self._access
        container = ContainerClient(
            self._endpoint,
            self._name,
            credential=access.account_key or access.sas_token or DefaultAzureCredential(),
            transport=RequestsTransport(
                session=pooled(Session(), settings),
                connection_timeout=settings.connect_timeout_s,
                read_timeout=settings.read_timeout_s,
            ),
            retry_total=0,
            max_single_put_size=ONE_REQUEST_BYTES,
            max_single_get_size=ONE_REQUEST_BYTES,
        )
        _refuse_folders(container, self._endpoint)
        return container


def _refuse_folders(container: ContainerClient, endpoint: str) -> None:
    """Raise InvalidConfig for an account with a hierarchical namespace.

    An identity that may not ask is trusted: most roles for one container may not.
    """
    try:
        found: dict[str, Any] = container.get_account_information()
    except HttpResponseError as error:
        if error.status_code in (400, 403, 404):
            return
        raise
    if found.get("is_hns_enabled"):
        raise InvalidConfig(
            "an account with a hierarchical namespace lists folders as objects; use an account "
            f"without one. endpoint={endpoint}"
        )


def _close(client: PerProcess[_Client]) -> None:
    mine = client.take()
    if mine is not None:
        mine.close()


def _translated(error: AzureError, request: CloudRequest) -> Exception:
    if isinstance(error, CredentialUnavailableError):
        return InvalidConfig(
            f"Azure needs an identity; give the machine one, or set {KEY_VARIABLES[0]}. "
            f"operation={request.operation} {request.where} error={error}"
        )
    if isinstance(error, HttpResponseError) and error.status_code is not None:
        if _code(error) == "ContainerNotFound" and request.granted:
            return request.withdrawn(error.status_code, _code(error))
        if _code(error) == "ContainerNotFound":
            return InvalidConfig(
                f"no such container; create it or use another root. {request.where}"
            )
        return request.answered(error.status_code, _code(error))
    if isinstance(error, ClientAuthenticationError):
        return request.unidentified(error)
    return request.unanswered(error.inner_exception or error)


def _code(error: HttpResponseError) -> str:
    """Return Azure's name for the error; empty if the answer has none, as that to a HEAD."""
    code = getattr(error, "error_code", None)
    return str(getattr(code, "value", code) or "")


def _milliseconds(blob: Any) -> int:
    return round(float(blob.last_modified.timestamp()) * 1000)
