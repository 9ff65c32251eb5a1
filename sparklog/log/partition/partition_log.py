"""PartitionLog: runs the pure protocols of one partition on a store.

It holds the newest known view and one thread pool. It is thread-safe. Appends of one PartitionLog
run one after the other (FORMAT.md 5 allows one put in flight per writer); reads run beside them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from math import inf
from threading import Lock

import pyarrow as pa

from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy, new_nonce
from sparklog.core.errors import DataCorrupt, InvalidRequest
from sparklog.core.types import TimestampType
from sparklog.log.effects import Program, Result, create, run
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.change import absorb_tail, change, raise_log_start
from sparklog.log.manifest.manifest import Entry
from sparklog.log.manifest.quick_refresh import probe
from sparklog.log.manifest.refresh import (
    readable,
    readable_at_once,
    refresh,
    unreadable,
)
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition import offset_lookup
from sparklog.log.partition.append import AppendResult, Candidate, append
from sparklog.log.partition.key_lookup import NEWEST_AT_ONCE, FoundKey, find_key
from sparklog.log.partition.read_committed import TransactionOutcomes, decided
from sparklog.log.partition.segment_reader import SegmentReader
from sparklog.log.schema import check_keys, check_record_sizes, normalized, read_schema
from sparklog.log.segment.builder import SegmentBuilder, build_records, build_references
from sparklog.log.segment.segment import CommitKey, CommitStamp, Reference, Segment
from sparklog.log.segment.unread_batches import Unread
from sparklog.store.base import ObjectInfo, ObjectStore
from sparklog.store.kept_ends import KeptEnds

logger = logging.getLogger(__name__)

LOOK_AGAIN_S = 60.0
"""A direct writer lists the log again before an append, if the last listing is older."""
DEFAULT_COLUMNS = ("offset", "timestamp", "key", "value", "headers")


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of a topic that its partitions' logs need."""

    codec: str = "lz4"
    """none, lz4 or zstd: the codec of segments (`compression.type`)."""
    zstd_level: int = 3
    max_message_bytes: int = 1_048_588
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    requires_keys: bool = False
    """A compacted topic accepts no record without a key (`cleanup.policy`)."""
    indexes_keys: bool = False
    """Segments carry bounds and a filter of their keys (`sparklog.key.index`)."""
    tail_segments_max: int = 32
    """The next append absorbs a tail of this length into the manifest."""
    writer_expiry_ms: int = 7 * 24 * 3600 * 1000
    """A writer of idempotent commits expires after it is silent for this time
    (`transactional.id.expiration.ms`)."""


