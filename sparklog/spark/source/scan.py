"""Scan: a task's work, reading some offsets of one partition into batches as Spark wants them.

The planner ships the manifest entries that cover a task's offsets. So a task asks neither the
registry nor a listing: it reads footers and the ranges it needs. Records behind the last entry
were with the partition's leader then; the task fetches them from its leader now.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from threading import Lock
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from sparklog.client.batch_fetcher import FetchedSpan
from sparklog.client.security import SecuritySettings
from sparklog.core.errors import DataCorrupt, OffsetOutOfRange, UnreadableRecords
from sparklog.core.types import TopicPartition
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.manifest import Entry, Manifest
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.read_committed import AbortedRange, aborted_stretches, without
from sparklog.log.partition.segment_reader import SegmentReader
from sparklog.log.segment.unread_batches import Unread
from sparklog.spark.access.data_loss import report_data_loss
from sparklog.spark.access.log_access import shared_log
from sparklog.spark.access.worker_heap import imports_kept
from sparklog.spark.source.live_tail import LiveTailReader, TailRequest
from sparklog.spark.source.options import SourceOptions
from sparklog.spark.source.readable_partition import ReadablePartition
from sparklog.spark.source.schema import arrow_schema, columns_of
from sparklog.spark.source.splitting import Task

logger = logging.getLogger(__name__)

FETCH_THREADS = 8
READERS_KEPT = 64
"""Readers a worker remembers, with their footers: a partition's next task finds them."""
BATCH_ROWS = 32_768
BATCH_BYTES = 8 << 20
"""Rows and bytes up to which small batches of a log are joined: fewer, larger batches cost Spark
less, up to about this size."""
EMPTY_BATCH_ROWS = 1 << 20
"""Rows of a batch without columns, which costs nothing to make."""

TIMESTAMP_MS_MAX = (2**63 - 1) // 1_000
"""Spark counts microseconds in 64 bits."""

_FROM_PLACE = ("topic", "partition")

_PackedEntry = tuple[int, int, str, int, int]


@dataclass(frozen=True)
class Slice(InputPartition):
    """One task's share, with the entries it is to read. Small: it is pickled for every task."""

    topic: str
    topic_id: str
    partition: int
    base_offset: int
    end_offset: int
    entries: tuple[_PackedEntry, ...]
    stored_end: int
    """Up to where the entries are read; what lies beyond was with the leader."""
    brokers: str = ""
    """Bootstrap servers from which to fetch that."""
    aborted: tuple[AbortedRange, ...] = ()
    """Records of the entries to leave out."""


def slice_of(task: Task, view: ReadablePartition) -> Slice:
    """Return what to send to the task."""
    offsets = task.offsets
    base, end = offsets.base_offset, offsets.end_offset
    stored_end = max(base, min(end, view.stored_end))
    return Slice(
        task.place.topic,
        view.layout.topic_id,
        task.place.partition,
        base,
        end,
        tuple(
            (e.base_offset, e.end_offset, e.object, e.size_bytes, e.rows)
            for e in view.covering(base, stored_end)
        ),
        stored_end,
        view.brokers,
        tuple(one for one in view.aborted if one[1] < stored_end and one[2] > base),
    )


