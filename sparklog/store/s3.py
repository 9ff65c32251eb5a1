"""A bucket, or a part of one, as an object store.

Every operation is one request (a listing: one per 1000 keys), sent once. There is no HEAD before a
GET, no cache of listings and no retry; `retrying` handles transient errors. A put without an answer
is UNKNOWN: the caller reads back, which costs less than sending the object again. Sizes are bytes.
"""

from __future__ import annotations

import io
import os
import weakref
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

from botocore.exceptions import ClientError
from crc32c import crc32c

from sparklog.core.errors import InvalidConfig
from sparklog.core.per_process import PerProcess
from sparklog.store.base import (
    Data,
    ObjectInfo,
    ObjectNotFound,
    ObjectStore,
    PutOutcome,
    TransientStoreError,
    check_key,
    check_prefix,
    check_range,
    folder_of,
    http_range,
    key_prefix,
)
from sparklog.store.s3_connection import S3Connection
from sparklog.store.s3_errors import status_of, translate
from sparklog.store.settings import S3Access, StoreSettings

T = TypeVar("T")

_DIRECTORY_BUCKET = "--x-s3"
_PLAIN_BODY_BYTES_MAX = 1024 * 1024
"""Larger bodies are handed over as a stream, which does not block the loop while it is sent."""


