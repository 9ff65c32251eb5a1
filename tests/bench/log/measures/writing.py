"""`df.write`: rows a second into a new topic with one replica."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark.sql import SparkSession

from tests.bench.common.plan import RecordShape
from tests.bench.common.results import Measure, Results
from tests.bench.common.rounds import timed, turns
from tests.bench.common.source_rows import SourceRows, digest
from tests.bench.common.targets import RateTimesPeer
from tests.bench.log.plan import LogPlan
from tests.bench.log.system import System

TARGETS = (RateTimesPeer("kafka", 6),)


def measure_writing(
    spark: SparkSession,
    systems: Sequence[System],
    sources: dict[RecordShape, SourceRows],
    plan: LogPlan,
    results: Results,
) -> None:
    """Write each shape once per round and system; the last copies are read back and compared."""
    for shape, source in sources.items():
        measure = Measure(f"write {shape.label}", "rows/s", TARGETS, "df.write")
        rows = source.read(spark)
        # A whole round warms up: the JVM needs that long to compile the peer's producer, too.
        for number, system in turns(systems, plan.rounds + 1):
            topic = f"written-{shape.value_bytes}-{number}"
            system.create(topic, plan.partitions)
            seconds, _ = timed(partial(system.write, rows, topic))
            if number > 1:
                results.add(measure, system.name, shape.records / seconds, number - 1)
            if number > plan.rounds:
                results.check_equal(
                    f"{system.name} holds what was written, {shape.label}",
                    digest(system.read(spark, topic)),
                    source.digest(spark),
                )
            system.drop(topic)
