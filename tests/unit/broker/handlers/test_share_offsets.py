"""Offsets of share groups on whole brokers: shown with their lag, altered and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers import handle
from sparklog.coordinator.share.delivery_state import (
    DeliveryState,
    SharePartitionKey,
    ShareStateUpdate,
    StateBatch,
)
from sparklog.core.config.broker import STANDARD_AUTHORIZER
from sparklog.protocol.api_keys import Api
from sparklog.protocol.topic_ids import uuid_of
from sparklog.security.acls import AclOperation as Do
from sparklog.security.acls import ResourceType as Kind
from tests.harness.access_node import ALICE, grant
from tests.harness.handler_requests import create_topics, produce
from tests.harness.live_cluster import RETRIED, LiveCluster
from tests.harness.plain_requests import codes_of, plain_request
from tests.harness.replica_cluster import batch

NONE = ErrorCode.none
BROKERS = 3
Shown = dict[tuple[str, int], tuple[int, int]]
"""By topic and partition: the start offset and the lag."""


class ShareClient:
    """A client of three brokers with the topics `a` and `b` of two partitions and the group `g`."""

    def __init__(self, cluster: LiveCluster) -> None:
        self.cluster = cluster
        self.coordinator = 0
        """The broker that gave the last answer."""

    async def ask(self, request: Any) -> Any:
        """Return the coordinator's answer, once it has loaded its log."""
        find = plain_request(Api.FIND_COORDINATOR, 6, coordinator_keys=["g"])
        async with asyncio.timeout(60):
            while True:
                (found,) = (await self.cluster.ask(1, find)).coordinators
                if found.error_code is NONE:
                    self.coordinator = int(found.node_id)
                    answer = await self.cluster.ask(self.coordinator, request)
                    if not RETRIED & set(map(ErrorCode, codes_of(answer))):
                        return answer
                await asyncio.sleep(0.05)

    async def beat(self, epoch: int, *names: str) -> Any:
        """Send a heartbeat of the member `m`."""
        beat = {"group_id": "g", "member_id": "m", "member_epoch": epoch}
        names_or_none = list(names) or None
        answer = await self.ask(
            plain_request(
                Api.SHARE_GROUP_HEARTBEAT,
                1,
                rack_id=None,
                subscribed_topic_names=names_or_none,
                **beat,
            )
        )
        assert answer.error_code is NONE, answer
        return answer

    async def join(self, *names: str) -> None:
        """Join, and send heartbeats until the member has all partitions of some topics."""
        epoch, asked = 0, names
        async with asyncio.timeout(60):
            while True:
                answer = await self.beat(epoch, *asked)
                epoch, asked = answer.member_epoch, ()
                if answer.assignment and len(answer.assignment.topic_partitions) == len(names):
                    return
                await asyncio.sleep(answer.heartbeat_interval.total_seconds())

    async def join_and_leave(self, *names: str) -> None:
        """Have a group without members, with states of all partitions of topics."""
        await self.join(*names)
        await self.beat(-1)

    async def send(self, topic: str, partition: int, records: int) -> None:
        """Append records."""
        leader = await self.cluster.leader(topic, partition)
        data = batch(*([b"x"] * records))
        answer = await self.cluster.ask(leader, produce(topic, (partition, data)))
        assert not any(codes_of(answer))

    async def shown(self, topics: list[Any] | None = None) -> Shown:
        """Return what the group's offsets are."""
        asked = [{"group_id": "g", "topics": topics}]
        answer = await self.ask(plain_request(Api.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=asked))
        assert not any(codes_of(answer)), answer
        return {
            (topic.topic_name, part.partition_index): (part.start_offset, part.lag)
            for group in answer.groups
            for topic in group.topics
            for part in topic.partitions
        }

    async def alter(self, offsets: dict[tuple[str, int], int]) -> Any:
        """Ask for new start offsets."""
        topics = [
            {
                "topic_name": topic,
                "partitions": [{"partition_index": number, "start_offset": offset}],
            }
            for (topic, number), offset in offsets.items()
        ]
        request = plain_request(Api.ALTER_SHARE_GROUP_OFFSETS, 0, group_id="g", topics=topics)
        return await self.ask(request)

    async def delete(self, *topics: str) -> Any:
        """Ask to forget the offsets of topics."""
        asked = [{"topic_name": topic} for topic in topics]
        request = plain_request(Api.DELETE_SHARE_GROUP_OFFSETS, 0, group_id="g", topics=asked)
        return await self.ask(request)

    async def finish(self, topic: str, partition: int, first: int, last: int) -> None:
        """Store, as a leader does, that the group is done with records beyond its start."""
        node = self.cluster.nodes[1].node
        key = SharePartitionKey("g", uuid_of(node.metadata.image.topics[topic].topic_id), partition)
        state = await node.share_states.read(key, 7)
        batch = StateBatch(first, last, DeliveryState.ACKNOWLEDGED, 1)
        count = last - first + 1
        update = ShareStateUpdate(key, state.state_epoch, 7, state.start_offset, (batch,), count)
        await node.share_states.write(update)