class PartitionLog:
    """One partition of one topic, on one store."""

    def __init__(
        self,
        store: ObjectStore,
        layout: PartitionLayout,
        config: LogConfig | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
        pool: Executor | None = None,
    ) -> None:
        """Open the log without reading it. Without a `pool` it creates one."""
        self._store = store
        self.layout = layout
        self.config = config if config is not None else LogConfig()
        self._clock = clock
        self._entropy = entropy
        self._pool = pool if pool is not None else ThreadPoolExecutor(8, "sparklog-read")
        self._reader = SegmentReader(store, layout, self._pool)
        self._view = PartitionView(layout)
        self._fresh = False
        self._looked_s = -inf
        """Time of the last listing of all names of the log."""
        self._lock = Lock()

    def view(self, *, refreshed: bool = True, through: KeptEnds | None = None) -> PartitionView:
        """Return the partition as it is now, or its last view.

        Cost: a listing of the log and two of manifests, plus a footer per new segment. A look-up
        passes the store that keeps what it reads, `through`; then many requests are under way at
        once.

        Raises:
            DataCorrupt: the tail is damaged.
        """
        with self._lock:
            if refreshed or not self._fresh:
                self._refresh(through)
            return self._view

    def _refresh(self, through: KeptEnds | None = None) -> None:
        self._view = self._run(refresh(self._view, at_once=through is not None), through)
        self._fresh = True
        self._looked_s = self._clock.monotonic_s()

    def readable(
        self,
        *,
        probing: bool = False,
        through: KeptEnds | None = None,
        early: Sequence[ObjectInfo] | None = None,
    ) -> PartitionView:
        """Return the partition as far as it is readable; `damage` says why the view ends there.

        For readers, which then get the records before a damaged segment. Cost and `through`: as
        `view`, or as `probe`. `early`: a listing of the partition's folder that began after the
        caller needed the view.
        """
        with self._lock:
            if probing and self._fresh:
                try:
                    self._view = self._run(probe(self._view))
                    return self._view
                except DataCorrupt as error:
                    logger.warning("looking how far the log can be read: %s", error)
            if through is None:
                look = readable(self._view)
            else:
                if self._view.entries:
                    early = None
                look = readable_at_once(self._view, early=early, ahead=NEWEST_AT_ONCE)
            self._view = self._run(look, through)
            # The next append refreshes the view, and then raises the damage.
            self._fresh = self._view.damage is None
            return self._view

    def use(self, view: PartitionView) -> None:
        """Begin with a view that another object of the same partition read."""
        assert view.layout == self.layout
        with self._lock:
            if not self._fresh and view.damage is None:
                self._view, self._fresh = view, True

    def probe(self) -> PartitionView:
        """Return the partition with the segments appended since the last view.

        For frequent calls. It finds appends, but finds rewrites only if there are appends, too. So
        its view may have an old log start and old objects: call `view` every few seconds.

        Cost: one request when nothing was appended, else one more per segment and a listing.

        Raises:
            DataCorrupt: the tail is damaged.
        """
        with self._lock:
            if self._fresh:
                self._view = self._run(probe(self._view))
            else:
                self._refresh()
            return self._view

    def append(
        self, batches: Sequence[pa.RecordBatch], *, key: CommitKey | None = None
    ) -> AppendResult:
        """Append records as one segment: all of them or none.

        `batches` have columns `value` and optionally `timestamp`, `key`, `headers` (see
        `log.schema`). With a commit key the append happens at most once.

        Raises:
            InvalidRequest: wrong columns, no records. RecordTooLarge: over `max.message.bytes`.
            InvalidRecord: a record without a key in a compacted topic.
            OutcomeUnknown: read the log before trying again, or try again with the same key.
            Unavailable: the store does not answer; nothing was appended.
        """
        return self._append(self._draft(batches), key, None)

    def append_at(self, batches: Sequence[pa.RecordBatch], offset: int) -> AppendResult | None:
        """Append records at this very offset, or return None because it is taken."""
        return self._append_if(self._draft(batches), None, offset)

    def append_staged(
        self, staged: Sequence[Reference], *, key: CommitKey | None = None
    ) -> AppendResult:
        """Append objects that `stage` uploaded, in the order given, as one small segment.

        Raises:
            InvalidRequest: nothing to append. Others as `append`.
        """
        if not any(r.rows for r in staged):
            raise InvalidRequest("nothing to append: no staged records")
        draft = build_references(
            self.layout,
            [r for r in staged if r.rows],
            new_nonce(self._entropy),
            timestamp_type=self.config.timestamp_type,
        )
        return self._append(draft, key, None)

    def stage(self, batches: Sequence[pa.RecordBatch]) -> Reference:
        """Upload records without appending them. Garbage collection deletes unused objects later.

        Raises:
            InvalidRequest, RecordTooLarge: as `append`.
            OutcomeUnknown, Unavailable: the store failed; stage again.
        """
        draft = self._draft(batches)
        segment = draft.segment
        name = self.layout.staged_name(segment.nonce)
        data = draft.at(0)
        self._run(create(self.layout.key(name), data))
        return Reference(
            object=name,
            base=0,
            end=segment.end_offset,
            rows=segment.rows,
            size_bytes=len(data),
            nonce=segment.nonce,
            min_timestamp_ms=segment.min_timestamp_ms,
            max_timestamp_ms=segment.max_timestamp_ms,
        )

    def read(
        self,
        base_offset: int,
        end_offset: int,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        *,
        view: PartitionView | None = None,
        unread: Unread = Unread.FAIL,
        outcomes: TransactionOutcomes | None = None,
        through: KeptEnds | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of [base_offset, end_offset) with these columns, in offset order.

        With the `outcomes` of `view` (see `outcomes`), committed records only. A look-up passes the
        store that keeps what it reads, `through`. Memory: a few megabytes for any range.

        Raises:
            InvalidRequest: an unknown column. OffsetOutOfRange: not within the log.
            UnreadableRecords: a producer's batch is unreadable, and `unread` does not skip it.
            DataCorrupt: an object in that range is damaged or missing; the message names it.
        """
        read_schema(columns)
        seen = view if view is not None else self._reaching(end_offset)
        if seen.damage is not None and end_offset > seen.end_offset:
            raise unreadable(seen)
        reader = self._reader
        if through is not None:
            reader = SegmentReader(through, self.layout, self._pool)
        if outcomes is not None:
            return reader.read_committed(
                seen, base_offset, end_offset, columns, outcomes, unread=unread
            )
        return reader.read(seen, base_offset, end_offset, columns, unread=unread)

    def outcomes(self, view: PartitionView) -> TransactionOutcomes:
        """Return how the transactions in `view` ended, for reads of committed records.

        Raises:
            Unavailable: an object was replaced meanwhile; take a new view.
            DataCorrupt: a segment is damaged.
        """
        return self._run(decided(view))

    def find(
        self,
        key: bytes,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        *,
        newest_only: bool = False,
        view: PartitionView | None = None,
        through: KeptEnds | None = None,
    ) -> FoundKey:
        """Return the records of a key, tombstones too, or only the newest of them.

        Cost: a footer per segment. With filters (`sparklog.key.index`) also a page of each, and the
        keys of the segments that may have the key. Without filters it reads all keys. Nothing that
        `through` kept is read again; `newest_only` reads ahead of the newest record.

        Raises:
            InvalidRequest: an unknown column. DataCorrupt: an object is damaged or missing.
        """
        read_schema(columns)
        ends = KeptEnds(self._store) if through is None else through
        seen = view or self.view(through=ends)
        return find_key(ends, self._pool, seen, key, columns, newest_only=newest_only)

    def footer(self, entry: Entry) -> Segment:
        """Return the metadata of an entry's object. Cost: a read of its end, unless cached.

        Raises:
            DataCorrupt: damaged or missing, or not the object of the entry.
        """
        return self._reader.footer(entry)

    def offset_for_time(
        self, timestamp_ms: int, *, view: PartitionView | None = None
    ) -> offset_lookup.TimedOffset | None:
        """Return the first record whose timestamp is at or after `timestamp_ms`, or None."""
        return offset_lookup.offset_for_time(self._reader, view or self.view(), timestamp_ms)

    def offset_of_max_timestamp(self) -> offset_lookup.TimedOffset | None:
        """Return the first record that has the highest timestamp, or None in an empty log."""
        return offset_lookup.offset_of_max_timestamp(self._reader, self.view())

    def delete_records(self, before_offset: int) -> int:
        """Make `before_offset` (-1: the end) the log start offset; returns the new log start.

        Raises:
            OffsetOutOfRange: beyond the log end.
        """
        with self._lock:
            self._view = self._run(
                change(self._view, raise_log_start(before_offset), new_nonce(self._entropy))
            )
            return self._view.log_start_offset

    def absorb_tail(self, segments_min: int = 1) -> PartitionView:
        """Absorb a tail of `segments_min` segments into the manifest: it saves readers requests."""
        with self._lock:
            self._absorb(segments_min)
            return self._view

    def _reaching(self, end_offset: int) -> PartitionView:
        """Return a view with all records below `end_offset`, or as many as can be read."""
        with self._lock:
            if self._fresh and end_offset <= self._view.end_offset:
                return self._view
        return self.readable()

    def _draft(self, batches: Sequence[pa.RecordBatch]) -> SegmentBuilder:
        now_ms = self._clock.now_ms()
        ready = [normalized(b, now_ms) for b in batches if b.num_rows]
        if not ready:
            raise InvalidRequest("nothing to append: no records")
        if self.config.timestamp_type is TimestampType.LOG_APPEND_TIME:
            ready = [normalized(_without_timestamp(b), now_ms) for b in ready]
        for batch in ready:
            check_record_sizes(batch, self.config.max_message_bytes)
            if self.config.requires_keys:
                check_keys(batch)
        return build_records(
            self.layout,
            ready,
            new_nonce(self._entropy),
            codec=self.config.codec,
            level=self.config.zstd_level,
            timestamp_type=self.config.timestamp_type,
            indexes_keys=self.config.indexes_keys,
        )

    def _append(self, draft: SegmentBuilder, key: CommitKey | None, only_at: None) -> AppendResult:
        done = self._append_if(draft, key, only_at)
        assert done is not None, "only an append at a given offset can find it taken"
        return done

    def _append_if(
        self, draft: SegmentBuilder, key: CommitKey | None, only_at: int | None
    ) -> AppendResult | None:
        commit = CommitStamp(key, self._clock.now_ms()) if key is not None else None
        with self._lock:
            # A name below later ones may be lost, and then seems to be the next free one.
            if not self._fresh or self._clock.monotonic_s() - self._looked_s > LOOK_AGAIN_S:
                self._refresh()
            self._view, done = self._run(append(self._view, Candidate(draft, commit, only_at)))
            if len(self._view.tail) >= self.config.tail_segments_max:
                self._absorb(self.config.tail_segments_max)
            return done

    def _absorb(self, segments_min: int) -> None:
        expired_ms = self._clock.now_ms() - self.config.writer_expiry_ms
        plan = absorb_tail(segments_min, expired_ms)
        self._view = self._run(change(self._view, plan, new_nonce(self._entropy)))

    def _run(self, program: Program[Result], through: KeptEnds | None = None) -> Result:
        return run(program, self._store if through is None else through, self._pool)


def _without_timestamp(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.drop_columns(["timestamp"])
