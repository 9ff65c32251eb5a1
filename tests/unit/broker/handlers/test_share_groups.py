"""Requests about share groups on whole brokers: members, administrators, and their rights."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers import handle
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.request import RequestContext
from sparklog.core.config.broker import STANDARD_AUTHORIZER
from sparklog.protocol.api_keys import Api
from sparklog.protocol.topic_ids import uuid_of
from sparklog.security.acls import AclOperation as Do
from sparklog.security.acls import ResourceType as Kind
from tests.harness.access_case import Grant
from tests.harness.access_node import ALICE, grant
from tests.harness.handler_requests import create_topics
from tests.harness.live_cluster import RETRIED, LiveCluster
from tests.harness.plain_requests import codes_of, plain_request

NONE = ErrorCode.none
SETTINGS = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:ANONYMOUS"}
ROOT = RequestContext("client", "10.0.0.1")
Assigned = dict[str, tuple[int, ...]]


class SharingBroker:
    """One broker with topics `a` and `b`, asked as a super user unless a test names another."""

    def __init__(self, node: BrokerNode) -> None:
        self.node = node

    async def ask(self, request: Any, context: RequestContext = ROOT) -> Any:
        """Return the answer, once the coordinator has loaded its log."""
        async with asyncio.timeout(30):
            while True:
                answer = await handle(self.node, request, context)
                if not RETRIED & set(map(ErrorCode, codes_of(answer))):
                    return answer
                await asyncio.sleep(0.05)

    async def grant(self, *grants: Grant) -> None:
        """Give rights to Alice."""
        await grant(self.node, *grants)

    async def beat(
        self, member_id: str, epoch: int, *names: str, context: RequestContext = ROOT
    ) -> Any:
        """Send a heartbeat."""
        return await self.ask(heartbeat(member_id, epoch, *names), context)

    async def join(self, member_id: str, *names: str) -> Any:
        """Join, and send heartbeats until the member has partitions; return the last answer."""
        epoch, asked = 0, names
        async with asyncio.timeout(30):
            while True:
                answer = await self.beat(member_id, epoch, *asked)
                assert answer.error_code is NONE, answer
                if answer.assignment is not None and answer.assignment.topic_partitions:
                    return answer
                epoch, asked = answer.member_epoch, ()
                await asyncio.sleep(answer.heartbeat_interval.total_seconds())

    def id_of(self, name: str) -> UUID:
        """Return the id of a topic."""
        return uuid_of(self.node.metadata.image.topics[name].topic_id)

    def assigned(self, answer: Any) -> Assigned:
        """Return the assigned partitions by the name of their topic."""
        names = {self.id_of(name): name for name in self.node.metadata.image.topics}
        return {names[t.topic_id]: t.partitions for t in answer.assignment.topic_partitions}


def tell_of(story: Callable[[SharingBroker], Awaitable[None]]) -> None:
    """Run a story on a broker with the topics `a` and `b`, of two partitions each."""
    cluster = LiveCluster(1, **SETTINGS)

    async def whole() -> None:
        await cluster.begin()
        created = await cluster.ask(1, create_topics("a", "b", partitions=2))
        assert not any(codes_of(created))
        broker = SharingBroker(cluster.nodes[1].node)
        await broker.ask(plain_request(Api.FIND_COORDINATOR, 6, coordinator_keys=["g"]))
        await story(broker)

    cluster.run(whole())


def heartbeat(member_id: str, epoch: int, *names: str) -> Any:
    return plain_request(
        Api.SHARE_GROUP_HEARTBEAT,
        1,
        group_id="g",
        member_id=member_id,
        member_epoch=epoch,
        rack_id="r" if names else None,
        subscribed_topic_names=list(names) or None,
    )


def describe(*group_ids: str, operations: bool = False) -> Any:
    return plain_request(
        Api.SHARE_GROUP_DESCRIBE,
        1,
        group_ids=list(group_ids),
        include_authorized_operations=operations,
    )


def test_members_of_a_share_group_join_and_leave() -> None:
    async def story(broker: SharingBroker) -> None:
        first = await broker.join("m", "a", "b")
        assert broker.assigned(first) == {"a": (0, 1), "b": (0, 1)}
        assert (first.member_id, first.heartbeat_interval) == ("m", timedelta(seconds=5))
        await broker.join("n", "a", "b")
        kept = broker.assigned(await broker.beat("m", first.member_epoch))
        assert sum(map(len, kept.values())) == 2
        left = await broker.beat("n", -1)
        assert (left.error_code, left.member_epoch, left.assignment) == (NONE, -1, None)
        keys = await broker.node.groups.share_partitions("g")
        assert {(key.topic_id, key.partition) for key in keys} == {
            (broker.id_of(name), number) for name in "ab" for number in (0, 1)
        }

    tell_of(story)


def test_share_groups_are_listed_described_and_deleted() -> None:
    async def story(broker: SharingBroker) -> None:
        joined = await broker.join("m", "a")
        listing = plain_request(Api.LIST_GROUPS, 5, types_filter=["Share"])
        (listed,) = (await broker.ask(listing)).groups
        assert (listed.group_id, listed.protocol_type) == ("g", "share")
        assert (listed.group_state, listed.group_type) == ("Stable", "share")
        others = plain_request(Api.LIST_GROUPS, 5, types_filter=["classic", "consumer"])
        assert (await broker.ask(others)).groups == ()
        group, absent = (await broker.ask(describe("g", "h"))).groups
        assert (group.error_code, group.group_state, group.assignor_name) == (
            NONE, "Stable", "simple",
        )  # fmt: skip
        assert group.group_epoch == group.assignment_epoch == joined.member_epoch
        (member,) = group.members
        assert (member.member_id, member.rack_id, member.client_id) == ("m", "r", "client")
        assert (member.client_host, member.subscribed_topic_names) == ("/10.0.0.1", ("a",))
        (topic,) = member.assignment.topic_partitions
        assert (topic.topic_name, topic.partitions) == ("a", (0, 1))
        assert absent.error_code is ErrorCode.group_id_not_found
        delete = plain_request(Api.DELETE_GROUPS, 2, groups_names=["g"])
        (result,) = (await broker.ask(delete)).results
        assert result.error_code is ErrorCode.non_empty_group
        await broker.beat("m", -1)
        (empty,) = (await broker.ask(describe("g"))).groups
        assert (empty.group_state, empty.members) == ("Empty", ())
        (result,) = (await broker.ask(delete)).results
        assert result.error_code is NONE
        assert (await broker.ask(listing)).groups == ()
        (gone,) = (await broker.ask(describe("g"))).groups
        assert gone.error_code is ErrorCode.group_id_not_found
        assert broker.assigned(await broker.join("m", "a")) == {"a": (0, 1)}

    tell_of(story)


def test_share_group_rejections_have_kafkas_codes() -> None:
    async def story(broker: SharingBroker) -> None:
        async def code(member_id: str, epoch: int, *names: str) -> int:
            answer = await broker.beat(member_id, epoch, *names)
            assert answer.error_message
            return int(answer.error_code)

        assert await code("m", 1) == 69
        assert await code("", 0, "a") == 42
        assert await code("m", 0) == 42
        assert await code("m", -2) == 42
        epoch = (await broker.join("m", "a")).member_epoch
        assert await code("m", epoch + 1) == 110
        assert await code("n", epoch) == 25
        consumer = plain_request(
            Api.CONSUMER_GROUP_HEARTBEAT,
            1,
            group_id="g",
            member_id="c",
            member_epoch=0,
            rebalance_timeout=timedelta(seconds=60),
            subscribed_topic_names=["a"],
            topic_partitions=[],
        )
        assert (await broker.ask(consumer)).error_code is ErrorCode.group_id_not_found

    tell_of(story)


def test_a_full_share_group_refuses_more_members() -> None:
    cluster = LiveCluster(1, group_share_max_size="1")

    async def story() -> None:
        await cluster.begin()
        broker = SharingBroker(cluster.nodes[1].node)
        await broker.ask(plain_request(Api.FIND_COORDINATOR, 6, coordinator_keys=["g"]))
        assert (await broker.beat("m", 0, "t")).error_code is NONE
        assert (await broker.beat("n", 0, "t")).error_code is ErrorCode.group_max_size_reached

    cluster.run(story())


def test_deleted_topics_leave_the_share_groups() -> None:
    async def story(broker: SharingBroker) -> None:
        joined = await broker.join("m", "a", "b")
        gone = broker.id_of("b")
        delete = plain_request(
            Api.DELETE_TOPICS, 6, topics=[{"name": "b", "topic_id": None}], timeout=30_000
        )
        assert not any(codes_of(await broker.ask(delete)))
        answer = await broker.beat("m", joined.member_epoch)
        assert broker.assigned(answer) == {"a": (0, 1)}
        left = {gone}
        for _ in range(100):
            left = {key.topic_id for key in await broker.node.groups.share_partitions("g")}
            if gone not in left:
                break
            await asyncio.sleep(0.05)
        assert left == {broker.id_of("a")}

    tell_of(story)


def test_member_may_describe_each_topic_that_it_subscribes_to() -> None:
    async def story(broker: SharingBroker) -> None:
        async def code(*names: str) -> ErrorCode:
            return ErrorCode((await broker.beat("m", 0, *names, context=ALICE)).error_code)

        assert await code("a") is ErrorCode.group_authorization_failed
        await broker.grant((Do.READ, Kind.GROUP, "g"))
        assert await code("a") is ErrorCode.topic_authorization_failed
        await broker.grant((Do.DESCRIBE, Kind.TOPIC, "a"))
        assert await code("a") is NONE
        assert await code("a", "b") is ErrorCode.topic_authorization_failed

    tell_of(story)


def test_share_group_with_a_hidden_topic_is_described_without_members() -> None:
    async def story(broker: SharingBroker) -> None:
        await broker.join("m", "a", "b")
        (hidden,) = (await broker.ask(describe("g"), ALICE)).groups
        assert hidden.error_code is ErrorCode.group_authorization_failed
        await broker.grant((Do.DESCRIBE, Kind.GROUP, "g"), (Do.DESCRIBE, Kind.TOPIC, "a"))
        (hidden,) = (await broker.ask(describe("g"), ALICE)).groups
        assert hidden.error_code is ErrorCode.topic_authorization_failed
        assert hidden.members == ()
        await broker.grant((Do.DESCRIBE, Kind.TOPIC, "b"))
        (shown,) = (await broker.ask(describe("g", operations=True), ALICE)).groups
        assert (shown.error_code, len(shown.members)) == (NONE, 1)
        assert shown.authorized_operations == 1 << Do.DESCRIBE

    tell_of(story)
