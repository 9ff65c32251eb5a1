"""Batch reads and a stream over everything there is: rows a second out of one topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.functions import count, lit

from tests.bench.common.results import Measure, Results
from tests.bench.common.rounds import timed, turns
from tests.bench.common.source_rows import SourceRows
from tests.bench.common.targets import RateTimesPeer, TimeWithinPeer
from tests.bench.log.plan import LogPlan
from tests.bench.log.system import OffsetSpan, System

TOPIC = "read"
TARGETS = (RateTimesPeer("kafka", 5), TimeWithinPeer("parquet", 1.5))
Query = Callable[[SparkSession, System], int]


@dataclass(frozen=True)
class Reading:
    """One query: what it is called, over how many rows it goes, and what it must answer."""

    measure: Measure
    rows: int
    query: Query
    answer: int


def measure_reading(
    spark: SparkSession,
    systems: Sequence[System],
    source: SourceRows,
    plan: LogPlan,
    folder: Path,
    results: Results,
) -> None:
    """Load one topic into every system, then ask each query once per round and system."""
    for system in systems:
        system.create(TOPIC, plan.partitions)
        # As many tasks as partitions, so that Parquet's files hold the same ranges of offsets.
        system.write(source.read(spark).repartition(plan.partitions), TOPIC)
    for reading in readings(source, plan, folder):
        for number, system in turns(systems, plan.rounds + 1):
            seconds, answer = timed(partial(reading.query, spark, system))
            if number > 1:  # the first round warms up
                rate = reading.rows / seconds
                results.add(reading.measure, system.name, rate, number - 1)
            name = f"{reading.measure.name}: {system.name} answers right, round {number - 1}"
            results.check_equal(name, answer, reading.answer)
    for system in systems:
        system.drop(TOPIC)


def readings(source: SourceRows, plan: LogPlan, folder: Path) -> list[Reading]:
    """Return every query, with Spark doing the same in every system."""
    rows, value_bytes = source.shape.records, source.shape.value_bytes
    # Keys spread the rows evenly but not exactly, so the span stays away from the ends.
    each = rows // plan.partitions
    span = OffsetSpan(each * 2 // 10, each * 7 // 10, plan.partitions)

    def reading(name: str, count: int, query: Query, answer: int) -> Reading:
        return Reading(Measure(name, "rows/s", TARGETS, "batch read"), count, query, answer)

    return [
        reading("count()", rows, _count, rows),
        reading("count(), only offsets asked for", rows, _count_offsets, rows),
        reading("sum(length(value))", rows, _sum, rows * value_bytes),
        reading("one column of four", rows, _one_column, rows * value_bytes),
        reading("all columns", rows, _all_columns, rows),
        reading(
            "offset range by filter", rows, partial(_filtered, span=span), span.rows * value_bytes
        ),
        reading(
            "offset range by options",
            span.rows,
            partial(_ranged, span=span),
            span.rows * value_bytes,
        ),
        reading(
            "count() of an offset range", span.rows, partial(_range_count, span=span), span.rows
        ),
        Reading(
            Measure("readStream, AvailableNow", "rows/s", TARGETS, "stream read"),
            rows,
            partial(_stream, folder=folder),
            rows,
        ),
    ]


def _count(spark: SparkSession, system: System) -> int:
    return system.read(spark, TOPIC).count()


def _count_offsets(spark: SparkSession, system: System) -> int:
    return system.read(spark, TOPIC, column="offset").count()


def _sum(spark: SparkSession, system: System) -> int:
    return _value_bytes(system.read(spark, TOPIC))


def _one_column(spark: SparkSession, system: System) -> int:
    return _value_bytes(system.read(spark, TOPIC, column="value").select("value"))


def _all_columns(spark: SparkSession, system: System) -> int:
    seen = Observation()
    rows = system.read(spark, TOPIC).observe(seen, count(lit(1)).alias("rows"))
    rows.write.format("noop").mode("append").save()
    return int(seen.get["rows"])


def _filtered(spark: SparkSession, system: System, span: OffsetSpan) -> int:
    return _value_bytes(system.read(spark, TOPIC).where(span.where))


def _ranged(spark: SparkSession, system: System, span: OffsetSpan) -> int:
    return _value_bytes(system.read(spark, TOPIC, span=span))


def _range_count(spark: SparkSession, system: System, span: OffsetSpan) -> int:
    return system.read(spark, TOPIC, column="offset", span=span).count()


def _value_bytes(rows: DataFrame) -> int:
    found = rows.selectExpr("sum(length(value))").first()
    assert found is not None, "an aggregate has one row"
    return int(found[0])


def _stream(spark: SparkSession, system: System, folder: Path) -> int:
    return followed(system.stream(spark, TOPIC), folder)


def followed(stream: DataFrame, folder: Path) -> int:
    """Follow a stream to its end; returns the rows that Spark says it took in."""
    checkpoint = mkdtemp(dir=folder, prefix="checkpoint-")
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", Path(checkpoint).as_uri())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sum(int(progress.numInputRows) for progress in query.recentProgress)
