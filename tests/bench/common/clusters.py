"""Both clusters of three brokers, started for as long as a benchmark needs them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.bench.common.kafka_side import SETTINGS, KafkaSide
from tests.bench.common.results import progress
from tests.bench.common.side import Side
from tests.bench.common.sparklog_side import SparklogSide
from tests.peers.kafka import KafkaCluster
from tests.peers.sparklog import LAUNCHER, SparklogCluster

BROKERS = 3
DEFAULTS: Mapping[str, str] = {}


@contextmanager
def clusters(
    names: Collection[str],
    work: Path,
    settings: Mapping[str, str] = DEFAULTS,
    ours_alone: Mapping[str, str] = DEFAULTS,
) -> Iterator[list[Side]]:
    """Start the clusters that take part (`kafka`, `sparklog`); ours comes first.

    `settings` are given to the brokers of both, `ours_alone` to sparklog's.
    """
    given = {**settings, **ours_alone}
    configs = [word for name, value in given.items() for word in ("--config", f"{name}={value}")]
    with ExitStack() as stack:
        sides: list[Side] = []
        if "kafka" in names:
            sides.append(stack.enter_context(kafka_cluster(work, settings)))
        if "sparklog" in names:
            ours = sparklog_cluster(work / "sparklog", LAUNCHER, *configs)
            sides.insert(0, stack.enter_context(ours))
        yield sides


@contextmanager
def kafka_cluster(
    work: Path, settings: Mapping[str, str] = DEFAULTS, more_listeners: Mapping[str, str] = DEFAULTS
) -> Iterator[KafkaSide]:
    """Run Kafka; `more_listeners` has the protocols of further listeners by name."""
    work.mkdir(parents=True, exist_ok=True)
    progress("starting Kafka")
    given = {**SETTINGS, **settings}
    with KafkaCluster(BROKERS, given, parent_folder=work, more_listeners=more_listeners) as cluster:
        side = KafkaSide(cluster)
        try:
            yield side
        finally:
            side.close()


@contextmanager
def sparklog_cluster(
    folder: Path,
    program: Sequence[str] = LAUNCHER,
    *configs: str,
    root: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[SparklogSide]:
    """Run sparklog on Spark executors; `program` starts the launcher if it is not `serve`."""
    progress("starting sparklog's brokers on Spark")
    options = ("--brokers", str(BROKERS), *configs)
    with SparklogCluster(
        folder, *options, program=program, root=root, environment=environment
    ) as cluster:
        side = SparklogSide(cluster)
        try:
            yield side
        finally:
            side.close()
