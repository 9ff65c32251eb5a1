"""Shard and Effects: a coordinator's state machine takes events and returns effects.

A shard is the state of one partition of an internal topic. The partition's leader calls one event
at a time. It appends the records that the event returns to that partition, and sends the replies to
the callers. After a change of leader the new leader replays the log into a new shard.

EFFECTS-1: An event changes the shard at once and returns records of the change. So a shard that
    replayed the log equals the one that wrote it.
EFFECTS-2: An event that raises has changed nothing.
EFFECTS-3: The caller gets a reply only when its records and all earlier ones are committed. A
    reply with `at_once` does not wait, so it must stay true if a record is lost.
EFFECTS-4: All records of one effect are one batch: the log has all of them or none.

Times are milliseconds since the Unix epoch, on a clock that does not go back while a shard lives.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

Token = int
"""Identifies one caller that waits for a reply."""

RECORD_OVERHEAD_BYTES: Final = 64
"""Upper bound for a record's bytes in a batch beside key and value; also for a batch header."""


class CoordinatorRecord(NamedTuple):
    """A record of an internal topic."""

    key: bytes
    value: bytes | None
    """None is a tombstone: it deletes the key."""


class ProducerIdentity(NamedTuple):
    """The producer of a transaction."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class CoordinatorResult:
    """The result of an event."""

    records: tuple[CoordinatorRecord, ...] = ()
    replies: tuple[tuple[Token, object], ...] = ()
    """Reply per caller. The runner raises an exception at the caller instead of returning it."""
    at_once: bool = False
    """The replies need not wait for any record."""
    errands: tuple[object, ...] = ()
    """Work for the partition's leader after the records are committed."""
    transactional: ProducerIdentity | None = None
    """The producer whose transaction has the records; they apply when it commits."""
    notes: tuple[str, ...] = ()
    """Lines for the log of the broker, at INFO."""


NOTHING: Final = CoordinatorResult()


class Shard(Protocol):
    """The state of one partition of an internal topic."""

    def replay(
        self,
        record: CoordinatorRecord,
        *,
        offset: int,
        timestamp_ms: int,
        producer_id: int,
        producer_epoch: int,
        transactional: bool,
    ) -> None:
        """Apply a record of the log unconditionally.

        Raises:
            DataCorrupt: the record cannot be read. The caller skips it.
        """
        ...

    def replay_marker(self, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """Apply the end of a producer's transaction, replayed or new."""
        ...

    def loaded(self, now_ms: int) -> CoordinatorResult:
        """Begin to serve, after the replay of the whole log."""
        ...

    @property
    def next_deadline_ms(self) -> int | None:
        """Return when the leader must call `expire`, in ms; None: not before another event."""
        ...

    def expire(self, now_ms: int) -> CoordinatorResult:
        """Handle the deadlines that are due. Afterwards the next deadline lies later."""
        ...


def size_bytes(records: Iterable[CoordinatorRecord]) -> int:
    """Return an upper bound for a batch of these records, in bytes."""
    return RECORD_OVERHEAD_BYTES + sum(
        RECORD_OVERHEAD_BYTES + len(r.key) + len(r.value or b"") for r in records
    )
