"""Electing leaders and moving replicas, as admin clients ask for it."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.cluster.controller import election
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part
from tests.harness.handler_node import ToyNode, tell
from tests.harness.handler_requests import SOON, create_topics

NONE = ErrorCode.none


def elect(kind: int, *partitions: tuple[str, int], every: bool = False, version: int = 2) -> Any:
    topics = tuple(
        build_request_part(
            Api.ELECT_LEADERS, version, "TopicPartitions", topic=topic, partitions=(number,)
        )
        for topic, number in partitions
    )
    return build_request(
        Api.ELECT_LEADERS,
        version,
        election_type=kind,
        topic_partitions=None if every else topics,
        timeout=SOON,
    )


def move(topic: str, number: int, replicas: tuple[int, ...] | None, **more: Any) -> Any:
    api, version = Api.ALTER_PARTITION_REASSIGNMENTS, 1
    part = build_request_part(
        api, version, "ReassignablePartition", partition_index=number, replicas=replicas
    )
    named = build_request_part(api, version, "ReassignableTopic", name=topic, partitions=(part,))
    return build_request(api, version, topics=(named,), timeout=SOON, **more)


def elected(answer: Any) -> dict[tuple[str, int], ErrorCode]:
    return {
        (t.topic, p.partition_id): p.error_code
        for t in answer.replica_election_results
        for p in t.partition_result
    }


def moved(answer: Any) -> list[ErrorCode]:
    return [p.error_code for t in answer.responses for p in t.partitions]


async def moving(node: ToyNode) -> list[tuple[str, int, tuple[int, ...], tuple[int, ...]]]:
    request = build_request(Api.LIST_PARTITION_REASSIGNMENTS, 0, topics=None, timeout=SOON)
    return [
        (t.name, p.partition_index, p.adding_replicas, p.removing_replicas)
        for t in (await node.ask(request)).topics
        for p in t.partitions
    ]


def test_a_leader_that_leads_already_needs_no_election() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t", partitions=2))
        answer = await node.ask(elect(0, ("t", 0), ("nobody", 0), ("t", 9)))
        assert elected(answer) == {
            ("t", 0): ErrorCode.election_not_needed,
            ("nobody", 0): ErrorCode.unknown_topic_or_partition,
            ("t", 9): ErrorCode.unknown_topic_or_partition,
        }
        assert elected(await node.ask(elect(0, every=True))) == {}
        assert elected(await node.ask(elect(1, ("t", 1)))) == {
            ("t", 1): ErrorCode.election_not_needed
        }

    tell(story)


def test_partition_without_a_leader_gets_one() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t"))
        await node.metadata.decide(lambda image: election.fence(image, {1}))
        unled = elected(await node.ask(elect(1, ("t", 0))))
        assert unled == {("t", 0): ErrorCode.eligible_leaders_not_available}
        await node.register(2)
        assert elected(await node.ask(elect(1, ("t", 0)))) == {("t", 0): NONE}
        assert node.metadata.image.topics["t"].partition_states[0].leader == 2

    tell(story)


def test_replicas_begin_to_move_and_the_move_is_cancelled() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t", partitions=-1, assignments={0: (1,)}))
        assert moved(await node.ask(move("t", 0, (2,)))) == [NONE]
        assert await moving(node) == [("t", 0, (2,), (1,))]
        assert moved(await node.ask(move("t", 0, None))) == [NONE]
        assert await moving(node) == []
        refused = await node.ask(move("t", 0, None))
        assert moved(refused) == [ErrorCode.no_reassignment_in_progress]

    tell(story, brokers=(1, 2))


def test_a_move_that_cannot_be_is_refused() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t", partitions=-1, assignments={0: (1,)}))
        for request, code in (
            (move("t", 0, (9,)), ErrorCode.invalid_replica_assignment),
            (move("t", 5, (1,)), ErrorCode.unknown_topic_or_partition),
            (move("nobody", 0, (1,)), ErrorCode.unknown_topic_or_partition),
            (
                move("t", 0, (1, 2), allow_replication_factor_change=False),
                ErrorCode.invalid_replica_assignment,
            ),
        ):
            assert moved(await node.ask(request)) == [code]
        assert await moving(node) == []

    tell(story, brokers=(1, 2))
