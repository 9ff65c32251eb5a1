"""sparklog's brokers beside Apache Kafka's, on this machine: `make bench-broker`.

Both clusters have three brokers and run all the time, measures take turns. Every raw figure is
kept. Ends non-zero when something crashed or a check of the results failed; a missed target is a
result, not an error.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from tests.bench.broker.kafka_side import SETTINGS, KafkaSide
from tests.bench.broker.measures.bill import CONFIGS, measure_bill
from tests.bench.broker.measures.consuming import measure_consuming
from tests.bench.broker.measures.failover import measure_failover
from tests.bench.broker.measures.idle import measure_idle
from tests.bench.broker.measures.latency import measure_latency
from tests.bench.broker.measures.producing import measure_producing
from tests.bench.broker.measures.slow_store import measure_slow_store
from tests.bench.broker.plan import FULL, QUICK, Plan
from tests.bench.broker.side import Side
from tests.bench.broker.sparklog_side import SparklogSide
from tests.bench.log.machine import hardware, versions
from tests.bench.log.publish import publish
from tests.bench.log.results import Results, progress
from tests.peers.kafka import KafkaCluster
from tests.peers.sparklog import SparklogCluster

KINDS = ("produce", "consume", "latency", "failover", "slow-store", "bill", "idle")
SYSTEMS = ("sparklog", "kafka")
BROKERS = 3
SLOW_LAUNCHER = (sys.executable, "-m", "tests.bench.broker.slow_broker")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and write JSON, Markdown and a picture."""
    asked = parse(arguments)
    plan = QUICK if asked.quick else FULL
    if asked.rounds is not None:
        plan = replace(plan, rounds=asked.rounds)
    results = Results()
    started = datetime.now(UTC)
    with tempfile.TemporaryDirectory(prefix="bench-broker-", dir=asked.work) as work:
        facts: dict[str, Any] = {
            "title": "Broker benchmark",
            "started": started.isoformat(timespec="seconds"),
            "plan": asdict(plan),
            "hardware": hardware(Path(work)),
            "versions": versions(),
        }
        try:
            run(plan, asked.only, asked.systems, Path(work), results)
        finally:
            name = f"broker-{plan.name}-{started:%Y%m%dT%H%M%SZ}"
            publish(results, facts, asked.out, name)
    for check in results.failed_checks:
        progress(f"check failed: {check.name}: {check.detail}")
    return 1 if results.failed_checks else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.broker", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes: minutes, rough figures")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, help="these measures")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS)
    parser.add_argument("--rounds", type=int, help="rounds of each measure")
    parser.add_argument("--out", type=Path, default=Path("bench-results"), help="where results go")
    parser.add_argument("--work", type=Path, help="where data go: about 20 GB (default: temporary)")
    return parser.parse_args(arguments)


def run(
    plan: Plan, kinds: Sequence[str], names: Sequence[str], work: Path, results: Results
) -> None:
    """Start the clusters and take every measure that was asked for."""

    def take(kind: str, measure: Callable[..., object], *sides: object) -> None:
        """Take one measure, if it was asked for; a crash is told, and the others go on."""
        if kind not in kinds:
            return
        try:
            measure(*sides, plan, results)
        except (AssertionError, OSError, RuntimeError, KafkaException) as error:
            results.check(f"{kind} ran to its end", False, f"{type(error).__name__}: {error}")

    if set(kinds) & {"produce", "consume", "latency", "failover"}:
        with started(names, work) as sides:
            take("produce", measure_producing, sides)
            take("consume", measure_consuming, sides)
            take("latency", measure_latency, sides)
            take("failover", measure_failover, sides)
    if "bill" in kinds and "sparklog" in names:
        with sparklog_cluster(work / "bill", SLOW_LAUNCHER, *CONFIGS) as ours:
            take("bill", measure_bill, ours)
    if "slow-store" in kinds and "sparklog" in names:
        with sparklog_cluster(work / "slow", SLOW_LAUNCHER) as ours:
            take("slow-store", measure_slow_store, ours)
    if "idle" in kinds:
        with started(names, work / "idle") as sides:
            for side in sides:
                take("idle", measure_idle, side)


@contextmanager
def started(names: Sequence[str], work: Path) -> Iterator[list[Side]]:
    """Start the clusters that take part, ours last."""
    if "kafka" in names and "sparklog" in names:
        with kafka_cluster(work) as peer, sparklog_cluster(work / "sparklog") as ours:
            yield [ours, peer]
    elif "kafka" in names:
        with kafka_cluster(work) as peer:
            yield [peer]
    else:
        with sparklog_cluster(work / "sparklog") as ours:
            yield [ours]


@contextmanager
def kafka_cluster(work: Path) -> Iterator[KafkaSide]:
    """Run Kafka."""
    work.mkdir(parents=True, exist_ok=True)
    progress("starting Kafka")
    with KafkaCluster(BROKERS, SETTINGS, parent_folder=work) as cluster:
        side = KafkaSide(cluster)
        try:
            yield side
        finally:
            side.close()


@contextmanager
def sparklog_cluster(
    folder: Path, program: Sequence[str] | None = None, *configs: str
) -> Iterator[SparklogSide]:
    """Run sparklog on Spark executors."""
    progress("starting sparklog's brokers on Spark")
    options = ("--brokers", str(BROKERS), *configs)
    cluster = (
        SparklogCluster(folder, *options)
        if program is None
        else SparklogCluster(folder, *options, program=program)
    )
    with cluster:
        side = SparklogSide(cluster)
        try:
            yield side
        finally:
            side.close()


if __name__ == "__main__":
    sys.exit(main())