def tell_of(story: Callable[[ShareClient], Awaitable[None]], **settings: str) -> None:
    """Run a story on brokers with the topics `a` and `b`, of two partitions each."""
    cluster = LiveCluster(1, **settings)

    async def whole() -> None:
        await cluster.begin(BROKERS)
        assert not any(codes_of(await cluster.ask(1, create_topics("a", "b", partitions=2))))
        await story(ShareClient(cluster))

    cluster.run(whole())


def rows_of(answer: Any) -> list[tuple[str, Any, ErrorCode]]:
    """Return each topic and partition of an answer with its code."""
    return [
        (topic.topic_name, getattr(part, "partition_index", None), part.error_code)
        for topic in answer.responses
        for part in getattr(topic, "partitions", (topic,))
    ]


def test_offsets_are_shown_with_their_lag() -> None:
    async def story(client: ShareClient) -> None:
        await client.join_and_leave("a", "b")
        nothing = dict.fromkeys(((t, n) for t in "ab" for n in (0, 1)), (-1, -1))
        assert await client.shown() == nothing
        for topic, partition in nothing:
            await client.send(topic, partition, 10)
        altered = await client.alter({("a", 0): 2, ("a", 1): 10, ("b", 0): 0})
        assert not any(codes_of(altered))
        lag = {("a", 0): (2, 8), ("a", 1): (10, 0), ("b", 0): (0, 10)}
        assert await client.shown() == nothing | lag
        await client.finish("a", 0, 4, 6)
        asked = [{"topic_name": "a", "partitions": [0]}]
        assert await client.shown(asked) == {("a", 0): (2, 5)}

    tell_of(story)


def test_older_clients_see_offsets_without_lag_and_errors_of_parts() -> None:
    async def story(client: ShareClient) -> None:
        await client.join_and_leave("a")
        topics = [{"topic_name": name, "partitions": [0, 5]} for name in ("a", "none")]
        groups = [{"group_id": "g", "topics": topics}, {"group_id": "g", "topics": None}]
        request = plain_request(Api.DESCRIBE_SHARE_GROUP_OFFSETS, 0, groups=groups)
        named, whole = (await client.ask(request)).groups
        unknown = ErrorCode.unknown_topic_or_partition
        codes = [(t.topic_name, p.error_code) for t in named.topics for p in t.partitions]
        assert codes == [("a", NONE), ("a", unknown), ("none", unknown), ("none", unknown)]
        assert [p.partition_index for t in whole.topics for p in t.partitions] == [0, 1]

    tell_of(story)


def test_an_altered_group_begins_where_it_was_set() -> None:
    async def story(client: ShareClient) -> None:
        await client.join_and_leave("a")
        await client.send("b", 1, 10)
        answer = await client.alter({("b", 1): 4, ("b", 7): 1, ("none", 0): 1, ("a", 0): -1})
        unknown = ErrorCode.unknown_topic_or_partition
        assert rows_of(answer) == [
            ("b", 1, NONE),
            ("b", 7, unknown),
            ("none", 0, unknown),
            ("a", 0, ErrorCode.invalid_request),
        ]
        assert (await client.shown())["b", 1] == (4, 6)
        await client.join("a", "b")
        assert (await client.shown())["b", 1] == (4, 6)
        assert (await client.alter({("b", 1): 0})).error_code is ErrorCode.non_empty_group
        assert (await client.delete("b")).error_code is ErrorCode.non_empty_group
        await client.beat(-1)
        await client.alter({("b", 1): 1})
        await client.alter({("b", 1): 3})
        assert (await client.shown())["b", 1] == (3, 7)

    tell_of(story)


