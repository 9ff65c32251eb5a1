"""Settings of groups as brokers go by them."""

from __future__ import annotations

import pytest

from sparklog.broker.coordinator.groups import GroupRules
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import GROUP_RESOURCE, ConfigRecord, Record
from sparklog.coordinator.consumer.groups import ConsumerGroups
from sparklog.coordinator.consumer.messages import ConsumerHeartbeat
from sparklog.coordinator.consumer.topics import NoTopics
from tests.harness.coordinator_settings import group_settings
from tests.harness.handler_node import ToyNode, tell

SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


async def store(node: ToyNode, group_id: str, **values: str | None) -> MetadataImage:
    """Set what a newer version could: nothing is checked."""
    records: list[Record] = [
        ConfigRecord(group_id, f"consumer.{name.replace('_', '.')}", value, GROUP_RESOURCE)
        for name, value in values.items()
    ]
    return await node.metadata.decide(lambda image: records)


def test_group_settings_of_a_newer_version_are_ignored_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(node: ToyNode) -> None:
        rules = GroupRules(node.metadata)
        assert not rules.of("g").given
        await store(node, "g", session_timeout_ms="PT1M", heartbeat_interval_ms="7000")
        for _ in range(3):
            assert rules.of("g").given == {INTERVAL: 7_000}
        (told,) = caplog.messages
        assert "group=g" in told
        assert f"{SESSION}='PT1M'" in told

        await store(node, "g", session_timeout_ms="60000")
        assert rules.of("g").given == {INTERVAL: 7_000, SESSION: 60_000}
        assert len(caplog.messages) == 1
        await store(node, "g", session_timeout_ms="PT1M")
        assert rules.of("g").given == {INTERVAL: 7_000}
        assert len(caplog.messages) == 2, "it is there again"

    tell(story)


def test_group_uses_the_brokers_settings_for_its_unknown_ones() -> None:
    async def story(node: ToyNode) -> None:
        await store(node, "g", session_timeout_ms="PT1M", heartbeat_interval_ms="99999999999")
        settings = group_settings(group_consumer_heartbeat_interval_ms=6_000)
        groups = ConsumerGroups(settings, GroupRules(node.metadata).of)
        for group_id in ("g", "other"):
            asked = ConsumerHeartbeat(
                group_id, "m", 0, "client", "/h",
                rebalance_timeout_ms=9_000, names=("t",), owned=frozenset(),
            )  # fmt: skip
            answer, _ = groups.heartbeat(asked, NoTopics(), 0)
            assert answer.heartbeat_interval_ms == 6_000
        groups.expire(44_999)
        assert [len(group.members) for group in groups.all()] == [1, 1]
        groups.expire(45_000)
        assert [len(group.members) for group in groups.all()] == [0, 0]

    tell(story)
