"""sparklog's log beside Kafka's Spark connector and Parquet: `make bench-log`.

Every figure is a median of interleaved rounds; every raw figure is kept. Ends non-zero when
something crashed or a check of the results failed; a missed target is a result, not an error.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tests.bench.log.kafka_system import BROKER_SETTINGS, KafkaSystem
from tests.bench.log.machine import hardware, versions
from tests.bench.log.measures.disk import measure_disk
from tests.bench.log.measures.floors import measure_read_floors, measure_write_floors
from tests.bench.log.measures.latency import measure_latency
from tests.bench.log.measures.lookups import measure_lookups
from tests.bench.log.measures.memory import measure_memory
from tests.bench.log.measures.reading import measure_reading
from tests.bench.log.measures.writing import measure_writing
from tests.bench.log.parquet_system import ParquetSystem
from tests.bench.log.plan import FULL, QUICK, SEED, Plan
from tests.bench.log.publish import publish
from tests.bench.log.results import Results, progress
from tests.bench.log.session import spark_session
from tests.bench.log.source_rows import SourceRows
from tests.bench.log.sparklog_system import SparklogSystem
from tests.bench.log.system import System
from tests.peers.kafka import KafkaCluster

KINDS = ("write", "read", "latency", "disk", "lookups", "memory")
SYSTEMS = ("sparklog", "kafka", "parquet")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and write JSON, Markdown and a picture."""
    asked = parse(arguments)
    plan = QUICK if asked.quick else FULL
    if asked.rounds is not None:
        plan = replace(plan, rounds=asked.rounds)
    results = Results()
    started = datetime.now(UTC)
    with tempfile.TemporaryDirectory(prefix="bench-log-", dir=asked.work) as work:
        facts = {
            "title": "Log benchmark",
            "started": started.isoformat(timespec="seconds"),
            "plan": asdict(plan),
            "seed": SEED,
            "hardware": hardware(Path(work)),
            "versions": versions(),
        }
        run(plan, asked.only, asked.systems, Path(work), results)
    publish(results, facts, asked.out, f"log-{plan.name}-{started:%Y%m%dT%H%M%SZ}")
    for check in results.failed_checks:
        progress(f"check failed: {check.name}: {check.detail}")
    return 1 if results.failed_checks else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.log", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: minutes, rough figures")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, help="these measures")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS)
    parser.add_argument("--rounds", type=int, help="rounds of writes and reads")
    parser.add_argument("--out", type=Path, default=Path("bench-results"), help="where results go")
    parser.add_argument("--work", type=Path, help="where data go: about 10 GB (default: temporary)")
    return parser.parse_args(arguments)


def run(
    plan: Plan, kinds: Sequence[str], names: Sequence[str], work: Path, results: Results
) -> None:
    """Start the systems and take every measure that was asked for."""
    new_session = partial(spark_session, work)
    ours = SparklogSystem(work / "sparklog") if "sparklog" in names else None
    with ExitStack() as stack:
        systems: list[System] = [ours] if ours is not None else []
        peer: KafkaSystem | None = None
        if "kafka" in names and {"write", "read", "latency", "disk"} & set(kinds):
            progress("starting Kafka")
            cluster = stack.enter_context(KafkaCluster(1, BROKER_SETTINGS, parent_folder=work))
            peer = KafkaSystem(cluster)
            stack.callback(peer.close)
            systems.append(peer)
        live = [system for system in (ours, peer) if system is not None]
        if "parquet" in names:
            systems.append(ParquetSystem(work / "parquet"))
        sources = {s: SourceRows(s, work, plan.partitions) for s in (plan.small, plan.large)}
        if "write" in kinds:
            with new_session() as spark:
                measure_write_floors(spark, sources, plan, results)
                measure_writing(spark, systems, sources, plan, results)
        if "read" in kinds:
            with new_session() as spark:
                measure_read_floors(spark, plan.small, plan, results)
                measure_reading(spark, systems, sources[plan.small], plan, work, results)
        if "latency" in kinds:
            with new_session() as spark:
                measure_latency(spark, [(one, one) for one in live], plan, work, results)
        if "disk" in kinds:
            with new_session() as spark:
                measure_disk(spark, [(one, one) for one in live], work, results)
    if ours is not None and "lookups" in kinds:
        measure_lookups(plan, work, results)
    if ours is not None and "memory" in kinds:
        measure_memory(new_session, ours, plan, work, results)


if __name__ == "__main__":
    sys.exit(main())
