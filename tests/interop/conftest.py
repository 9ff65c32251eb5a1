"""A real Kafka for the tests that compare with it: started once, topics have names of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tests.cli.conftest import Cli
from tests.peers.kafka import KafkaCluster


@pytest.fixture(scope="package")
def kafka() -> Iterator[KafkaCluster]:
    """Three nodes."""
    with KafkaCluster(nodes=3, heap="256m") as cluster:
        yield cluster


@pytest.fixture
def cli_at(
    monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Callable[[str], Cli]:
    """Return what makes the command line against given brokers."""
    return partial(Cli, "", monkeypatch, capsysbinary)


@pytest.fixture
def kafka_cli(kafka: KafkaCluster, cli_at: Callable[[str], Cli]) -> Cli:
    """The command line against that Kafka."""
    return cli_at(kafka.bootstrap)
