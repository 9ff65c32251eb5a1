"""TopicTable: a topic as an Arrow dataset, which DuckDB scans.

DuckDB asks a dataset for a scanner with the columns and the filter of a query, and asks that for a
reader. It has then dropped the filter from its own plan, so the reader applies it to every record.
Nothing is read before that: a table that no query scans costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from sparklog.core.errors import SparklogError, UnknownTopicOrPartition
from sparklog.core.types import TopicPartition
from sparklog.log.segment.unread_batches import Unread
from sparklog.spark.source.readable_partition import ReadablePartition
from sparklog.sql.filters import Condition, condition_of
from sparklog.sql.record_scan import PartitionScan, ScanCounts
from sparklog.sql.scan_plan import PartitionPlan, plan_partition
from sparklog.sql.table_columns import TopicColumns
from sparklog.sql.topics import Moment, States, TopicReader


class QueryStopped(Exception):
    """The query was cancelled or has run for too long; its scans end."""


@dataclass(slots=True)
class TableScan:
    """One scan of a table: its columns, filter and plans, and what it did."""

    table: str
    columns: tuple[str, ...]
    filter: str
    plans: tuple[PartitionPlan, ...]
    counts: list[ScanCounts] = field(default_factory=list)


@dataclass(slots=True)
class QueryScans:
    """The scans of one query, and how they end."""

    plan_only: bool = False
    """Plan, and read nothing: for EXPLAIN."""
    scans: list[TableScan] = field(default_factory=list)
    stopped: Event = field(default_factory=Event)
    failure: SparklogError | None = None
    """The first error of a scan; DuckDB passes on no more than its text."""
    lock: Lock = field(default_factory=Lock)


class TopicTable(ds.Dataset):  # type: ignore[misc]
    """One topic at one moment."""

    def __init__(
        self,
        topic: str,
        moment: Moment,
        topics: TopicReader,
        query: QueryScans,
        name: str,
        unread: Unread = Unread.FAIL,
    ) -> None:
        """Read `topic` through `topics`, as part of `query`, which knows it as `name`."""
        self.columns = TopicColumns()
        self._topic = topic
        self._moment = moment
        self._topics = topics
        self._query = query
        self._name = name
        self._unread = unread
        self._states: States | None = None
        self._lock = Lock()

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the table."""
        return self.columns.schema

    def decoded(self, columns: TopicColumns) -> TopicTable:
        """Return a table with other columns, of the same moment."""
        found = TopicTable(
            self._topic, self._moment, self._topics, self._query, self._name, self._unread
        )
        found.columns = columns
        found._states = self.states()
        return found

    def states(self) -> States:
        """Return the partitions as they were at the first call: a query sees one moment."""
        with self._lock:
            if self._states is None:
                self._states = self._topics.states(self._topic, self._moment)
            return self._states

    def scanner(self, **asked: Any) -> _Scanner:
        """Return a scanner for `columns` and `filter`, as DuckDB asks for it."""
        return _Scanner(lambda: self._reader(asked.get("columns"), asked.get("filter")))

    def failed(self, error: SparklogError) -> None:
        """Keep an error of a scan, if it is the first one."""
        with self._query.lock:
            if self._query.failure is None:
                self._query.failure = error

    def _reader(self, columns: Sequence[str] | None, expression: Any) -> pa.RecordBatchReader:
        names = tuple(self.schema.names if columns is None else columns)
        text = None if expression is None else str(expression)
        condition = condition_of(text)
        try:
            states = self.states()
        except SparklogError as error:
            self.failed(error)
            raise
        plans = tuple(plan_partition(p, s, condition) for p, s in sorted(states.items()))
        scan = TableScan(self._name, names, text or "", plans)
        with self._query.lock:
            self._query.scans.append(scan)
        found = iter(()) if self._query.plan_only else self._read(scan, condition, expression)
        return pa.RecordBatchReader.from_batches(
            pa.schema([self.schema.field(name) for name in names]), found
        )

    def _read(
        self, scan: TableScan, condition: Condition, expression: Any
    ) -> Iterator[pa.RecordBatch]:
        # The filter's columns are read, too, and dropped after it.
        names = self.columns.needed(scan.columns, scan.filter)
        stored = self.columns.stored(names)
        fill = self.columns.fill()
        try:
            for plan in scan.plans:
                part = PartitionScan(
                    plan, condition, stored, self._topics, self._again(plan.place), self._unread
                )
                scan.counts.append(part.counts)
                for rows in part.batches():
                    if self._query.stopped.is_set():
                        raise QueryStopped
                    batch = fill(rows, plan.place, names, condition)
                    if expression is not None:
                        batch = batch.filter(expression)
                    if batch.num_rows:
                        yield batch.select(list(scan.columns))
        except SparklogError as error:
            self.failed(error)
            raise

    def _again(self, place: TopicPartition) -> Callable[[], ReadablePartition]:
        def look() -> ReadablePartition:
            found = self._topics.states(self._topic, self._moment).get(place)
            if found is None:
                raise UnknownTopicOrPartition(f"the topic changed while it was read. {place}")
            return found

        return look


class _Scanner:
    """A scanner as DuckDB uses one: it gives a reader."""

    def __init__(self, make: Callable[[], pa.RecordBatchReader]) -> None:
        self._make = make

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the reader; DuckDB then pulls batches as it needs them."""
        return self._make()
