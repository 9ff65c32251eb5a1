"""The object store, reduced to what the log needs.

Keys are relative to the store's root, '/'-separated, without a leading slash (see `check_key`).
Objects are immutable once created by `put_if_absent`; `put` is only for optional hints.

Every implementation guarantees (the conformance suite proves it):
  STORE-1: of all `put_if_absent` calls on one absent key exactly one answers CREATED
  STORE-2: an object is visible whole or not at all
  STORE-3: after CREATED every `get`, `head` and `list` anywhere sees the object
  STORE-4: `list` yields keys in ascending byte order, each after `start_after`
  STORE-5: UNKNOWN means just that: the object may or may not exist, and it may still appear
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from sparklog.core.errors import InvalidConfig, InvalidRequest, Unavailable

KEY_BYTES_MAX = 800
"""S3 takes keys of 1024 bytes; the rest is for the root's own prefix."""
ROOT_BYTES_MAX = 200
"""The root's own prefix. With it a key of `KEY_BYTES_MAX` stays under every store's 1024 bytes."""
_PART = re.compile(r"(?!\.{1,2}$)(?!\.put-)[A-Za-z0-9!+,.=@_~-]{1,255}")
"""File systems take names of 255 bytes."""
_PREFIX = re.compile(r"[A-Za-z0-9!+,.=@_~-]*")

Data = bytes | memoryview
"""The content of a put: bytes, or a view of single bytes in memory that no longer changes."""


class PutOutcome(Enum):
    """The outcome of a `put_if_absent`."""

    CREATED = "created"
    EXISTS = "exists"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One listed object."""

    key: str
    size_bytes: int
    modified_ms: int
    """When the store says the object was written; for clean-up only, never for order."""


class ObjectNotFound(KeyError):
    """No object under this key. Internal to store and log: a missing name is an answer there."""


class TransientStoreError(Unavailable):
    """The store answered "not now", or not at all: the same request may well succeed in a moment.

    Stays inside this package: `retrying` repeats the request, or raises Unavailable.
    """

    def __init__(self, message: str, *, unsettled: bool) -> None:
        """Say what happened; `unsettled` if a write may have happened all the same."""
        super().__init__(message)
        self.unsettled = unsettled


class StoreBusy(TransientStoreError):
    """The store gets more requests than it takes: 503 SlowDown, or 429."""


def check_key(key: str) -> None:
    """Reject a key that is not valid on every store.

    A key has parts of ASCII letters, digits and `!+,-.=@_~`, which file systems and S3 keep as they
    are. So its character order is its byte order. `.` and `..` are no parts, and no part starts
    with `.put-`. A key plus a slash never starts another key.

    Raises:
        InvalidRequest: not a key.
    """
    if len(key) > KEY_BYTES_MAX or not all(map(_PART.fullmatch, key.split("/"))):
        raise InvalidRequest(
            "not a key; use ASCII letters, digits, !+,-.=@_~ and single slashes between parts. "
            f"key={key[:KEY_BYTES_MAX]!r} characters={len(key)}"
        )


def key_prefix(place: str, prefix: str) -> str:
    """Return what the keys of a root begin with in its bucket: empty, or text that ends in `/`.

    Args:
        `place`: the bucket's URL, for messages.
        `prefix`: the part of the root's URL behind the bucket.

    Raises:
        InvalidConfig: a prefix that is no key, or a long one.
    """
    prefix = prefix.removesuffix("/")
    root = f"{place}/{prefix}".rstrip("/")
    try:
        check_key(prefix or "root")
    except InvalidRequest as error:
        raise InvalidConfig(f"not a prefix for keys. root={root} ({error})") from error
    if len(prefix) > ROOT_BYTES_MAX:
        raise InvalidConfig(f"the prefix is too long. root={root} most={ROOT_BYTES_MAX}")
    return f"{prefix}/" if prefix else ""


def folder_of(key: str) -> str:
    """Return the first two parts of a key: those of a topic, or of a write-ahead log.

    The rights of an identity may end there.
    """
    return "/".join(key.split("/", 2)[:2])


def check_prefix(prefix: str) -> None:
    """Reject a prefix that no key can start with.

    Raises:
        InvalidRequest: not the start of a key.
    """
    *folders, last = prefix.split("/")
    if not all(map(_PART.fullmatch, folders)) or not _PREFIX.fullmatch(last):
        raise InvalidRequest(f"no key can start like this. prefix={prefix[:KEY_BYTES_MAX]!r}")


def check_range(start: int | None, end: int | None) -> None:
    """Reject a byte range that is not valid on every store.

    Raises:
        InvalidRequest: a negative end, or a start counted from the end together with an end.
    """
    if end is not None and (end < 0 or (start is not None and start < 0)):
        raise InvalidRequest(
            "not a range; use start and end from the front, or a negative start alone. "
            f"start={start} end={end}"
        )


def http_range(start: int | None, end: int | None) -> str | None:
    """Return the value of HTTP's Range header for bytes [start, end); None for all bytes."""
    if end is not None:
        return f"bytes={start or 0}-{end - 1}"
    if start is None or start == 0:
        return None
    return f"bytes={start}-" if start > 0 else f"bytes={start}"


