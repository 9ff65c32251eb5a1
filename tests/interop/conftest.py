"""A real Kafka for the tests that compare with it: started once, topics have names of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cli.conftest import Cli
from tests.peers.kafka import KafkaCluster


@pytest.fixture(scope="package")
def kafka() -> Iterator[KafkaCluster]:
    """Three nodes."""
    with KafkaCluster(nodes=3, heap="256m") as cluster:
        yield cluster


@pytest.fixture
def kafka_cli(
    kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Cli:
    """The command line against that Kafka."""
    return Cli("", monkeypatch, capsysbinary, kafka.bootstrap)
