"""What a coordinator's state machine is told, and what it answers: events in, effects out.

A shard is the state of one partition of an internal topic. Whoever runs it calls one event at a
time, appends the records that come out to that partition, and gives the replies to those who wait
for them; after a change of leader it makes a fresh shard and replays the log into it.

  S1  an event changes the shard at once, and says with records what it changed: a shard that
      replayed the log is the one that wrote it
  S2  an event that raises has changed nothing
  S3  a reply is seen only when its records, and all that were decided before it, are committed;
      but for `at_once`, which may tell nothing that a lost record could make untrue
  S4  all records of one effect are one batch: they are in the log together or not at all

Times are milliseconds since the Unix epoch, on a clock that does not go back while a shard lives.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

Token = int
"""Names one caller who waits for a reply."""

RECORD_OVERHEAD_BYTES: Final = 64
"""At most what a record takes in a batch beside its key and value; a batch's own header too."""


class CoordinatorRecord(NamedTuple):
    """A record of an internal topic."""

    key: bytes
    value: bytes | None
    """None is a tombstone: what the key stood for is gone."""


class ProducerIdentity(NamedTuple):
    """Who writes records that a transaction decides about."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Effects:
    """What an event leads to."""

    records: tuple[CoordinatorRecord, ...] = ()
    replies: tuple[tuple[Token, object], ...] = ()
    """Who is answered what; an exception is raised at who waits."""
    at_once: bool = False
    """The replies need not wait for any record."""
    errands: tuple[object, ...] = ()
    """What whoever runs the shard shall do once the records are committed."""
    transactional: ProducerIdentity | None = None
    """The records belong to this producer's transaction, and count when it commits."""


NOTHING: Final = Effects()


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
        """Take in a record of the log; it counts, whatever it says.

        Raises:
            DataCorrupt: it cannot be read. The record is passed over.
        """
        ...

    def replay_marker(self, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """Take in the end of a producer's transaction, of the log or just written."""
        ...

    def loaded(self, now_ms: int) -> Effects:
        """Begin to serve: the whole log was replayed."""
        ...

    @property
    def next_deadline_ms(self) -> int | None:
        """Return when `expire` wants to be called; None: not before another event."""
        ...

    def expire(self, now_ms: int) -> Effects:
        """Do what is due by now, perhaps nothing. Afterwards the next deadline lies later."""
        ...


def size_bytes(records: Iterable[CoordinatorRecord]) -> int:
    """Return at most how large a batch of these records is."""
    return RECORD_OVERHEAD_BYTES + sum(
        RECORD_OVERHEAD_BYTES + len(r.key) + len(r.value or b"") for r in records
    )