def test_deleted_offsets_are_gone_with_their_states() -> None:
    async def story(client: ShareClient) -> None:
        await client.join_and_leave("a", "b")
        await client.alter({("b", 0): 0, ("b", 1): 0})
        unknown = ErrorCode.unknown_topic_or_partition
        answer = await client.delete("b", "none")
        assert rows_of(answer) == [("b", None, NONE), ("none", None, unknown)]
        assert set(await client.shown()) == {("a", 0), ("a", 1)}
        (again,) = (await client.delete("b")).responses
        assert again.error_code is unknown
        assert again.error_message == "There is no offset information to delete."
        asked = [{"topic_name": "b", "partitions": [0, 1]}]
        assert await client.shown(asked) == {("b", 0): (-1, -1), ("b", 1): (-1, -1)}
        await client.join("a", "b")
        assert len(await client.shown()) == 4

    tell_of(story)


def test_a_new_group_begins_where_it_was_set() -> None:
    async def story(client: ShareClient) -> None:
        missing = ErrorCode.group_id_not_found
        assert await client.shown() == {}
        asked = [{"topic_name": "a", "partitions": [0]}]
        assert await client.shown(asked) == {("a", 0): (-1, -1)}
        assert (await client.delete("a")).error_code is missing
        assert (await client.alter({})).error_code is NONE
        assert (await client.delete("a")).error_code is missing
        assert not any(codes_of(await client.alter({("a", 1): 3})))
        assert await client.shown() == {("a", 1): (3, 0)}
        await client.join("a")
        assert (await client.shown())["a", 1] == (3, 0)

    tell_of(story)


def test_offsets_need_rights_of_the_group_and_of_each_topic() -> None:
    settings = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:ANONYMOUS"}

    async def story(client: ShareClient) -> None:
        await client.join_and_leave("a", "b")
        node = client.cluster.nodes[client.coordinator].node
        denied = ErrorCode.topic_authorization_failed
        await grant(node, (Do.DESCRIBE, Kind.GROUP, "g"), (Do.DESCRIBE, Kind.TOPIC, "a"))
        groups = [{"group_id": "g", "topics": None}, {"group_id": "h", "topics": None}]
        request = plain_request(Api.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=groups)
        mine, other = (await handle(node, request, ALICE)).groups
        assert [topic.topic_name for topic in mine.topics] == ["a"]
        assert other.error_code is ErrorCode.group_authorization_failed
        asked = [{"topic_name": name, "partitions": [0]} for name in "ba"]
        request = plain_request(
            Api.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=[{"group_id": "g", "topics": asked}]
        )
        (mine,) = (await handle(node, request, ALICE)).groups
        codes = {t.topic_name: p.error_code for t in mine.topics for p in t.partitions}
        assert codes == {"a": NONE, "b": denied}
        await grant(
            node,
            (Do.READ, Kind.GROUP, "g"),
            (Do.DELETE, Kind.GROUP, "g"),
            (Do.READ, Kind.TOPIC, "a"),
        )
        parts = [{"partition_index": 0, "start_offset": 0}]
        topics = [{"topic_name": name, "partitions": parts} for name in "ba"]
        request = plain_request(Api.ALTER_SHARE_GROUP_OFFSETS, 0, group_id="g", topics=topics)
        answer = await handle(node, request, ALICE)
        assert rows_of(answer) == [("b", 0, denied), ("a", 0, NONE)]
        topics = [{"topic_name": name} for name in "ba"]
        request = plain_request(Api.DELETE_SHARE_GROUP_OFFSETS, 0, group_id="g", topics=topics)
        answer = await handle(node, request, ALICE)
        assert rows_of(answer) == [("b", None, denied), ("a", None, NONE)]

    tell_of(story, **settings)
