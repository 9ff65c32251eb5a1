"""A query over records as they arrive: each batch by itself, without a state.

Such a query selects, computes and filters, over one topic. A query that has to see other records,
as for a sum, an order or a join, is refused: DuckDB's own plan shows it. Each batch becomes the
whole table for a moment, so the rows of a batch are the answer for its records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
import pyarrow.dataset as ds

from sparklog.core.bounded_json import parse_json
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.core.types import TopicPartition
from sparklog.sql.arrived import SourceRecord
from sparklog.sql.columns import stored_columns
from sparklog.sql.engine import DecodeRules, Query, QueryLimits
from sparklog.sql.filters import condition_of
from sparklog.sql.topic_table import TopicTable
from sparklog.sql.topics import PRESENT, TopicReader

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SCAN: Final = "PYTHON_ARROW_SCAN"
STATELESS: Final = frozenset({SCAN, "PROJECTION", "FILTER", "UNNEST"})
"""DuckDB's operators that need one record at a time."""


class ArrivalSource(Protocol):
    """Partitions that are followed."""

    def ready(self, records_max: int | None) -> Iterator[SourceRecord]:
        """Yield the records that are ready, at most `records_max`."""

    def wait(self, at_most_s: float | None) -> None:
        """Wait for more records, at most `at_most_s`."""


class ArrivalQuery(Query):
    """One query, which answers for each batch of records."""

    def __init__(
        self,
        topics: TopicReader,
        text: str,
        limits: QueryLimits | None = None,
        rules: DecodeRules | None = None,
    ) -> None:
        """Parse and plan the statement; `topics` show the fields of values.

        Raises:
            InvalidRequest: the query needs other records, or not exactly one topic of the present.
            Others as `Query`.
        """
        super().__init__(topics, text, limits, rules)
        tables = self._statement.tables
        if not tables:
            self._check_names()
        if len(tables) != 1 or tables[0].moment != PRESENT or self._statement.explains:
            raise InvalidRequest("a query over arriving records is a SELECT from one topic")
        self.topic: Final = tables[0].topic
        """The topic whose records it needs."""
        self._arriving: list[ArrivingRows] = []
        try:
            with self._converting():
                self._open = self._opened()
                _check_stateless(self._open, self._statement.sql)
                empty, *_ = self._answer(self._open)
        except BaseException:
            self.close()
            raise
        self.schema: Final = empty.schema
        """The columns of the result."""
        self.columns: Final = tuple(stored_columns(set().union(*self._stored())))
        """The stored columns that it needs."""

    def answer(self, place: TopicPartition, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the result for some records of a partition.

        Args:
            place: the partition.
            rows: with `columns`.

        Raises:
            InvalidRequest: a value does not decode, or a computation fails.
        """
        for table in self._arriving:
            table.arrived = place, rows
        with self._converting():
            found = [batch for batch in self._answer(self._open) if batch.num_rows]
        yield from found

    def _scanned(self, table: TopicTable) -> ds.Dataset:
        self._arriving.append(ArrivingRows(table))
        return self._arriving[-1]

    def _check_names(self) -> None:
        """Raise UnknownTopicOrPartition for the name of no topic, as DuckDB finds it."""
        try:
            with self._converting():
                self._opened().execute(f"EXPLAIN {self._statement.sql}")
        finally:
            self.close()

    def _stored(self) -> Iterator[Iterable[str]]:
        for table in self._arriving:
            yield table.columns.stored(sorted(table.asked))


class ArrivingRows(ds.Dataset):  # type: ignore[misc]
    """A table with the records that arrived last."""

    def __init__(self, table: TopicTable) -> None:
        """Stand for `table`, without records."""
        self.columns = table.columns
        self.arrived: tuple[TopicPartition, pa.RecordBatch] | None = None
        self.asked: set[str] = set()
        """Columns that the query has asked for."""
        self._fill = table.columns.fill()
        self._failed = table.failed

    @property
    def schema(self) -> pa.Schema:
        """Return the columns of the table."""
        return self.columns.schema

    def scanner(self, **asked: Any) -> _ArrivalScanner:
        """Return a scanner for `columns` and `filter`, as DuckDB asks for it."""
        columns, expression = asked.get("columns"), asked.get("filter")
        names = list(self.schema.names if columns is None else columns)
        text = None if expression is None else str(expression)
        needed = self.columns.needed(names, text or "")
        self.asked.update(needed)
        batches: list[pa.RecordBatch] = []
        if self.arrived is not None:
            place, rows = self.arrived
            try:
                batch = self._fill(rows, place, needed, condition_of(text))
            except SparklogError as error:
                self._failed(error)
                raise
            batches = [batch if expression is None else batch.filter(expression)]
        return _ArrivalScanner(
            pa.schema([self.schema.field(name) for name in names]),
            [batch.select(names) for batch in batches],
        )


class _ArrivalScanner:
    """Gives DuckDB the batches, once."""

    def __init__(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        self._schema = schema
        self._batches = batches

    def to_reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._schema, self._batches)


def _check_stateless(connection: DuckDBPyConnection, sql: str) -> None:
    rows = connection.execute(f"EXPLAIN (FORMAT json) {sql}").fetchall()
    operators = list(_operators(parse_json(rows[0][1], "a plan")))
    needs = sorted(set(operators) - STATELESS)
    if needs or operators.count(SCAN) != 1:
        raise InvalidRequest(
            "a query over arriving records selects, computes and filters, one record at a time; "
            f"run it over the records that are there, or in Spark. operators={','.join(needs)}"
        )


def _operators(plan: Any) -> Iterator[str]:
    for node in plan if isinstance(plan, list) else [plan]:
        yield str(node["name"]).strip()
        yield from _operators(node.get("children", []))