@dataclass(frozen=True, slots=True)
class Scan:
    """The common part of all tasks of a read. Pickled with the read function."""

    root: str
    columns: tuple[str, ...]
    """Spark's columns, as the source spells them."""
    schema: pa.Schema
    fail_on_data_loss: bool
    committed_only: bool = False
    """Leave out what aborted transactions wrote."""
    far_timestamps_fail: bool = True
    """Fail at a timestamp that Spark cannot hold; else read null."""
    security: SecuritySettings | None = None
    """TLS and SASL of the tasks' connections; secrets are references."""

    @classmethod
    def of(cls, options: SourceOptions, schema: StructType) -> Self:
        """Return the scan of a query's columns.

        Raises:
            InvalidRequest: columns or types that the source does not have.
        """
        return cls(
            options.root,
            columns_of(schema),
            arrow_schema(schema),
            options.fail_on_data_loss,
            options.committed_only,
            options.far_timestamps_fail,
            options.security,
        )

    @property
    def unread(self) -> Unread:
        """Return the action for unreadable batches."""
        return Unread.FAIL if self.fail_on_data_loss else Unread.PASS_OVER

    @property
    def counted(self) -> bool:
        """Return True if the records' offsets suffice for all that is asked for."""
        return set(self.columns) <= {"offset", *_FROM_PLACE}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one task; none for the partition that Spark makes of nothing.

        Raises:
            UnreadableRecords: a producer's batch is unreadable, and that is to fail. DataCorrupt:
            an object is damaged. OffsetOutOfRange: records are gone, and that is to fail.
            Unavailable: the store does not answer.
        """
        if not isinstance(partition, Slice):
            return
        stored = [name for name in self.columns if name not in _FROM_PLACE]
        if "timestamp" in stored and "offset" not in stored:
            stored.append("offset")  # to name a record whose time Spark cannot hold
        shape = _Shape(self, partition)
        found = chain(self._kept(partition, stored), self._served(partition, stored))
        with imports_kept("reading"):
            for batch in joined(found, len(self.columns)):
                yield shape.batch(batch)

    def _served(self, part: Slice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield what no segment held when the read was planned."""
        base, end = part.stored_end, part.end_offset
        if base == end:
            return
        place = TopicPartition(part.topic, part.partition)
        span = FetchedSpan(place, part.topic_id, base, end)
        yield from LiveTailReader(
            TailRequest(span, columns, part.brokers, self.committed_only, self.security),
            lambda: shared_log(self.root),
            lambda partition: _reader(self.root, partition.layout),
            lambda reason: report_data_loss(reason, fail=self.fail_on_data_loss),
            unread=self.unread,
        ).read()

    def _kept(self, part: Slice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield what segments hold, without what transactions took back."""
        if not part.aborted:
            yield from self._stored(part, columns)
            return
        layout = PartitionLayout(part.topic, part.topic_id, part.partition)
        reader = _reader(self.root, layout)
        stretches = [
            span
            for entry in _view(layout, part).entries
            if entry.rows
            for span in aborted_stretches(reader.footer(entry), entry.base_offset, part.aborted)
        ]
        names = columns if "offset" in columns else ["offset", *columns]
        for rows in self._stored(part, names):
            yield without(rows, stretches).select(columns)

    def _stored(self, part: Slice, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        layout = PartitionLayout(part.topic, part.topic_id, part.partition)
        view = _view(layout, part)
        dense = all(rows == end - base for base, end, _, _, rows in part.entries)
        # Gaps have their offsets stored and read anyway; these show the progress.
        names = list(columns) if dense or "offset" in columns else ["offset", *columns]
        at = part.base_offset
        try:
            reader = _reader(self.root, layout)
            for batch in reader.read(view, at, part.stored_end, names, unread=self.unread):
                yield batch.select(columns) if names != columns else batch
                at += batch.num_rows
                if not dense:
                    at = batch.column("offset")[-1].as_py() + 1
        except UnreadableRecords:
            raise
        except DataCorrupt as error:
            # A plan may be older than the objects it names: rewritten or deleted meanwhile.
            logger.warning("looking again for records that moved. reason=%s", error)
            yield from self._again(part, at, columns, error)

    def _again(
        self, part: Slice, at: int, columns: Sequence[str], error: DataCorrupt
    ) -> Iterator[pa.RecordBatch]:
        place = TopicPartition(part.topic, part.partition)
        log = shared_log(self.root)
        topic = log.topics().get(part.topic)
        if topic is None or topic.topic_id != part.topic_id:
            report_data_loss(
                f"Topic {part.topic} was deleted while it was read.", fail=self.fail_on_data_loss
            )
            return
        partition = log.partition(part.topic, part.partition)
        view = partition.readable()
        end = part.stored_end
        if _packed(view, at, end) == _packed(_view(partition.layout, part), at, end):
            raise error
        if at < view.log_start_offset:
            report_data_loss(
                f"Offsets of {place} from {at} on were to be read but the log starts at "
                f"{view.log_start_offset}.",
                fail=self.fail_on_data_loss,
            )
            at = min(view.log_start_offset, end)
        try:
            yield from partition.read(at, end, columns, view=view, unread=self.unread)
        except OffsetOutOfRange as out_of_range:
            raise error from out_of_range


class _Shape:
    """Turns batches of a log into batches of Spark's columns."""

    def __init__(self, scan: Scan, part: Slice) -> None:
        self._columns = scan.columns
        self._schema = scan.schema
        self._constants = {
            "topic": pa.scalar(part.topic, pa.string()),
            "partition": pa.scalar(part.partition, pa.int32()),
        }
        self._repeated: dict[str, pa.Array] = {}
        self._fails = scan.far_timestamps_fail

    def batch(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        if not self._columns:
            return stored
        arrays = [self._column(name, stored) for name in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str, stored: pa.RecordBatch) -> pa.Array:
        if name in self._constants:
            return self._constant(name, stored.num_rows)
        array = stored.column(name)
        if name == "timestamp":
            wanted = self._schema.field(self._columns.index(name)).type
            try:
                return array.cast(wanted)
            except pa.ArrowInvalid:
                return self._without_far(array, stored).cast(wanted)
        return array

    def _without_far(self, times: pa.Array, stored: pa.RecordBatch) -> pa.Array:
        """Return timestamps with null for what Spark cannot hold.

        Raises:
            DataCorrupt: there is such a one, and that is to fail.
        """
        numbers = times.cast(pa.int64())
        far = pc.or_(pc.greater(numbers, TIMESTAMP_MS_MAX), pc.less(numbers, -TIMESTAMP_MS_MAX))
        row = pc.index(far, pa.scalar(value=True)).as_py()
        at = stored.column("offset")[row].as_py()
        message = (
            "a producer wrote a timestamp that Spark cannot hold. "
            f"topic={self._constants['topic']} partition={self._constants['partition']} "
            f"offset={at} timestamp_ms={numbers[row]}"
        )
        if self._fails:
            raise DataCorrupt(
                f"{message}; to read null instead set the source option farTimestamps to null, or "
                "leave the column out"
            )
        logger.warning("null instead: %s", message)
        return pc.if_else(far, pa.scalar(None, times.type), times)

    def _constant(self, name: str, rows: int) -> pa.Array:
        known = self._repeated.get(name)
        if known is None or len(known) < rows:
            known = self._repeated[name] = pa.repeat(self._constants[name], max(rows, BATCH_ROWS))
        return known.slice(0, rows)


def joined(batches: Iterator[pa.RecordBatch], columns: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in fewer batches."""
    rows_max = BATCH_ROWS if columns else EMPTY_BATCH_ROWS
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if pending and (rows + batch.num_rows > rows_max or size + batch.nbytes > BATCH_BYTES):
            yield _concat(pending)
            pending, rows, size = [], 0, 0
        pending.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
    if pending:
        yield _concat(pending)


def _concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _view(layout: PartitionLayout, part: Slice) -> PartitionView:
    entries = tuple(
        Entry(base, end, name, size_bytes, rows, 0, 0, 0, "")
        for base, end, name, size_bytes, rows in part.entries
    )
    manifest = Manifest(
        log_start_offset=part.base_offset, end_offset=part.stored_end, entries=entries
    )
    return PartitionView(layout, manifest)


def _packed(view: PartitionView, low: int, high: int) -> list[str]:
    return [entry.object for entry in view.covering(low, high)]


_lock = Lock()
_readers: OrderedDict[tuple[int, str, PartitionLayout], SegmentReader] = OrderedDict()
_pools: dict[int, ThreadPoolExecutor] = {}


def _reader(root: str, layout: PartitionLayout) -> SegmentReader:
    """Return this process's reader of a partition; a forked child makes its own."""
    process = os.getpid()
    key = (process, root, layout)
    with _lock:
        pool = _pools.get(process)
        if pool is None:
            pool = _pools[process] = ThreadPoolExecutor(FETCH_THREADS, "sparklog-scan")
        found = _readers.get(key)
        if found is None:
            found = _readers[key] = SegmentReader(shared_log(root).store, layout, pool)
        _readers.move_to_end(key)
        while len(_readers) > READERS_KEPT:
            _readers.popitem(last=False)
        return found


def _fresh_lock() -> None:
    global _lock  # noqa: PLW0603 - a lock that another thread held at the fork stays held for ever
    _lock = Lock()


os.register_at_fork(after_in_child=_fresh_lock)
