"""Requests about groups on a whole broker, and the topics within them."""

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

GROUP = ErrorCode.group_authorization_failed
TOPIC = ErrorCode.topic_authorization_failed
NONE = ErrorCode.none
SETTINGS = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:ANONYMOUS"}
ROOT = RequestContext("client", "10.0.0.1")
MINUTE = timedelta(seconds=60)


class GuardedBroker:
    """One broker, asked as a super user and as a client with some rights."""

    def __init__(self, node: BrokerNode) -> None:
        self.node = node

    async def ask(self, request: Any, context: RequestContext = ALICE) -> Any:
        """Return the answer, once the coordinator has loaded its log."""
        async with asyncio.timeout(30):
            while True:
                answer = await handle(self.node, request, context)
                if not RETRIED & set(map(ErrorCode, codes_of(answer))):
                    return answer
                await asyncio.sleep(0.05)

    async def grant(self, *grants: Grant) -> None:
        await grant(self.node, *grants)

    def id_of(self, name: str) -> UUID:
        return uuid_of(self.node.metadata.image.topics[name].topic_id)


def tell_of(story: Callable[[GuardedBroker], Awaitable[None]]) -> None:
    """Run a story on a broker with the topics `a` and `b`."""
    cluster = LiveCluster(1, **SETTINGS)

    async def whole() -> None:
        await cluster.begin()
        assert not any(codes_of(await cluster.ask(1, create_topics("a", "b"))))
        find = plain_request(Api.FIND_COORDINATOR, 6, coordinator_keys=["g"])
        broker = GuardedBroker(cluster.nodes[1].node)
        await broker.ask(find, ROOT)
        await story(broker)

    cluster.run(whole())


def commit(*names: str, offset: int = 5) -> Any:
    part = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}
    topics = [{"name": name, "partitions": [part]} for name in names]
    return plain_request(
        Api.OFFSET_COMMIT, 8, group_id="g", generation_id_or_member_epoch=-1, topics=topics
    )


def fetched(answer: Any) -> dict[Any, tuple[int, ErrorCode]]:
    """Return the offset and the code of each topic, by its name or id."""
    (group,) = answer.groups
    assert group.error_code is NONE
    return {
        getattr(topic, "name", getattr(topic, "topic_id", None)): (
            topic.partitions[0].committed_offset,
            topic.partitions[0].error_code,
        )
        for topic in group.topics
    }


def fetch_offsets(topics: list[Any] | None, version: int = 9) -> Any:
    group = {"group_id": "g", "member_epoch": -1, "topics": topics}
    return plain_request(Api.OFFSET_FETCH, version, groups=[group])


def test_offsets_of_topics_that_may_not_be_described_are_hidden() -> None:
    async def story(broker: GuardedBroker) -> None:
        assert not any(codes_of(await broker.ask(commit("a", "b"), ROOT)))
        await broker.grant((Do.DESCRIBE, Kind.GROUP, "g"), (Do.DESCRIBE, Kind.TOPIC, "a"))
        found = fetched(await broker.ask(fetch_offsets(None)))
        assert found == {"a": (5, NONE)}
        assert fetched(await broker.ask(fetch_offsets(None, 10))) == {broker.id_of("a"): (5, NONE)}
        asked = [{"name": name, "partition_indexes": [0]} for name in ("b", "a")]
        assert fetched(await broker.ask(fetch_offsets(asked))) == {"a": (5, NONE), "b": (-1, TOPIC)}
        ids = [{"topic_id": broker.id_of(n), "partition_indexes": [0]} for n in ("b", "a")]
        found = fetched(await broker.ask(fetch_offsets(ids, 10)))
        assert found == {broker.id_of("a"): (5, NONE), broker.id_of("b"): (-1, TOPIC)}
        older = plain_request(Api.OFFSET_FETCH, 7, group_id="g", topics=None)
        assert [one.name for one in (await broker.ask(older)).topics] == ["a"]
        named = plain_request(Api.OFFSET_FETCH, 7, group_id="g", topics=asked)
        answer = await broker.ask(named)
        codes = {one.name: one.partitions[0].error_code for one in answer.topics}
        assert codes == {"a": NONE, "b": TOPIC}

    tell_of(story)


def test_groups_and_their_errors_keep_the_order_of_the_request() -> None:
    async def story(broker: GuardedBroker) -> None:
        await broker.grant((Do.DESCRIBE, Kind.GROUP, "g"))
        groups = [{"group_id": name, "member_epoch": -1} for name in ("h", "g", "i")]
        answer = await broker.ask(plain_request(Api.OFFSET_FETCH, 9, groups=groups))
        codes = [(one.group_id, one.error_code) for one in answer.groups]
        assert codes == [("h", GROUP), ("g", NONE), ("i", GROUP)]

    tell_of(story)


