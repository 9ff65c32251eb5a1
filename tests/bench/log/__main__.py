"""sparklog's log beside Kafka's Spark connector and Parquet: `make bench-log`.

Every figure is a median of interleaved rounds; every raw figure is kept. Ends non-zero when
something crashed or a check of the results failed; a missed target is a result, not an error.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial

from pyspark.sql import SparkSession

from tests.bench.common.command import Benchmark, Run
from tests.bench.common.results import progress
from tests.bench.common.session import spark_session
from tests.bench.common.source_rows import SourceRows
from tests.bench.log.kafka_system import BROKER_SETTINGS, KafkaSystem
from tests.bench.log.measures.disk import measure_disk
from tests.bench.log.measures.floors import measure_read_floors, measure_write_floors
from tests.bench.log.measures.latency import measure_latency
from tests.bench.log.measures.lookups import measure_lookups
from tests.bench.log.measures.memory import measure_memory
from tests.bench.log.measures.reading import measure_reading
from tests.bench.log.measures.writing import measure_writing
from tests.bench.log.parquet_system import ParquetSystem
from tests.bench.log.plan import FULL, QUICK, LogPlan
from tests.bench.log.sparklog_system import SparklogSystem
from tests.bench.log.system import System
from tests.peers.kafka import KafkaCluster


def measure(run: Run[LogPlan]) -> None:
    """Start the systems and take every measure that was asked for."""
    plan, work, results = run.plan, run.work, run.results
    new_session = partial(spark_session, work, "bench-log")
    ours = SparklogSystem(work / "sparklog") if "sparklog" in run.systems else None
    with ExitStack() as stack:
        systems: list[System] = [ours] if ours is not None else []
        peer: KafkaSystem | None = None
        if "kafka" in run.systems and run.wants("write", "read", "latency", "disk"):
            progress("starting Kafka")
            cluster = stack.enter_context(KafkaCluster(1, BROKER_SETTINGS, parent_folder=work))
            peer = KafkaSystem(cluster)
            stack.callback(peer.close)
            systems.append(peer)
        live = [system for system in (ours, peer) if system is not None]
        if "parquet" in run.systems:
            systems.append(ParquetSystem(work / "parquet"))
        sources = {s: SourceRows(s, work, plan.partitions) for s in (plan.small, plan.large)}

        def write(spark: SparkSession) -> None:
            measure_writing(spark, systems, sources, plan, results)
            measure_write_floors(spark, sources, plan, work, results)

        def read(spark: SparkSession) -> None:
            measure_reading(spark, systems, sources[plan.small], plan, work, results)
            measure_read_floors(spark, plan.small, plan, work, results)

        def latency(spark: SparkSession) -> None:
            measure_latency(spark, [(one, one) for one in live], plan, work, results)

        def disk(spark: SparkSession) -> None:
            measure_disk(spark, [(one, one) for one in live], work, results)

        bodies = {"write": write, "read": read, "latency": latency, "disk": disk}
        for kind, body in bodies.items():
            if run.wants(kind):
                with new_session() as spark:
                    run.take(kind, body, spark)
    if ours is not None:
        run.take("lookups", measure_lookups, plan, work, results)
        run.take("memory", measure_memory, new_session, ours, plan, work, results)


BENCHMARK = Benchmark(
    name="log",
    about=__doc__,
    full=FULL,
    quick=QUICK,
    kinds=("write", "read", "latency", "disk", "lookups", "memory"),
    systems=("sparklog", "kafka", "parquet"),
    disk="about 10 GB",
    measure=measure,
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
