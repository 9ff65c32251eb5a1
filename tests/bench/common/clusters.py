"""Both clusters of three brokers, started for as long as a benchmark needs them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench.common.kafka_side import SETTINGS, KafkaSide
from tests.bench.common.results import progress
from tests.bench.common.side import Side
from tests.bench.common.sparklog_side import SparklogSide
from tests.peers.kafka import KafkaCluster
from tests.peers.sparklog import LAUNCHER, SparklogCluster

BROKERS = 3


@contextmanager
def clusters(names: Collection[str], work: Path) -> Iterator[list[Side]]:
    """Start the clusters that take part (`kafka`, `sparklog`); ours comes first."""
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
    folder: Path, program: Sequence[str] = LAUNCHER, *configs: str
) -> Iterator[SparklogSide]:
    """Run sparklog on Spark executors; `program` starts the launcher if it is not `serve`."""
    progress("starting sparklog's brokers on Spark")
    options = ("--brokers", str(BROKERS), *configs)
    with SparklogCluster(folder, *options, program=program) as cluster:
        side = SparklogSide(cluster)
        try:
            yield side
        finally:
            side.close()
