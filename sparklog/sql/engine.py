"""Runs one query on a DuckDB of its own, which reaches nothing but the topics of the query.

The database is in memory. It has no access to files, extensions or the network, writes nothing to
disk, and its settings are locked. Time, memory and rows are limited.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Timer
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.dataset as ds

from sparklog.core.counters import RequestCount
from sparklog.core.errors import InvalidRequest, UnknownTopicOrPartition
from sparklog.core.types import Closeable
from sparklog.log.segment.unread_batches import Unread
from sparklog.spark.source.readable_partition import ReadablePartition
from sparklog.sql.columns import SCHEMA
from sparklog.sql.decoded_views import (
    SAMPLE_ROWS,
    fields_of,
    json_view,
    latest_view,
    quoted,
    text_view,
)
from sparklog.sql.explain import explained
from sparklog.sql.filters import Unknown
from sparklog.sql.record_scan import PartitionScan, table_batch
from sparklog.sql.scan_plan import plan_partition
from sparklog.sql.statement import TableName, parse_statement, unknown_table
from sparklog.sql.topic_table import QueryScans, TopicTable
from sparklog.sql.topics import TopicReader

if TYPE_CHECKING:
    from concurrent.futures import Future

    from duckdb import DuckDBPyConnection

    from sparklog.registry.bare_schema import BareSchema
    from sparklog.sql.registry_columns import DecodedColumns

RESULT_ROWS: Final = 65_536
"""Rows of a batch of a result."""
PARTITIONS_SAMPLED: Final = 8
_PLACE: Final = re.compile(r"\n*LINE (\d+): (.*)\n( *)(\^+)", re.DOTALL)
_NO_TABLE: Final = re.compile(r"Table with name (.+?) does not exist!")


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """The most that one query may use."""

    timeout_s: float | None = None
    memory_bytes: int = 1 << 30
    """Of DuckDB, and again of the result."""
    rows_max: int | None = None
    """Rows of the result; the rest is cut off."""
    threads: int | None = None
    """None takes one for each core."""


@dataclass(frozen=True, slots=True)
class DecodeRules:
    """The rules by which values are decoded."""

    strict: bool = True
    """Fail at a value that does not decode; else it is null."""
    unread: Unread = Unread.FAIL
    """The action for unreadable batches."""
    value_schemas: Mapping[str, BareSchema] = field(default_factory=dict)
    """By topic, the schema of all its values, which carry no id: for `bare.topic`."""


class Query(Closeable):
    """One query: parsed at once, run by `batches`."""

    def __init__(
        self,
        topics: TopicReader,
        text: str,
        limits: QueryLimits | None = None,
        rules: DecodeRules | None = None,
    ) -> None:
        """Parse the statement; nothing of a topic is read yet but its name.

        Raises:
            InvalidRequest: not one statement that reads. InvalidConfig: DuckDB is not installed.
        """
        self._topics = topics
        self._database: Future[DuckDBPyConnection] | None = topics.databases.begin()
        try:
            self._names = set(topics.names())
            self._statement = parse_statement(text, self._names)
        except BaseException:
            self.close()
            raise
        self._limits = QueryLimits() if limits is None else limits
        self._rules = DecodeRules() if rules is None else rules
        explains_only = self._statement.explains and not self._statement.analyzes
        self._scans = QueryScans(plan_only=explains_only)
        self._before = topics.counted()
        self._connection: DuckDBPyConnection | None = None
        self._timed_out = False
        self.is_truncated = False
        """True if the result has more rows than the limit."""

    def close(self) -> None:
        """Free DuckDB's memory."""
        self._connection = None
        database, self._database = self._database, None
        if database is not None:
            self._topics.databases.end(database)

    def cancel(self) -> None:
        """Stop the query, from any thread; `batches` then raises."""
        self._scans.stopped.set()
        import duckdb  # noqa: PLC0415 - an extra, which only queries need

        connection = self._connection
        if connection is not None:
            with suppress(duckdb.ConnectionException):  # it was closed meanwhile
                connection.interrupt()

    def spent(self) -> RequestCount:
        """Return the requests to the store and the bytes since the query began."""
        return self._topics.counted() - self._before

    @property
    def scans(self) -> QueryScans:
        """Return the scans of the tables, for their counts."""
        return self._scans

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the result; the first batch has the schema, and may have no rows.

        Raises:
            InvalidRequest: the query is wrong, or exceeds a limit; the message names the place.
            UnknownTopicOrPartition: no such topic.
            SparklogError: records cannot be read.
        """
        timer = None
        if self._limits.timeout_s is not None:
            timer = Timer(self._limits.timeout_s, self._time_out)
            timer.daemon = True
            timer.start()
        try:
            yield from self._limited()
        finally:
            if timer is not None:
                timer.cancel()
            self.close()

    def _limited(self) -> Iterator[pa.RecordBatch]:
        left = self._limits.rows_max
        for batch in self._results():
            if left is not None and batch.num_rows > left:
                self.is_truncated = True
                yield batch.slice(0, left)
                return
            yield batch
            left = None if left is None else left - batch.num_rows

    def _results(self) -> Iterator[pa.RecordBatch]:
        with self._converting():
            connection = self._opened()
            if self._scans.stopped.is_set():  # DuckDB forgets an interrupt before a statement
                raise RuntimeError("stopped")
            if self._statement.explains:
                yield self._explained(connection)
                return
            yield from self._answer(connection)

    @contextmanager
    def _converting(self) -> Iterator[None]:
        """Raise DuckDB's errors as `batches` raises them."""
        import duckdb  # noqa: PLC0415 - an extra, which only queries need

        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError, RuntimeError) as error:
            raise self._converted(self._located(error)) from error

    def _opened(self) -> DuckDBPyConnection:
        """Return the database with the tables of the statement."""
        assert self._database is not None, "the query runs once"
        self._connection = connection = self._database.result()
        connection.execute(f"SET memory_limit = '{self._limits.memory_bytes}B'")
        if self._limits.threads is not None:
            connection.execute(f"SET threads = {self._limits.threads}")
        self._create_tables(connection)
        connection.execute("SET lock_configuration = true")
        return connection

    def _answer(self, connection: DuckDBPyConnection) -> Iterator[pa.RecordBatch]:
        most = self._limits.rows_max
        rows = RESULT_ROWS if most is None else min(RESULT_ROWS, most + 1)
        reader = connection.sql(self._statement.sql).to_arrow_reader(rows)
        yield pa.RecordBatch.from_pylist([], schema=reader.schema)
        yield from reader

    def _located(self, error: Exception) -> Exception:
        """Return the error with its place in the statement, which DuckDB leaves out at first."""
        import duckdb  # noqa: PLC0415 - as above

        if self._connection is not None and isinstance(
            error, (duckdb.BinderException, duckdb.CatalogException)
        ):
            try:
                self._connection.execute(self._statement.sql).fetchall()
            except duckdb.Error as located:
                return located
        return error

    def _explained(self, connection: DuckDBPyConnection) -> pa.RecordBatch:
        verb = "EXPLAIN ANALYZE" if self._statement.analyzes else "EXPLAIN"
        plan = connection.execute(f"{verb} {self._statement.sql}").fetchall()
        if self._scans.plan_only:
            connection.execute(self._statement.sql).fetchall()
        spent = self.spent() if self._statement.analyzes else None
        return explained("\n".join(row[1] for row in plan), self._scans.scans, spent)

    def _create_tables(self, connection: DuckDBPyConnection) -> None:
        import duckdb  # noqa: PLC0415 - as above

        tables = list(self._statement.tables)
        if self._statement.shows_all:
            known = {table.name for table in tables}
            tables += [TableName(n, n) for n in sorted(self._names - known)]
        for table in tables:
            source = TopicTable(
                table.topic, table.moment, self._topics, self._scans, table.name, self._rules.unread
            )
            connection.register(table.name, self._scanned(source))
            for schema in sorted(table.formats):
                view = self._view(connection, schema, table, source)
                connection.execute(f"CREATE VIEW {schema}.{quoted(table.name)} AS {view}")
        for statement in duckdb.extract_statements(self._statement.sql):
            if statement.type is not duckdb.StatementType.SELECT:
                raise InvalidRequest(
                    f"queries only read. statement={str(statement.type).rpartition('.')[2]}"
                )

    def _scanned(self, table: TopicTable) -> ds.Dataset:
        """Return the dataset that the query scans for a table."""
        return table

    def _view(
        self, connection: DuckDBPyConnection, schema: str, table: TableName, source: TopicTable
    ) -> str:
        strict = self._rules.strict
        if schema == "text":
            return text_view(table.name, strict=strict)
        if schema == "latest":
            return latest_view(table.name)
        if schema in {"registry", "bare"}:
            return self._decoded_view(connection, schema, table, source)
        values = self._sample(source, "value").column("value")
        return json_view(table.name, fields_of(connection, values), strict=strict)

    def _decoded_view(
        self, connection: DuckDBPyConnection, schema: str, table: TableName, source: TopicTable
    ) -> str:
        columns = self._decoded_columns(schema, table.topic, source)
        from sparklog.sql.registry_view import registry_view  # noqa: PLC0415 - of an extra

        decoded = f"{table.name} by {schema}"  # no topic has such a name
        connection.register(decoded, self._scanned(source.decoded(columns)))
        return registry_view(decoded, columns)

    def _decoded_columns(self, schema: str, topic: str, source: TopicTable) -> DecodedColumns:
        strict = self._rules.strict
        if schema == "registry":
            schemas = self._topics.schemas()
            from sparklog.sql.registry_view import registry_columns  # noqa: PLC0415 - as above

            sample = self._sample(source, "value", "headers")
            return registry_columns(topic, sample, schemas, strict=strict)
        given = self._rules.value_schemas.get(topic)
        if given is None:
            raise InvalidRequest(
                "bare.TOPIC needs the schema of the values: --value-schema TOPIC=FILE, or in "
                f"Python value_schemas of DecodeRules. topic={topic}"
            )
        from sparklog.sql.registry_view import bare_columns  # noqa: PLC0415 - as above

        return bare_columns(topic, given, strict=strict)

    def _sample(self, source: TopicTable, *columns: str) -> pa.RecordBatch:
        """Return columns of records from both ends of some partitions."""
        found: list[pa.RecordBatch] = []
        states = source.states()
        for place in sorted(states)[:PARTITIONS_SAMPLED]:
            state = states[place]
            start, end = state.log_start_offset, state.readable_end
            middle = min(end, start + SAMPLE_ROWS)
            for span in ((start, middle), (max(middle, end - SAMPLE_ROWS), end)):
                plan = plan_partition(place, state, Unknown(), span)
                scan = PartitionScan(
                    plan,
                    Unknown(),
                    columns,
                    self._topics,
                    partial(_same, state),
                    self._rules.unread,
                )
                found += [table_batch(rows, place, columns) for rows in scan.batches()]
        empty = pa.schema([SCHEMA.field(name) for name in columns]).empty_table()
        table = pa.Table.from_batches(found, empty.schema).combine_chunks()
        return (
            table.to_batches()[0]
            if table.num_rows
            else pa.RecordBatch.from_pylist([], empty.schema)
        )

    def _time_out(self) -> None:
        self._timed_out = True
        self.cancel()

    def _converted(self, error: Exception) -> Exception:
        """Return the error to raise for one of DuckDB's."""
        if self._timed_out:
            return InvalidRequest(
                "the query was stopped at its time limit; narrow it with bounds on offset, "
                f"partition, timestamp or key, or allow more. timeout_s={self._limits.timeout_s:g}"
            )
        if self._scans.stopped.is_set():
            return InvalidRequest("the query was cancelled")
        if self._scans.failure is not None:
            return self._scans.failure
        text = str(error)
        if text.startswith("Out of Memory"):
            return InvalidRequest(
                "the query needs more memory than its limit; narrow it, or allow more. "
                f"memory_bytes={self._limits.memory_bytes}"
            )
        missing = _NO_TABLE.search(text)
        if missing is not None:
            hint = unknown_table(missing[1].strip('"'), self._names)
            place = _PLACE.search(text)
            return UnknownTopicOrPartition(
                f"no such topic; {hint} topic={missing[1]}{_spelled(place)}"
            )
        place = _PLACE.search(text)
        return InvalidRequest(_one_line(text[: place.start()] if place else text) + _spelled(place))


def query_table(
    topics: TopicReader,
    statement: str,
    limits: QueryLimits | None = None,
    rules: DecodeRules | None = None,
) -> pa.Table:
    """Return the result of a statement over `topics`. Raises as `Query.batches`.

    The result may have as many bytes as DuckDB's memory, and is an error beyond them.
    """
    allowed = QueryLimits() if limits is None else limits
    with Query(topics, statement, allowed, rules) as running:
        batches: list[pa.RecordBatch] = []
        size = 0
        for batch in running.batches():
            batches.append(batch)
            size += batch.nbytes
            if size > allowed.memory_bytes:
                running.cancel()
                raise InvalidRequest(
                    "the result is larger than the memory limit; add a LIMIT, or allow more. "
                    f"memory_bytes={allowed.memory_bytes}"
                )
        return pa.Table.from_batches(batches)


def _same(state: ReadablePartition) -> ReadablePartition:
    return state


def _spelled(place: re.Match[str] | None) -> str:
    """Return the place of an error: its line and column, and the words there."""
    if place is None:
        return ""
    number, content, indent, mark = place.groups()
    column = len(indent) - len(f"LINE {number}: ")
    near = content[column : column + len(mark)]
    return f" line={number} column={column + 1} near={near!r}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