class S3Store(ObjectStore):
    """Objects under `s3://bucket/prefix`. Thread-safe, and safe to use after a fork."""

    def __init__(self, bucket: str, prefix: str, access: S3Access, settings: StoreSettings) -> None:
        """Use `prefix` of `bucket`; nothing is sent yet.

        Raises:
            InvalidConfig: no bucket, a prefix that is no key, or a directory bucket, which lists in
                no order.
        """
        place = f"s3://{bucket}"
        if not bucket or bucket.endswith(_DIRECTORY_BUCKET):
            raise InvalidConfig(
                "name a general purpose bucket; directory ones list in no order. "
                f"root={place}/{prefix}"
            )
        self._prefix = key_prefix(place, prefix)
        self.url = f"{place}/{self._prefix}".rstrip("/")
        self._bucket = bucket
        self._endpoint = access.endpoint_url or "aws"
        self._renewed = access.renewed
        self._granted: set[tuple[str, str]] = set()
        """Operations that S3 allowed before, and the folders, since rights may end at a topic."""
        self._put_arguments = access.put_arguments
        self._checks = access.checks
        self._connection = PerProcess(lambda: S3Connection(access, settings))
        weakref.finalize(self, _close, self._connection)

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """See `ObjectStore.get`."""
        check_range(start, end)
        if end is not None and end <= (start or 0):
            self.head(key)
            return b""
        wanted = http_range(start, end)
        arguments = {**self._named(key), **({"Range": wanted} if wanted else {})}
        if self._checks and not wanted:  # S3 has no checksum of a range
            arguments["ChecksumMode"] = "ENABLED"

        async def request(client: Any) -> tuple[bytes, str | None]:
            answer = await client.get_object(**arguments)
            async with answer["Body"] as body:
                data: bytes = await body.read()
            return data, answer.get("ChecksumCRC32C")

        try:
            data, checksum = self._connection.get().run(request)
        except ClientError as error:
            if status_of(error) == 416:  # the range starts at the end or beyond
                return b""
            raise self._translated(error, "get", key) from error
        except Exception as error:
            raise self._translated(error, "get", key) from error
        self._granted.add(("get", folder_of(key)))
        self._check(key, data, checksum)
        return data

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        """See `ObjectStore.put_if_absent`; `TransientStoreError` if S3 answered "not now"."""
        arguments = {**self._put_of(key, data), "IfNoneMatch": "*"}
        try:
            self._connection.get().run(lambda s3: s3.put_object(Body=_body(data), **arguments))
        except ClientError as error:
            if status_of(error) == 412:
                return PutOutcome.EXISTS
            raise self._translated(error, "put", key) from error
        except Exception as error:
            translated = self._translated(error, "put", key)
            if isinstance(translated, TransientStoreError) and translated.unsettled:
                return PutOutcome.UNKNOWN
            raise translated from error
        self._granted.add(("put", folder_of(key)))
        return PutOutcome.CREATED

    def put(self, key: str, data: bytes) -> None:
        """See `ObjectStore.put`."""
        arguments = self._put_of(key, data)
        self._run("put", key, lambda s3: s3.put_object(Body=_body(data), **arguments))

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`. Cost: one request per 1000 keys, sent as they are needed."""
        check_prefix(prefix)
        arguments = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        if start_after:
            arguments["StartAfter"] = self._prefix + start_after
        while True:
            page = self._page(prefix, arguments)
            for found in page.get("Contents", ()):
                key = found["Key"].removeprefix(self._prefix)
                if key > start_after:
                    yield ObjectInfo(key, found["Size"], _milliseconds(found))
            if not page.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = page["NextContinuationToken"]

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        named = self._named(key)
        try:
            self._run("delete", key, lambda s3: s3.delete_object(**named))
        except ObjectNotFound:
            return

    def delete_if(self, key: str, data: bytes) -> bool:
        """See `ObjectStore.delete_if`."""
        named = self._named(key)
        try:
            found = self._run("head", key, lambda s3: s3.head_object(**named))
            if self.get(key) != data:
                return False
        except ObjectNotFound:
            return True
        etag = found["ETag"]
        try:
            self._connection.get().run(lambda s3: s3.delete_object(**named, IfMatch=etag))
        except ClientError as error:
            if status_of(error) == 412:
                return False
            if status_of(error) == 501:  # this server has no such condition
                self.delete(key)
            elif status_of(error) != 404:
                raise self._translated(error, "delete", key) from error
        except Exception as error:
            raise self._translated(error, "delete", key) from error
        return True

    def head(self, key: str) -> ObjectInfo:
        """See `ObjectStore.head`."""
        named = self._named(key)
        found = self._run("head", key, lambda s3: s3.head_object(**named))
        return ObjectInfo(key, found["ContentLength"], _milliseconds(found))

    def close(self) -> None:
        """Close this process's connections; a later request opens new ones."""
        _close(self._connection)

    def _named(self, key: str) -> dict[str, str]:
        check_key(key)
        return {"Bucket": self._bucket, "Key": self._prefix + key}

    def _put_of(self, key: str, data: Data) -> dict[str, Any]:
        """Return the arguments of a PutObject but its body."""
        checksum = {"ChecksumCRC32C": _crc32c(data)} if self._checks else {}
        return {**self._named(key), **self._put_arguments, **checksum}

    def _check(self, key: str, data: bytes, checksum: str | None) -> None:
        """Raise for a whole object that is not as S3 stored it; the request is sent again."""
        if checksum is None or "-" in checksum or _crc32c(data) == checksum:  # `-`: of its parts
            return
        raise TransientStoreError(
            "the bytes that arrived are not those that S3 stored. "
            f"root={self.url} key={key} endpoint={self._endpoint} size={len(data)} "
            f"crc32c={_crc32c(data)} stored_crc32c={checksum}",
            unsettled=False,
        )

    def _page(self, prefix: str, arguments: dict[str, str]) -> dict[str, Any]:
        return self._run("list", prefix, lambda s3: s3.list_objects_v2(**arguments))

    def _run(self, operation: str, key: str, request: Callable[[Any], Awaitable[T]]) -> T:
        try:
            result = self._connection.get().run(request)
        except Exception as error:
            raise self._translated(error, operation, key) from error
        self._granted.add((operation, folder_of(key)))
        return result

    def _translated(self, error: Exception, operation: str, key: str) -> Exception:
        where = f"root={self.url} key={key} endpoint={self._endpoint}"
        granted = (operation, folder_of(key)) in self._granted
        return translate(error, operation, where, renewed=self._renewed, granted=granted)


def _close(connection: PerProcess[S3Connection]) -> None:
    mine = connection.take()
    if mine is not None:
        mine.close()


def _crc32c(data: Data) -> str:
    """Return a checksum as S3's headers have it."""
    return b64encode(crc32c(data).to_bytes(4, "big")).decode()


class _Body(io.BytesIO):
    """Reads a large body where it lies.

    A plain `BytesIO` is copied as a whole when its buffer is asked for, as aiohttp does. For 64 MiB
    that holds up every thread of the process for 45 ms.
    """

    def __init__(self, data: Data) -> None:
        super().__init__()
        self._view = memoryview(data).cast("B")
        self._at = 0

    def getbuffer(self) -> memoryview:
        return self._view[:]  # the caller releases it

    def read(self, size: int | None = -1, /) -> bytes:
        end = len(self._view) if size is None or size < 0 else self._at + size
        read = bytes(self._view[self._at : end])
        self._at += len(read)
        return read

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: len(self._view)}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        return self._at


def _body(data: Data) -> bytes | io.BytesIO:
    return bytes(data) if len(data) <= _PLAIN_BODY_BYTES_MAX else _Body(data)


def _milliseconds(found: dict[str, Any]) -> int:
    return round(float(found["LastModified"].timestamp()) * 1000)