def test_offsets_are_committed_and_deleted_for_readable_topics_only() -> None:
    async def story(broker: GuardedBroker) -> None:
        await broker.ask(commit("a", "b"), ROOT)
        await broker.grant((Do.READ, Kind.GROUP, "g"), (Do.READ, Kind.TOPIC, "a"))
        answer = await broker.ask(commit("hidden", "a", "b", offset=7))
        codes = [(one.name, one.partitions[0].error_code) for one in answer.topics]
        assert codes == [("hidden", TOPIC), ("a", NONE), ("b", TOPIC)]
        everything = fetch_offsets(None)
        stored = {"a": (7, NONE), "b": (5, NONE)}
        assert fetched(await broker.ask(everything, ROOT)) == stored
        await broker.grant((Do.DELETE, Kind.GROUP, "g"))
        part = {"partition_index": 0}
        topics = [{"name": name, "partitions": [part]} for name in ("b", "a")]
        answer = await broker.ask(plain_request(Api.OFFSET_DELETE, 0, group_id="g", topics=topics))
        assert codes_of(answer) == [0, TOPIC, 0]
        assert fetched(await broker.ask(everything, ROOT)) == {"b": (5, NONE)}
        missing = plain_request(Api.OFFSET_DELETE, 0, group_id="gone", topics=topics[:1])
        await broker.grant((Do.DELETE, Kind.GROUP, "gone"))
        assert codes_of(await broker.ask(missing)) == [ErrorCode.group_id_not_found]

    tell_of(story)


def test_listed_and_described_groups_are_those_of_the_client() -> None:
    async def story(broker: GuardedBroker) -> None:
        await broker.ask(commit("a"), ROOT)
        listing = plain_request(Api.LIST_GROUPS, 5)
        assert (await broker.ask(listing)).groups == ()
        await broker.grant((Do.READ, Kind.GROUP, "g"))
        assert [one.group_id for one in (await broker.ask(listing)).groups] == ["g"]
        describe = plain_request(
            Api.DESCRIBE_GROUPS, 5, groups=["h", "g"], include_authorized_operations=True
        )
        hidden, shown = (await broker.ask(describe)).groups
        assert (hidden.group_id, hidden.error_code) == ("h", GROUP)
        assert hidden.authorized_operations == -(2**31)
        assert (shown.group_id, shown.error_code) == ("g", NONE)
        assert shown.authorized_operations == 1 << Do.READ | 1 << Do.DESCRIBE

    tell_of(story)


def heartbeat(member_id: str, **more: Any) -> Any:
    return plain_request(
        Api.CONSUMER_GROUP_HEARTBEAT,
        1,
        group_id="g",
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout=MINUTE,
        topic_partitions=[],
        **more,
    )


def assigned(answer: Any) -> set[UUID]:
    assert answer.error_code is NONE, answer
    return {one.topic_id for one in answer.assignment.topic_partitions}


def test_a_pattern_subscribes_to_topics_that_may_be_described() -> None:
    async def story(broker: GuardedBroker) -> None:
        await broker.grant((Do.READ, Kind.GROUP, "g"), (Do.DESCRIBE, Kind.TOPIC, "a"))
        joined = await broker.ask(heartbeat("m", subscribed_topic_regex=".*"))
        assert assigned(joined) == {broker.id_of("a")}
        named = heartbeat("n", subscribed_topic_names=["a", "b"])
        assert (await broker.ask(named)).error_code is TOPIC
        await broker.grant((Do.READ, Kind.TOPIC, "b"))
        again = await broker.ask(heartbeat("m", subscribed_topic_regex=".*"))
        assert assigned(again) == {broker.id_of("a"), broker.id_of("b")}

    tell_of(story)


def test_a_group_with_a_hidden_topic_is_described_without_members() -> None:
    async def story(broker: GuardedBroker) -> None:
        await broker.ask(heartbeat("m", subscribed_topic_names=["a", "b"]), ROOT)
        await broker.grant((Do.DESCRIBE, Kind.GROUP, "g"), (Do.DESCRIBE, Kind.TOPIC, "a"))
        describe = plain_request(Api.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"])
        (hidden,) = (await broker.ask(describe)).groups
        assert (hidden.group_id, hidden.error_code, hidden.members) == ("g", TOPIC, ())
        await broker.grant((Do.DESCRIBE, Kind.TOPIC, "b"))
        (shown,) = (await broker.ask(describe)).groups
        assert (shown.error_code, len(shown.members)) == (NONE, 1)

    tell_of(story)
