"""Produce, Fetch and the offsets: what handlers make of requests, and of errors."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from sparklog.broker.controller.controller import HeartbeatAnswer
from sparklog.broker.runtime.request import CloseConnection
from sparklog.core.types import PartitionId
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part
from sparklog.protocol.records.header import ATTRIBUTES_AT, TRANSACTIONAL_BIT
from sparklog.protocol.topic_ids import topic_id_of, uuid_of
from tests.harness.handler_node import PEER, ToyNode, tell
from tests.harness.handler_requests import (
    broker_heartbeat,
    create_topics,
    fetch,
    list_offsets,
    produce,
)
from tests.harness.replica_cluster import batch

NONE = ErrorCode.none


async def made(node: ToyNode, name: str = "t", partitions: int = 2) -> UUID:
    await node.ask(create_topics(name, partitions=partitions))
    return uuid_of(node.metadata.image.topics[name].topic_id)


def where(node: ToyNode, partition: int, name: str = "t") -> PartitionId:
    return PartitionId(node.metadata.image.topics[name].topic_id, partition)


def parts(answer: Any) -> list[Any]:
    return [p for t in answer.responses for p in getattr(t, "partition_responses", ())]


def read(answer: Any) -> list[Any]:
    return [p for t in answer.responses for p in t.partitions]


@pytest.mark.parametrize("version", [3, 9, 13])
def test_batches_are_appended_and_read(version: int) -> None:
    async def story(node: ToyNode) -> None:
        uuid = await made(node)
        topic = uuid if version == 13 else "t"
        answer = await node.ask(produce(topic, (0, b"one"), (1, b"two"), version=version))
        assert [(p.index, p.error_code, p.base_offset) for p in parts(answer)] == [
            (0, NONE, 0),
            (1, NONE, 0),
        ]
        assert parts(answer)[0].log_append_time.timestamp() == 1_600_000_000.123
        await node.ask(produce(topic, (0, b"three"), version=version))
        request = fetch(topic, (0, 0), (1, 0), version=version if version != 3 else 4)
        got = read(await node.ask(request))
        assert [(p.partition_index, p.records, p.high_watermark) for p in got] == [
            (0, b"onethree", 2),
            (1, b"two", 1),
        ]

    tell(story)


def test_every_partition_has_its_own_error() -> None:
    async def story(node: ToyNode) -> None:
        await made(node)
        answer = await node.ask(produce("t", (0, b"x"), (2, b"x"), (-1, b"x"), (0, b"y")))
        assert [p.error_code for p in parts(answer)] == [
            NONE,
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.unknown_topic_or_partition,
            ErrorCode.invalid_request,
        ]
        assert node.replicas.logs == {where(node, 0): [b"x"]}
        answer = await node.ask(produce("nobody", (0, b"x")))
        assert [p.error_code for p in parts(answer)] == [ErrorCode.unknown_topic_or_partition]
        answer = await node.ask(produce(UUID(int=7), (0, b"x"), version=13))
        assert [p.error_code for p in parts(answer)] == [ErrorCode.unknown_topic_id]

    tell(story)


def test_batches_for_unknown_partitions_are_remembered() -> None:
    async def story(node: ToyNode) -> None:
        await made(node)
        uuid = UUID(int=7)
        await node.ask(produce("t", (0, b"a"), (2, b"b"), (0, b"twice")))
        await node.ask(produce("soon", (1, b"c")))
        await node.ask(produce(uuid, (3, b"d"), version=13))
        await node.ask(produce("soon", (1, b"wrong"), acks=2))
        assert node.replicas.unasked == [
            (where(node, 2), b"b"),
            (PartitionId("soon", 1), b"c"),
            (PartitionId(topic_id_of(uuid), 3), b"d"),
        ]

    tell(story)


def test_batch_rejected_by_its_transaction_look_up_is_remembered() -> None:
    async def story(node: ToyNode) -> None:
        await made(node)
        data = bytearray(batch(b"x", producer_id=7, sequence=0))
        data[ATTRIBUTES_AT + 1] |= TRANSACTIONAL_BIT
        request = produce("t", (0, bytes(data)), transactional_id="tx", version=12)
        node.replicas.elsewhere.add(where(node, 0))
        answer = await node.ask(request)
        assert [p.error_code for p in parts(answer)] == [ErrorCode.not_leader_or_follower]
        assert node.replicas.unasked == [(where(node, 0), bytes(data))]

    tell(story)


def test_a_producer_that_wants_no_answer_gets_none() -> None:
    async def story(node: ToyNode) -> None:
        await made(node)
        assert await node.ask(produce("t", (0, b"x"), acks=0)) is None
        assert node.replicas.acks == 0
        with pytest.raises(CloseConnection):
            await node.ask(produce("nobody", (0, b"x"), acks=0))

    tell(story)


def test_acks_that_do_not_exist_are_refused() -> None:
    async def story(node: ToyNode) -> None:
        await made(node)
        answer = await node.ask(produce("t", (0, b"x"), acks=2))
        assert [p.error_code for p in parts(answer)] == [ErrorCode.invalid_required_acks]
        assert node.replicas.logs == {}

    tell(story)


def test_wrong_broker_names_the_leader() -> None:
    async def story(node: ToyNode) -> None:
        uuid = await made(node, partitions=1)
        node.replicas.elsewhere.add(where(node, 0))
        leader = node.metadata.image.topics["t"].partition_states[0].leader
        endpoint = (leader, f"broker-{leader}")

        answer = await node.ask(produce("t", (0, b"x"), version=10))
        (part,) = parts(answer)
        assert part.error_code is ErrorCode.not_leader_or_follower
        assert part.current_leader.leader_id == leader
        assert [(e.node_id, e.host) for e in answer.node_endpoints] == [endpoint]

        answer = await node.ask(fetch(uuid, (0, 0), version=16))
        (part,) = read(answer)
        assert part.error_code is ErrorCode.not_leader_or_follower
        assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (leader, 0)
        assert [(e.node_id, e.host) for e in answer.node_endpoints] == [endpoint]
        old = await node.ask(produce("t", (0, b"x"), version=9))
        assert parts(old)[0].error_code is ErrorCode.not_leader_or_follower

    tell(story, brokers=(1, 2))


def test_fetch_is_bounded_by_the_brokers_limit() -> None:
    async def story(node: ToyNode) -> None:
        uuid = await made(node)
        state = build_request_part(Api.FETCH, 15, "ReplicaState", replica_id=2, replica_epoch=5)
        more = {"replica_state": state, "max_wait": timedelta(milliseconds=-5), "min_bytes": -1}
        await node.ask(fetch(uuid, (0, 0), version=15, **more), PEER)
        spec = node.replicas.spec
        assert spec is not None
        assert (spec.replica_id, spec.replica_epoch) == (2, 5)
        assert (spec.max_wait_ms, spec.min_bytes, spec.max_bytes) == (0, 0, 2048)

    tell(story, fetch_max_bytes="2048")


def test_fetch_session_returns_only_news() -> None:
    async def story(node: ToyNode) -> None:
        uuid = await made(node)
        first = await node.ask(fetch(uuid, (0, 0), (1, 0), version=16, session_epoch=0))
        assert [p.partition_index for p in read(first)] == [0, 1]
        session: dict[str, Any] = {"session_id": first.session_id, "version": 16}
        assert first.session_id > 0
        await node.ask(produce("t", (1, b"x")))
        second = await node.ask(fetch(uuid, session_epoch=1, **session))
        assert second.session_id == first.session_id
        assert [(p.partition_index, p.records) for p in read(second)] == [(1, b"x")]
        asked = where(node, 1)
        third = await node.ask(fetch(uuid, (1, 1), session_epoch=2, **session))
        assert node.replicas.spec is not None
        assert node.replicas.spec.partitions[asked].offset == 1
        assert third.responses == ()
        late = await node.ask(fetch(uuid, session_epoch=2, **session))
        assert late.error_code is ErrorCode.invalid_fetch_session_epoch
        by_name = fetch("t", session_id=first.session_id, session_epoch=3)
        answer = await node.ask(by_name)
        assert answer.error_code is ErrorCode.fetch_session_topic_id_error
        forgets = build_request_part(
            Api.FETCH, 16, "ForgottenTopic", topic_id=uuid, partitions=(0, 1)
        )
        session["forgotten_topics_data"] = (forgets,)
        last = await node.ask(fetch(uuid, session_epoch=3, **session))
        assert (last.session_id, last.responses, len(node.fetch_sessions)) == (0, (), 0)
        gone = await node.ask(fetch(uuid, session_epoch=4, **session))
        assert gone.error_code is ErrorCode.fetch_session_id_not_found

    tell(story)


def test_a_client_that_wants_no_session_gets_none() -> None:
    async def story(node: ToyNode) -> None:
        uuid = await made(node)
        answer = await node.ask(fetch(uuid, (0, 0), version=16, session_epoch=-1))
        assert (answer.error_code, answer.session_id) == (NONE, 0)
        assert len(node.fetch_sessions) == 0

    tell(story)


def test_offsets_are_listed() -> None:
    async def story(node: ToyNode) -> None:
        await made(node)
        await node.ask(produce("t", (0, b"x")))
        node.replicas.elsewhere.add(where(node, 1))
        answer = await node.ask(list_offsets("t", (0, -1), (0, -2), (1, -1), (5, -1)))
        found = [(p.error_code, p.offset) for t in answer.topics for p in t.partitions]
        assert found == [
            (NONE, 1),
            (NONE, 0),
            (ErrorCode.not_leader_or_follower, -1),
            (ErrorCode.unknown_topic_or_partition, -1),
        ]

    tell(story)


def test_an_epochs_end_and_records_before_an_offset() -> None:
    async def story(node: ToyNode) -> None:
        await made(node)
        await node.ask(produce("t", (0, b"x")))
        api = Api.OFFSET_FOR_LEADER_EPOCH
        part = build_request_part(api, 4, "OffsetForLeaderPartition", partition=0, leader_epoch=1)
        topic = build_request_part(api, 4, "OffsetForLeaderTopic", topic="t", partitions=(part,))
        answer = await node.ask(build_request(api, 4, topics=(topic,)))
        assert answer.topics[0].partitions[0].end_offset == 1

        api = Api.DELETE_RECORDS
        asked = tuple(
            build_request_part(api, 2, "DeleteRecordsPartition", partition_index=0, offset=offset)
            for offset in (-1, 9)
        )
        topic = build_request_part(api, 2, "DeleteRecordsTopic", name="t", partitions=asked)
        answer = await node.ask(
            build_request(api, 2, topics=(topic,), timeout=timedelta(seconds=1))
        )
        assert [(p.error_code, p.low_watermark) for p in answer.topics[0].partitions] == [
            (NONE, 1),
            (ErrorCode.offset_out_of_range, -1),
        ]

    tell(story)


def test_log_dirs_show_partition_sizes() -> None:
    async def story(node: ToyNode) -> None:
        await made(node)
        await node.ask(produce("t", (0, b"four"), (1, b"x")))
        (everything,) = (
            await node.ask(build_request(Api.DESCRIBE_LOG_DIRS, 4, topics=None))
        ).results
        assert [(p.partition_index, p.partition_size) for p in everything.topics[0].partitions] == [
            (0, 4),
            (1, 1),
        ]
        topic = build_request_part(
            Api.DESCRIBE_LOG_DIRS, 4, "DescribableLogDirTopic", topic="t", partitions=(1,)
        )
        (one,) = (await node.ask(build_request(Api.DESCRIBE_LOG_DIRS, 4, topics=(topic,)))).results
        assert [p.partition_index for p in one.topics[0].partitions] == [1]

    tell(story)


def test_producer_ids_are_never_given_twice() -> None:
    async def story(node: ToyNode) -> None:
        other = ToyNode(node.environment, {})
        other.broker_id = 1
        await other.metadata.open()
        request = build_request(
            Api.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout=timedelta(0)
        )
        ids = [(await n.ask(request)).producer_id for _ in range(1500) for n in (node, other)]
        assert len(set(ids)) == 3000
        assert node.metadata.image.next_producer_id <= 5000

    tell(story)


def test_init_producer_id_waits_for_a_coordinator_or_for_registration() -> None:
    async def story(node: ToyNode) -> None:
        for transactional_id, code in (
            ("tx", ErrorCode.not_coordinator),
            (None, ErrorCode.coordinator_load_in_progress),
        ):
            request = build_request(
                Api.INIT_PRODUCER_ID,
                4,
                transactional_id=transactional_id,
                transaction_timeout=timedelta(0),
            )
            assert (await node.ask(request)).error_code is code

    tell(story, brokers=(2,))


def test_a_heartbeat_is_for_the_controller() -> None:
    async def story(node: ToyNode) -> None:
        request = broker_heartbeat(2, 1)
        assert (await node.ask(request, PEER)).error_code is ErrorCode.not_controller
        node.heartbeat_answer = HeartbeatAnswer(NONE, is_fenced=False, is_caught_up=True)
        assert (await node.ask(request, PEER)).is_caught_up

    tell(story)