class ObjectStore(ABC):
    """One root in one object store. Thread-safe."""

    url: str
    """The root's URL, such as `file:///…` or `s3://…`, without credentials."""

    @abstractmethod
    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return bytes [start, end) of the object; a negative start counts from its end.

        A range that reaches past the end returns what there is, and a negative start stands alone.

        Raises:
            InvalidRequest: not a key, or not a range.
            ObjectNotFound: no such object, or it was deleted during the read.
            Unavailable: the store does not answer within the retry budget.
        """

    @abstractmethod
    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        """Create the object unless one exists.

        A client library may retry by itself and then report its own object as EXISTS, so the
        caller compares the nonce it put inside. Never raises for a lost reply: that is UNKNOWN.

        Raises:
            InvalidRequest: not a key.
            Unavailable: the store refused or could not be reached; nothing was written.
        """

    @abstractmethod
    def put(self, key: str, data: bytes) -> None:
        """Write or overwrite a hint."""

    @abstractmethod
    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """Yield every object whose key starts with `prefix` and sorts after `start_after`.

        Pages through the store's own limit; an absent folder is an empty listing.
        """

    @abstractmethod
    def delete(self, key: str) -> None:
        """Remove the object; an absent one is no error."""

    def delete_if(self, key: str, data: bytes) -> bool:
        """Remove the object if it holds just `data`; return False if it holds other bytes.

        For the few names that may be created again after they were deleted. An absent object is no
        error. Clouds check the condition themselves. In a folder, and on an S3 server without the
        condition, another process may still replace the object between look and deletion.
        """
        try:
            if self.get(key) != data:
                return False
        except ObjectNotFound:
            return True
        self.delete(key)
        return True

    def retire(self, key: str) -> None:
        """Remove the object as `delete` does; the store may keep its space for puts to come.

        Only for objects whose readers are prepared to find them gone while they read, as those of
        a write-ahead log are.
        """
        self.delete(key)

    def check_puts(self) -> None:  # noqa: B027 - most stores need no check
        """Check that one of several writers can create a key; else the first put checks it.

        Raises:
            InvalidConfig: several succeed. Unavailable: the store does not answer.
        """

    def tidy(self, prefix: str) -> None:  # noqa: B027 - most stores leave nothing
        """Delete old temporary files of killed processes; never an object.

        Searches the folders whose names begin with `prefix`, and not below them. Correctness does
        not depend on it.

        Raises:
            Unavailable: the store does not answer.
        """

    def unforced(self) -> ObjectStore | None:
        """Return this store without fsync; None if it has no disk to wait for.

        Objects created through it survive a killed process. A power cut may truncate or lose them.
        The store does not record which objects were created so.
        """
        return None

    @abstractmethod
    def head(self, key: str) -> ObjectInfo:
        """Return size and time of one object.

        Raises:
            ObjectNotFound: no such object.
        """

    def close(self) -> None:  # noqa: B027 - most stores hold nothing
        """Release connections."""
