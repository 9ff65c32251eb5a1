"""The object store, reduced to what the log needs.

Keys are relative to the store's root, '/'-separated, without a leading slash. Objects are
immutable once created by `put_if_absent`; `put` is only for hints nobody depends on.

What every implementation guarantees (the conformance suite is the proof):
  S1  of all `put_if_absent` calls on one absent key exactly one answers CREATED
  S2  an object is visible whole or not at all
  S3  after CREATED every `get`, `head` and `list` anywhere sees the object
  S4  `list` yields keys in ascending byte order, each after `start_after`
  S5  UNKNOWN means just that: the object may or may not exist, and it may still appear
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class PutOutcome(Enum):
    """What became of a `put_if_absent`."""

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


class ObjectNotFound(KeyError):  # noqa: N818 - reads as a fact, like KeyError
    """No object under this key. Internal to store and log: a missing name is an answer there."""


class ObjectStore(ABC):
    """One root in one object store. Thread-safe."""

    url: str
    """The root's URL, `file:///…`, `s3://…` or `memory://…`, without credentials."""

    @abstractmethod
    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return bytes [start, end) of the object; a negative start counts from its end.

        A range that reaches past the end returns what there is.

        Raises:
            ObjectNotFound: no such object.
            Unavailable: the store does not answer within the retry budget.
        """

    @abstractmethod
    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        """Create the object unless one exists.

        A client library may retry by itself and then report its own object as EXISTS, so the
        caller compares the nonce it put inside. Never raises for a lost reply: that is UNKNOWN.

        Raises:
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

    @abstractmethod
    def head(self, key: str) -> ObjectInfo:
        """Return size and time of one object.

        Raises:
            ObjectNotFound: no such object.
        """

    def close(self) -> None:  # noqa: B027 - most stores hold nothing
        """Release connections."""
