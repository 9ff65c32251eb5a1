"""Requests to the leaders of partitions, repeated while metadata of a topic spreads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from sparklog.client.addresses import BrokerAddress
from sparklog.client.connections import BrokerConnections
from sparklog.client.metadata import ClusterMetadata
from sparklog.client.routing import ask_leaders
from sparklog.client.values import ServingBroker
from sparklog.cluster.metadata.image import PartitionState, Topic
from sparklog.core.clock import ManualClock
from sparklog.core.errors import SparklogError, UnknownTopicOrPartition
from sparklog.core.types import TopicPartition

BROKER = ServingBroker(1, "127.0.0.1", 9092, None, controller=True)
THERE = TopicPartition("orders", 0)
PATIENCE_S = 5.0


class Cluster:
    """Brokers with metadata of one topic, whose leader learns of it later."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.exists = True
        self.answers: list[int | SparklogError] = []
        monkeypatch.setattr("sparklog.client.routing.read_metadata", self._metadata)

    def ask(self) -> int | SparklogError:
        brokers = BrokerConnections([BROKER.address], PATIENCE_S)
        return ask_leaders(brokers, [THERE], self._answer, self.clock)[THERE]

    def _metadata(self, _brokers: BrokerConnections, _topics: Sequence[str]) -> ClusterMetadata:
        topic = Topic("orders", "A" * 22, (PartitionState(leader=1),))
        return ClusterMetadata("c", {1: BROKER}, {"orders": topic} if self.exists else {})

    def _answer(
        self, leader: BrokerAddress, chosen: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int | SparklogError]:
        assert (leader, list(chosen)) == (BROKER.address, [THERE])
        return {THERE: self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


def test_leader_is_asked_again_when_a_new_topic_is_unknown(cluster: Cluster) -> None:
    not_yet = UnknownTopicOrPartition("not yet")
    cluster.answers = [not_yet, not_yet, 7]
    assert cluster.ask() == 7
    assert 0 < cluster.clock.monotonic_s() < PATIENCE_S


def test_leader_is_requested_until_a_limit(cluster: Cluster) -> None:
    cluster.answers = [UnknownTopicOrPartition("never. partition=orders-0")]
    found = cluster.ask()
    assert isinstance(found, UnknownTopicOrPartition)
    assert str(found) == "never. partition=orders-0"
    assert PATIENCE_S <= cluster.clock.monotonic_s() < 2 * PATIENCE_S


def test_leader_is_not_asked_for_a_topic_without_metadata(cluster: Cluster) -> None:
    cluster.exists = False
    assert isinstance(cluster.ask(), UnknownTopicOrPartition)
    assert cluster.clock.monotonic_s() == 0
