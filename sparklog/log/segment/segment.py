"""A segment's metadata: its content, the positions in the file, the writers. Source: FORMAT.md 2.

`footer` converts it to and from the custom metadata of the file's footer.

Values only: no store, no clock. Offsets in `BatchIndex`, `Reference`, `ProducerBatch`,
`Marker` and `UnreadBatch` are relative to the segment's base offset.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from sparklog.core.types import NO_TIMESTAMP_MS, UNLED_EPOCH, TimestampType
from sparklog.log.segment.file import StoredBatch
from sparklog.log.segment.key_index import KeyIndex

Kind = Literal["data", "reference", "fence", "control"]
"""`control`: the form of a fence in logs of format 1; it takes an offset."""


@dataclass(frozen=True, slots=True)
class CommitKey:
    """Names one commit of one writer; a partition accepts it at most once.

    `sequence` rises from commit to commit. A streaming query is a writer, its batch
    id the sequence.
    """

    writer: str
    sequence: int


@dataclass(frozen=True, slots=True)
class CommitStamp:
    """A commit key as stored, with the time it was written (for expiry)."""

    key: CommitKey
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class BatchIndex:
    """One record batch: its offsets, its times, its bytes."""

    base: int
    end: int
    rows: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    stored: StoredBatch


@dataclass(frozen=True, slots=True)
class Reference:
    """A staged object and the (relative) offsets a reference segment gives it."""

    object: str
    base: int
    end: int
    rows: int
    size_bytes: int
    nonce: str
    min_timestamp_ms: int
    max_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Append:
    """An original append that a rewritten segment covers. Offsets are absolute."""

    base_offset: int
    end_offset: int
    leader_epoch: int
    nonce: str


@dataclass(frozen=True, slots=True)
class ProducerBatch:
    """An idempotent producer's batch and its offsets."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    base: int
    end: int
    attributes: int


@dataclass(frozen=True, slots=True)
class Marker:
    """A control record. Readers of records never see it; `producers` lists its batch."""

    base: int
    timestamp_ms: int
    key: bytes
    """As on Kafka's wire: version and type."""
    value: bytes | None


@dataclass(frozen=True, slots=True)
class UnreadBatch:
    """A record batch that could not be made into rows, as it came."""

    base: int
    end: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Segment:
    """All metadata in a segment's footer."""

    topic_id: str
    partition: int
    base_offset: int
    end_offset: int
    rows: int
    nonce: str
    kind: Kind = "data"
    leader_epoch: int = UNLED_EPOCH
    led: bool = False
    """True if from here on only a leader may append."""
    min_timestamp_ms: int = NO_TIMESTAMP_MS
    max_timestamp_ms: int = NO_TIMESTAMP_MS
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    codec: str = "none"
    head: tuple[int, int] = (0, 0)
    column_names: tuple[str, ...] = ()
    batches: tuple[BatchIndex, ...] = ()
    appends: tuple[Append, ...] = ()
    producers: tuple[ProducerBatch, ...] = ()
    markers: tuple[Marker, ...] = ()
    unread: tuple[UnreadBatch, ...] = ()
    commit: CommitStamp | None = None
    references: tuple[Reference, ...] = field(default=())
    keys: KeyIndex | None = None
    """Excludes keys that the rows do not have; None if it was not written."""

    def nonce_at(self, offset: int) -> str | None:
        """Return the nonce of the append that put `offset` here, or None if not recorded."""
        if not self.appends:
            return self.nonce if self.base_offset <= offset < self.end_offset else None
        for append in self.appends:
            if append.base_offset <= offset < append.end_offset:
                return append.nonce
        return None
