"""The quota of created and deleted partitions: new clients get an error, older ones a wait."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparklog.broker.runtime.request import RequestContext
from sparklog.cluster.metadata.changes import alter
from sparklog.core.quotas import CONTROLLER_MUTATION_RATE, entity_of
from tests.harness import handler_requests
from tests.harness.handler_node import PEER, ToyNode, tell
from tests.harness.handler_requests import delete_topics, metadata

CLIENT = RequestContext("c", "127.0.0.1")
OTHER = RequestContext("d", "127.0.0.1")
OVER = ErrorCode.throttling_quota_exceeded
OK = ErrorCode.none
NO_TIME = timedelta(0)
BURST = 11
"""Partitions that a rate of 1 allows at once: `controller.quota.window.num` windows of 1 s."""


async def limited(node: ToyNode, rate: float = 1.0) -> None:
    entity = entity_of({"client-id": "c"})
    await node.metadata.decide(lambda image: alter(image, entity, {CONTROLLER_MUTATION_RATE: rate}))


def create_topics(*names: str, **more: Any) -> Any:
    """Return a request that does not wait for leaders: partitions of the toy broker have none."""
    return replace(handler_requests.create_topics(*names, **more), timeout=NO_TIME)


def create_partitions(name: str, count: int) -> Any:
    return replace(handler_requests.create_partitions(name, count), timeout=NO_TIME)


def codes(answer: Any) -> list[ErrorCode]:
    return [one.error_code for one in getattr(answer, "topics", getattr(answer, "responses", ()))]


def test_an_overdrawn_quota_rejects_topics_until_the_wait_is_over() -> None:
    async def story(node: ToyNode) -> None:
        await limited(node)
        first = await node.ask(create_topics("a", partitions=BURST + 3), CLIENT)
        assert (codes(first), first.throttle_time) == ([OK], NO_TIME)
        # A rejected change is not charged.
        refusals = [await node.ask(create_topics("b"), CLIENT) for _ in range(2)]
        for refused in refusals:
            assert codes(refused) == [OVER]
            assert refused.topics[0].error_message == "The throttling quota has been exceeded."
            assert refused.throttle_time == pytest.approx(
                timedelta(seconds=3), abs=timedelta(milliseconds=300)
            )
        assert "b" not in node.metadata.image.topics
        assert codes(await node.ask(create_topics("b"), OTHER)) == [OK]
        await asyncio.sleep(refusals[-1].throttle_time.total_seconds())
        assert codes(await node.ask(create_topics("c"), CLIENT)) == [OK]
        assert node.metrics.throttled_requests == {CONTROLLER_MUTATION_RATE: 2}

    tell(story)


def test_topics_of_one_request_share_the_quota_in_their_order() -> None:
    async def story(node: ToyNode) -> None:
        await limited(node)
        answer = await node.ask(create_topics("a", "b", "c", partitions=BURST - 1), CLIENT)
        assert codes(answer) == [OK, OK, OVER]
        assert answer.throttle_time > timedelta(seconds=8)

    tell(story)


def test_deleted_and_added_partitions_count_as_well() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("a", "b", partitions=BURST + 1), OTHER)
        await node.ask(create_topics("few"), OTHER)
        await limited(node)
        assert codes(await node.ask(delete_topics("a"), CLIENT)) == [OK]
        refused = await node.ask(delete_topics("b"), CLIENT)
        assert codes(refused) == [OVER]
        assert refused.throttle_time > NO_TIME
        assert "b" in node.metadata.image.topics
        grown = await node.ask(create_partitions("few", 3), CLIENT)
        assert [one.error_code for one in grown.results] == [OVER]
        await asyncio.sleep(2)
        grown = await node.ask(create_partitions("few", 3), CLIENT)
        assert [one.error_code for one in grown.results] == [OK]
        assert codes(await node.ask(delete_topics("b"), CLIENT)) == [OVER]

    tell(story)


def test_clients_of_older_versions_are_throttled_without_an_error() -> None:
    async def story(node: ToyNode) -> None:
        await limited(node)
        first = await node.ask(create_topics("a", version=5, partitions=BURST), CLIENT)
        assert (codes(first), first.throttle_time) == ([OK], NO_TIME)
        second = await node.ask(create_topics("b", version=5, partitions=5), CLIENT)
        assert codes(second) == [OK]
        assert second.throttle_time > timedelta(seconds=4)
        third = await node.ask(delete_topics("b", version=4), CLIENT)
        assert codes(third) == [OK]
        assert third.throttle_time > timedelta(seconds=9)

    tell(story)


def test_invalid_changes_and_changes_of_brokers_cost_nothing() -> None:
    async def story(node: ToyNode) -> None:
        await limited(node)
        for _ in range(3):
            answer = await node.ask(create_topics("bad name", partitions=50), CLIENT)
            assert codes(answer) == [ErrorCode.invalid_topic_exception]
        for name in ("x", "y", "z"):
            assert codes(await node.ask(create_topics(name, partitions=50), PEER)) == [OK]
        assert codes(await node.ask(create_topics("a"), CLIENT)) == [OK]

    tell(story)


def test_metadata_creates_a_topic_over_the_quota_after_the_wait() -> None:
    async def story(node: ToyNode) -> None:
        await limited(node)
        await node.ask(create_topics("a", partitions=BURST + 2), CLIENT)
        answer = await node.ask(metadata("new", create=True), CLIENT)
        assert codes(answer) == [ErrorCode.leader_not_available]
        assert answer.throttle_time > timedelta(seconds=1)
        assert "new" not in node.metadata.image.topics
        await asyncio.sleep(answer.throttle_time.total_seconds())
        await node.ask(metadata("new", create=True), CLIENT)
        assert "new" in node.metadata.image.topics

    tell(story)
