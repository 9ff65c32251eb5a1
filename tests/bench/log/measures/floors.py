"""What writing costs before a system does anything: Spark reads the rows and throws them away.

Once inside the JVM (Spark's `noop` sink), and once in a Python sink that takes Arrow batches, which
is the door every Python data source goes through. No system can be faster than its floor here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tests.bench.log.plan import Plan, RecordShape
from tests.bench.log.results import Measure, Results
from tests.bench.log.rounds import timed, turns
from tests.bench.log.source_rows import SourceRows

GROUP = "df.write"


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


Floor = tuple[str, Callable[[DataFrame], None]]
FLOORS: Sequence[Floor] = (
    ("noop sink", lambda rows: _drop(rows, "noop")),
    ("empty Python sink", lambda rows: _drop(rows, "dropping")),
)


def measure_floors(
    spark: SparkSession, sources: dict[RecordShape, SourceRows], plan: Plan, results: Results
) -> None:
    """Drop the rows of each shape once per round and kind of sink."""
    spark.dataSource.register(DroppingSink)
    for shape, source in sources.items():
        rows = source.read(spark)
        for number, (name, floor) in turns(FLOORS, plan.rounds + 1):
            seconds, _ = timed(partial(floor, rows))
            if number > 1:  # the first round warms up
                measure = Measure(f"floor: {name}, {shape.label}", "rows/s", (), GROUP)
                results.add(measure, "spark", shape.rows / seconds, number - 1)


def _drop(rows: DataFrame, sink: str) -> None:
    rows.write.format(sink).mode("append").save()
