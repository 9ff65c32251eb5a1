"""Cost of Spark alone, without a system: rows thrown away, and rows made from nothing.

Writing: the rows go to three sinks. One is Spark's `noop` sink inside the JVM, one a Python sink
that drops them. The third writes them to a file as Spark passes them. Reading, and following: a
Python source passes one ready batch on, again and again. They come last, when the JVM has compiled
the code of the systems, too. Measured first they would seem slower than they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from pyspark.sql import DataFrame, SparkSession

from tests.bench.common.plan import RecordShape
from tests.bench.common.results import Measure, Results
from tests.bench.common.rounds import timed, turns
from tests.bench.common.source_rows import SourceRows
from tests.bench.log.measures.bare_ends import COLUMNS, DroppingSink, KeepingSink, PassingSource
from tests.bench.log.measures.reading import followed
from tests.bench.log.plan import LogPlan


def measure_write_floors(
    spark: SparkSession,
    sources: dict[RecordShape, SourceRows],
    plan: LogPlan,
    folder: Path,
    results: Results,
) -> None:
    """Drop, or only keep, the rows of each shape once per round and kind of sink."""
    spark.dataSource.register(DroppingSink)
    spark.dataSource.register(KeepingSink)
    for shape, source in sources.items():
        rows = source.read(spark)
        floors = [
            (f"floor: noop sink, {shape.label}", partial(_drop, rows, "noop")),
            (f"floor: empty Python sink, {shape.label}", partial(_drop, rows, "dropping")),
            (f"floor: Python sink to plain files, {shape.label}", partial(_keep, rows, folder)),
        ]
        _measure(floors, shape.records, plan.rounds, "df.write", results)
        for kept in folder.glob("kept-*"):
            rmtree(kept)


def measure_read_floors(
    spark: SparkSession, shape: RecordShape, plan: LogPlan, folder: Path, results: Results
) -> None:
    """Take rows from the passing source as the queries of `reading` do."""
    spark.dataSource.register(PassingSource)
    options = {"rows": shape.records, "partitions": plan.partitions, "value": shape.value_bytes}

    def follow() -> None:
        stream = spark.readStream.format("passing").options(**options).load()
        followed(stream, folder)

    def load(columns: str) -> DataFrame:
        return spark.read.format("passing").schema(columns).options(**options).load()

    floors = [
        ("floor: Python source, count() of offsets", lambda: load("offset BIGINT").count()),
        ("floor: Python source, one column", lambda: _sum(load("value BINARY"))),
        ("floor: Python source, sum(length(value))", lambda: _sum(load(COLUMNS))),
        ("floor: Python source, all columns", lambda: _drop(load(COLUMNS), "noop")),
    ]
    _measure(floors, shape.records, plan.rounds, "batch read", results)
    stream = [("floor: Python source, readStream", follow)]
    _measure(stream, shape.records, plan.rounds, "stream read", results)


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


def _keep(rows: DataFrame, folder: Path) -> None:
    kept = mkdtemp(dir=folder, prefix="kept-")
    rows.write.format("keeping").option("path", kept).mode("append").save()


def _sum(rows: DataFrame) -> None:
    rows.selectExpr("sum(length(value))").collect()
