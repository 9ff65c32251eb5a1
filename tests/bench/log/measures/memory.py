"""Memory of one writing and one reading task, for a partition and for one ten times its size.

Each run has a Spark session of its own, hence fresh workers, and everything goes through a single
task: one source file, one partition.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from pyspark.sql import SparkSession

from tests.bench.common.plan import RecordShape
from tests.bench.common.process_memory import watched_workers
from tests.bench.common.results import Measure, Results
from tests.bench.common.source_rows import SourceRows
from tests.bench.common.targets import CostAtMost
from tests.bench.log.plan import LogPlan
from tests.bench.log.system import System

TARGETS = (CostAtMost(512, "MiB"),)
TOPIC = "memory"
MIB = 1 << 20
NewSession = Callable[[], AbstractContextManager[SparkSession]]


def measure_memory(
    new_session: NewSession, system: System, plan: LogPlan, folder: Path, results: Results
) -> None:
    """Write and read a partition of each size, watching the workers."""
    for shape in (plan.small, plan.large):
        for rows in (shape.records // 10, shape.records):
            one = RecordShape(shape.label, rows, shape.value_bytes)
            _measure_shape(new_session, system, one, folder, results)


def _measure_shape(
    new_session: NewSession, system: System, shape: RecordShape, folder: Path, results: Results
) -> None:
    label = f"{shape.records:,} x {shape.label}"
    with new_session() as spark:
        rows = SourceRows(shape, folder / "memory", 1).read(spark).coalesce(1)
        system.create(TOPIC, 1)
        with watched_workers() as peaks:
            system.write(rows, TOPIC)
        _add(results, f"task writing {label}", system, peaks.highest)
    with new_session() as spark:
        with watched_workers() as peaks:
            found = system.read(spark, TOPIC).selectExpr("sum(length(value))").first()
        _add(results, f"task reading {label}", system, peaks.highest)
        expected = shape.records * shape.value_bytes
        results.check_equal(f"one task reads it all, {label}", found and found[0], expected)
    system.drop(TOPIC)


def _add(results: Results, name: str, system: System, peak_bytes: int) -> None:
    results.check(f"{name}: a worker was seen", peak_bytes > 0)
    results.add(Measure(name, "MiB", TARGETS, "memory"), system.name, peak_bytes / MIB)
