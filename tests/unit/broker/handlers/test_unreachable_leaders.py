"""Metadata of partitions whose leader has just become unreachable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.metadata import ELECTED_WITHIN_S
from sparklog.broker.network.reachability import NEWS_WITHIN_S
from sparklog.broker.runtime.environment import Address, Unreachable
from sparklog.cluster.controller import election
from sparklog.cluster.metadata.records import NO_LEADER, TopicRecord
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part
from sparklog.protocol.topic_ids import uuid_of
from tests.harness.handler_node import ToyNode, tell
from tests.harness.handler_requests import create_topics, metadata

OTHER = 2
OTHERS_ADDRESS = Address("broker-2", 9092)


async def lose_sight(node: ToyNode) -> None:
    """Make the other broker unreachable from the node."""
    with pytest.raises(Unreachable):
        await node.reachability.call(OTHERS_ADDRESS, None, timeout_s=1.0)


async def leaders(node: ToyNode, request: Any) -> list[tuple[int, ErrorCode]]:
    (topic,) = (await node.ask(request)).topics
    return [(p.leader_id, p.error_code) for p in topic.partitions]


def by_name(node: ToyNode) -> Any:
    return metadata("t")


def by_id(node: ToyNode) -> Any:
    uuid = uuid_of(node.metadata.image.topics["t"].topic_id)
    topic = build_request_part(Api.METADATA, 12, "MetadataRequestTopic", topic_id=uuid, name=None)
    return build_request(
        Api.METADATA, 12, topics=(topic,), include_topic_authorized_operations=False
    )


def all_of_them(node: ToyNode) -> Any:
    return metadata(None)


@pytest.mark.parametrize("ask_for", [by_name, by_id, all_of_them])
def test_metadata_omits_a_leader_that_dies_during_the_request(
    ask_for: Callable[[ToyNode], Any],
) -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t", partitions=2, factor=2))
        request = ask_for(node)
        before = await leaders(node, request)
        assert sorted(leader for leader, _ in before) == [1, OTHER]
        asking = asyncio.ensure_future(leaders(node, request))
        await asyncio.sleep(NEWS_WITHIN_S / 2)
        await lose_sight(node)
        assert await asking == [
            (NO_LEADER, ErrorCode.leader_not_available) if leader == OTHER else (leader, code)
            for leader, code in before
        ]

    tell(story, brokers=(1, OTHER))


def test_metadata_waits_for_news_only_if_it_names_another_broker() -> None:
    async def story(node: ToyNode) -> None:
        now_s = asyncio.get_running_loop().time

        async def takes_s(request: Any) -> float:
            began_s = now_s()
            await node.ask(request)
            return now_s() - began_s

        await node.ask(create_topics("own", partitions=1, factor=1))
        assert [one for one, _ in await leaders(node, metadata("own"))] == [1]
        await node.register(OTHER)
        await node.ask(create_topics("spread", partitions=2, factor=2))
        assert await takes_s(metadata("own")) == 0
        assert await takes_s(metadata("spread")) == pytest.approx(NEWS_WITHIN_S)
        assert await takes_s(metadata(None)) == pytest.approx(NEWS_WITHIN_S)

    tell(story)


def coordinators(keys: int) -> Any:
    names = tuple(f"group-{n}" for n in range(keys))
    return build_request(Api.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=names)


def test_find_coordinator_omits_a_broker_that_dies_meanwhile() -> None:
    async def story(node: ToyNode) -> None:
        async def found() -> list[int]:
            return [one.node_id for one in (await node.ask(coordinators(20))).coordinators]

        before = await found()
        assert set(before) == {1, OTHER}
        asking = asyncio.ensure_future(found())
        await asyncio.sleep(NEWS_WITHIN_S / 2)
        await lose_sight(node)
        assert await asking == [-1 if one == OTHER else one for one in before]

    tell(story, brokers=(1, OTHER))


def test_find_coordinator_waits_for_a_running_election() -> None:
    async def story(node: ToyNode) -> None:
        now_s = asyncio.get_running_loop().time
        before = [one.node_id for one in (await node.ask(coordinators(20))).coordinators]
        assert set(before) == {1, OTHER}
        await lose_sight(node)
        began_s = now_s()
        asking = asyncio.ensure_future(node.ask(coordinators(20)))
        await asyncio.sleep(ELECTED_WITHIN_S / 3)
        await node.metadata.decide(lambda image: [TopicRecord("other", "A" * 22)])
        await asyncio.sleep(0.01)
        assert not asking.done(), "any news were taken for those of a leader"
        await node.metadata.decide(lambda image: election.fence(image, [OTHER]))
        assert [one.node_id for one in (await asking).coordinators] == [1] * 20
        assert now_s() - began_s < ELECTED_WITHIN_S

    tell(story, brokers=(1, OTHER))


def test_find_coordinator_fails_when_no_election_ends_in_time() -> None:
    async def story(node: ToyNode) -> None:
        now_s = asyncio.get_running_loop().time
        await node.ask(coordinators(1))
        await node.metadata.decide(lambda image: election.fence(image, [1]))
        began_s = now_s()
        (answer,) = (await node.ask(coordinators(1))).coordinators
        assert answer.error_code is ErrorCode.coordinator_not_available
        assert now_s() - began_s == pytest.approx(ELECTED_WITHIN_S)

    tell(story)


def test_find_coordinator_answers_at_once_for_its_own_shard() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(coordinators(1))
        began_s = asyncio.get_running_loop().time()
        assert [one.node_id for one in (await node.ask(coordinators(3))).coordinators] == [1] * 3
        assert asyncio.get_running_loop().time() == began_s

    tell(story)
