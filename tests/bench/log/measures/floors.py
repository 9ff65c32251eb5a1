"""What Spark costs before a system does anything: rows thrown away, and rows made from nothing.

Writing: the rows go to Spark's `noop` sink inside the JVM, and to a Python sink that drops Arrow
batches. Reading: a Python source passes one ready batch on, again and again. The Python sink and
source are the doors every Python data source goes through. They come last, when the JVM has
compiled what the systems use, too: measured first they would seem narrower than they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tests.bench.common.plan import RecordShape
from tests.bench.common.results import Measure, Results
from tests.bench.common.rounds import timed, turns
from tests.bench.common.source_rows import SourceRows
from tests.bench.log.plan import KEY_BYTES, LogPlan

BATCH_ROWS = 32_768
COLUMNS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, "
    "timestamp TIMESTAMP, timestampType INT"
)


class Dropped(WriterCommitMessage):
    """A task has dropped its rows."""


class DroppingWriter(DataSourceArrowWriter):
    """Takes rows and keeps none."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return Dropped()


class DroppingSink(DataSource):
    """A Python sink that does nothing."""

    @classmethod
    def name(cls) -> str:
        return "dropping"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return DroppingWriter()


class PassingReader(DataSourceReader):
    """Yields one batch again and again; `rows` in each of `partitions`."""

    def __init__(self, columns: Sequence[str], rows: int, partitions: int, value: int) -> None:
        self._columns = tuple(columns)
        self._rows = rows
        self._partitions = partitions
        self._value_bytes = value

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = ready_batch(self._value_bytes).select(list(self._columns))
        for at in range(0, self._rows, BATCH_ROWS):
            yield batch.slice(0, min(BATCH_ROWS, self._rows - at))


class PassingSource(DataSource):
    """A Python source of rows that cost nothing to make."""

    @classmethod
    def name(cls) -> str:
        return "passing"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        rows, partitions, value = (int(self.options[n]) for n in ("rows", "partitions", "value"))
        return PassingReader(schema.names, rows // partitions, partitions, value)


def ready_batch(value_bytes: int) -> pa.RecordBatch:
    """Return a batch with the columns of a Kafka read."""
    count = BATCH_ROWS

    def repeated(value: object, kind: pa.DataType) -> pa.Array:
        return pa.repeat(pa.scalar(value, kind), count)

    return pa.RecordBatch.from_pydict(
        {
            "key": repeated(bytes(KEY_BYTES), pa.binary()),
            "value": repeated(bytes(value_bytes), pa.binary()),
            "topic": repeated("topic", pa.string()),
            "partition": repeated(0, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": repeated(0, pa.timestamp("us", tz="UTC")),
            "timestampType": repeated(0, pa.int32()),
        }
    )


def measure_write_floors(
    spark: SparkSession, sources: dict[RecordShape, SourceRows], plan: LogPlan, results: Results
) -> None:
    """Drop the rows of each shape once per round and kind of sink."""
    spark.dataSource.register(DroppingSink)
    for shape, source in sources.items():
        rows = source.read(spark)
        floors = [
            (f"floor: {title}, {shape.label}", partial(_drop, rows, sink))
            for title, sink in (("noop sink", "noop"), ("empty Python sink", "dropping"))
        ]
        _measure(floors, shape.records, plan.rounds, "df.write", results)


def measure_read_floors(
    spark: SparkSession, shape: RecordShape, plan: LogPlan, results: Results
) -> None:
    """Take rows from the passing source as the queries of `reading` do."""
    spark.dataSource.register(PassingSource)
    options = {"rows": shape.records, "partitions": plan.partitions, "value": shape.value_bytes}

    def load(columns: str) -> DataFrame:
        return spark.read.format("passing").schema(columns).options(**options).load()

    floors = [
        ("floor: Python source, count() of offsets", lambda: load("offset BIGINT").count()),
        ("floor: Python source, one column", lambda: _sum(load("value BINARY"))),
        ("floor: Python source, sum(length(value))", lambda: _sum(load(COLUMNS))),
        ("floor: Python source, all columns", lambda: _drop(load(COLUMNS), "noop")),
    ]
    _measure(floors, shape.records, plan.rounds, "batch read", results)


def _measure(
    floors: Sequence[tuple[str, Callable[[], object]]],
    rows: int,
    rounds: int,
    group: str,
    results: Results,
) -> None:
    for number, (name, floor) in turns(floors, rounds + 1):
        seconds, _ = timed(floor)
        if number > 1:  # the first round warms up
            results.add(Measure(name, "rows/s", (), group), "spark", rows / seconds, number - 1)


def _drop(rows: DataFrame, sink: str) -> None:
    rows.write.format(sink).mode("append").save()


def _sum(rows: DataFrame) -> None:
    rows.selectExpr("sum(length(value))").collect()
