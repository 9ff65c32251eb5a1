"""Reads the records of one plan, as batches with the columns of the table.

The leader's records follow those of the objects. An object that the plan names may have moved
meanwhile, by compaction or retention. The scan then takes a newer state and goes on at its offset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.cluster.log import Log
from sparklog.core.errors import DataCorrupt, OffsetOutOfRange, UnreadableRecords
from sparklog.core.types import TopicPartition
from sparklog.log.manifest.manifest import Entry
from sparklog.log.partition.key_lookup import may_have_key
from sparklog.log.partition.read_committed import aborted_stretches, without
from sparklog.log.partition.segment_reader import Region, SegmentReader
from sparklog.log.segment.segment import Segment
from sparklog.log.segment.unread_batches import Unread
from sparklog.spark.source.readable_partition import ReadablePartition
from sparklog.sql.columns import SCHEMA, stored_columns
from sparklog.sql.filters import Condition, keys_of
from sparklog.sql.scan_plan import PartitionPlan, Spans, joined_spans, spans_of
from sparklog.sql.topics import TopicReader

ENTRIES_AT_ONCE: Final = 64
"""Objects whose footers are read together."""
KEYS_MAX: Final = 64
"""More keys than this are not looked up one by one."""
BATCH_ROWS: Final = 32_768
LOOKS_AGAIN_MAX: Final = 5


@dataclass(slots=True)
class ScanCounts:
    """Counts of the scan of one partition; EXPLAIN shows them."""

    excluded_by_key: int = 0
    """Objects that the index of keys excluded."""
    read: int = 0
    """Objects of which records were read."""
    rows: int = 0
    """Records that were read, before the filter."""
    fetched: int = 0
    """Records that came from a leader."""


class PartitionScan:
    """Reads one plan, once."""

    def __init__(
        self,
        plan: PartitionPlan,
        condition: Condition,
        columns: Sequence[str],
        topics: TopicReader,
        again: Callable[[], ReadablePartition],
        unread: Unread = Unread.FAIL,
    ) -> None:
        """Read the records of a plan.

        Args:
            plan: of the partition.
            condition: decides what can be left out.
            columns: of the table, those to read.
            topics: give access to the store and the leaders.
            again: returns a newer state of the partition.
            unread: the action for unreadable batches.
        """
        self._plan = plan
        self._condition = condition
        self._columns = stored_columns(columns)
        self._topics = topics
        self._again = again
        self._unread = unread
        self._keys = keys_of(condition, plan.known)
        self.counts = ScanCounts()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the stored columns of records that may match, in order of offsets.

        Raises:
            DataCorrupt: an object is damaged. UnreadableRecords: a producer's batch is unreadable.
            OffsetOutOfRange: records were deleted while they were read.
            Unavailable: the store or the leader does not respond.
        """
        plan = self._plan
        looks, at = 0, plan.low
        while plan.entries:
            try:
                for rows, next_offset in self._stored(plan):
                    self.counts.rows += rows.num_rows
                    yield rows
                    at = next_offset
                break
            except UnreadableRecords:
                raise
            except DataCorrupt:
                newer = plan.after(at, self._again(), self._condition)
                looks += 1
                same = [e.object for e in newer.entries] == [
                    e.object for e in plan.entries if e.end_offset > at
                ]
                if same or looks > LOOKS_AGAIN_MAX:
                    raise
                if newer.state.log_start_offset > at:
                    raise OffsetOutOfRange(
                        "records were deleted while they were read; try again. "
                        f"partition={plan.place} offset={at} "
                        f"log_start_offset={newer.state.log_start_offset}"
                    ) from None
                plan = newer
        base, end = self._plan.tail
        if base < end:
            for rows in self._served(base, end):
                self.counts.rows += rows.num_rows
                self.counts.fetched += rows.num_rows
                yield rows

    def _stored(self, plan: PartitionPlan) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Yield rows and the offset from which to go on after them."""
        log = self._topics.log
        assert log is not None, "without a root a plan has no objects"
        pool = self._topics.pool
        reader = SegmentReader(log.store, plan.state.layout, pool)
        if not set(self._columns) - {"offset"} and not plan.state.aborted:
            self.counts.read += len(plan.entries)
            whole = [(max(plan.low, e.base_offset), _end(plan, e)) for e in plan.entries]
            yield from self._rows(reader, plan, joined_spans(whole))
            return
        for at in range(0, len(plan.entries), ENTRIES_AT_ONCE):
            some = plan.entries[at : at + ENTRIES_AT_ONCE]
            segments = dict(Region(log.store, plan.state.view, some, pool).segments())
            wanted = self._with_keys(log, plan, segments, pool)
            self.counts.excluded_by_key += len(segments) - len(wanted)
            spans: Spans = []
            for entry in wanted:
                reader.keep(entry, segments[entry])
                spans += spans_of(plan, entry, segments[entry], self._condition)
            self.counts.read += len(wanted)
            aborted = [
                stretch
                for entry in wanted
                for stretch in aborted_stretches(
                    segments[entry], entry.base_offset, plan.state.aborted
                )
            ]
            spans = joined_spans(spans)
            if self._looks_up_keys():
                spans = self._hits(reader, plan, spans)
            yield from self._rows(reader, plan, spans, aborted)

    def _with_keys(
        self,
        log: Log,
        plan: PartitionPlan,
        segments: dict[Entry, Segment],
        pool: Executor,
    ) -> list[Entry]:
        if self._keys is None or len(self._keys) > KEYS_MAX:
            return list(segments)
        return may_have_key(log.store, pool, plan.state.layout, segments, self._keys)

    def _looks_up_keys(self) -> bool:
        """Return True if reading the keys first can save reading other columns."""
        return self._keys is not None and bool(set(self._columns) - {"offset", "key"})

    def _hits(self, reader: SegmentReader, plan: PartitionPlan, spans: Spans) -> Spans:
        """Return the offsets from the first to the last record with a key, of each batch."""
        keys = pa.array(sorted(self._keys or ()), pa.binary())
        found: Spans = []
        view = plan.state.view
        for base, end in spans:
            for rows in reader.read(view, base, end, ("offset", "key"), unread=self._unread):
                hits = rows.column("offset").filter(pc.is_in(rows.column("key"), keys))
                if len(hits):
                    found.append((hits[0].as_py(), hits[-1].as_py() + 1))
        return joined_spans(found)

    def _rows(
        self,
        reader: SegmentReader,
        plan: PartitionPlan,
        spans: Spans,
        aborted: Sequence[tuple[int, int]] = (),
    ) -> Iterator[tuple[pa.RecordBatch, int]]:
        names = list(dict.fromkeys(["offset", *self._columns]))
        for base, end in spans:
            for rows in reader.read(plan.state.view, base, end, names, unread=self._unread):
                if not rows.num_rows:
                    continue
                next_offset = rows.column("offset")[-1].as_py() + 1
                kept = without(rows, aborted) if aborted else rows
                yield kept.select(self._columns), next_offset

    def _served(self, base: int, end: int) -> Iterator[pa.RecordBatch]:
        # A log without brokers needs no Kafka client.
        from sparklog.client.batch_fetcher import FetchedSpan  # noqa: PLC0415
        from sparklog.spark.source.live_tail import LiveTailReader, TailRequest  # noqa: PLC0415

        plan, topics = self._plan, self._topics
        layout, log = plan.state.layout, topics.log
        span = FetchedSpan(plan.place, layout.topic_id, base, end)
        yield from LiveTailReader(
            TailRequest(
                span, self._columns, plan.state.brokers, topics.committed_only, topics.security
            ),
            None if log is None else lambda: log,
            lambda partition: SegmentReader(_log(log).store, partition.layout, topics.pool),
            _lost,
            unread=self._unread,
        ).read()


def table_batch(
    rows: pa.RecordBatch, place: TopicPartition, columns: Sequence[str]
) -> pa.RecordBatch:
    """Return stored rows with the columns of the table, in the order given."""
    constants = {"topic": place.topic, "partition": place.partition}
    arrays = []
    for name in columns:
        wanted = SCHEMA.field(name).type
        if name in constants:
            arrays.append(pa.repeat(pa.scalar(constants[name], wanted), rows.num_rows))
            continue
        array = rows.column(name)
        arrays.append(array if array.type == wanted else _cast(array, wanted, place, name))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([SCHEMA.field(n) for n in columns]))


def _cast(array: pa.Array, wanted: pa.DataType, place: object, name: str) -> pa.Array:
    try:
        return array.cast(wanted)
    except pa.ArrowInvalid as error:
        raise DataCorrupt(
            "a producer wrote a timestamp that SQL cannot hold; leave the column out. "
            f"partition={place} column={name} reason={error}"
        ) from error


def _end(plan: PartitionPlan, entry: Entry) -> int:
    return min(plan.high, plan.tail[0], entry.end_offset)


def _log(log: Log | None) -> Log:
    assert log is not None, "only a log has partitions"
    return log


def _lost(reason: str) -> None:
    raise OffsetOutOfRange(f"records are gone; try again: {reason}")
