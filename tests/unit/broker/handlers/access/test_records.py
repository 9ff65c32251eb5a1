"""Reads and writes of records, with rights that come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.produce import begin as begin_produce
from sparklog.broker.runtime.request import UNTHROTTLED, CloseConnection, RequestContext
from sparklog.core.types import PartitionId
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages import frames, produce_fast_path
from sparklog.protocol.topic_ids import topic_id_of
from sparklog.security.acls import AclOperation as Do
from sparklog.security.acls import AclPermission
from sparklog.security.acls import ResourceType as Kind
from tests.harness.access_data import transactional_batch
from tests.harness.access_node import (
    ALICE,
    HOST,
    ROOT,
    grant,
    new_topic,
    revoke_all,
    tell_guarded,
)
from tests.harness.handler_node import PEER, ToyNode
from tests.harness.handler_requests import fetch, produce
from tests.harness.plain_requests import codes_of, plain_request
from tests.harness.replica_cluster import batch

DENIED = ErrorCode.topic_authorization_failed
NONE = ErrorCode.none
UNKNOWN_ID = ErrorCode.unknown_topic_id
WRITES_A = (Do.WRITE, Kind.TOPIC, "a")
READS_A = (Do.READ, Kind.TOPIC, "a")


class ReplyOnce:
    """Takes the answer of a request that was begun."""

    def __init__(self, request: Any) -> None:
        self._request_type = type(request)
        self.response: Any = None

    def answer(self, frame: bytearray, throttle: timedelta = UNTHROTTLED) -> None:
        self.response = frames.decode_response(bytes(frame)[4:], self._request_type)

    def go_on(self, work: Coroutine[Any, Any, Any]) -> None:
        work.close()
        raise AssertionError("the request fails after it began")


def begun(node: ToyNode, request: Any, context: RequestContext) -> Any:
    """Return the answer of a Produce request that is begun at once, None for one that is not."""
    plain = produce_fast_path.read(bytes(frames.encode_request(request, 0, None))[4:])
    assert plain is not None
    reply = ReplyOnce(request)
    return reply.response if begin_produce(node.as_node(), plain, reply, context) else None


def produce_to(names: list[str], version: int = 9, acks: int = -1, **more: Any) -> Any:
    data = [{"index": 0, "records": batch(b"x")}]
    topics = [{"name": name, "partition_data": data} for name in names]
    return plain_request(Api.PRODUCE, version, acks=acks, topic_data=topics, **more)


def results(answer: Any) -> list[tuple[str, ErrorCode]]:
    return [(one.name, one.partition_responses[0].error_code) for one in answer.responses]


def log_of(node: ToyNode, name: str) -> list[bytes]:
    topic = node.metadata.image.topics[name]
    return node.replicas.logs.get(PartitionId(topic.topic_id, 0), [])


def test_a_produce_begins_at_once_only_with_the_right() -> None:
    async def story(node: ToyNode) -> None:
        topic_id = await new_topic(node, "a")
        by_name = produce("a", (0, batch(b"x")))
        by_id = produce(topic_id, (0, batch(b"x")), version=13)
        for request in (by_name, by_id):
            assert begun(node, request, ALICE) is None
            assert codes_of(await node.ask(request, ALICE)) == [DENIED]
        assert log_of(node, "a") == []
        await grant(node, WRITES_A)
        for request in (by_name, by_id):
            assert codes_of(begun(node, request, ALICE)) == [NONE]
        await revoke_all(node)
        assert begun(node, by_name, ALICE) is None
        assert codes_of(await node.ask(by_name, ALICE)) == [DENIED]
        assert len(log_of(node, "a")) == 2
        for context in (ROOT, PEER):
            assert codes_of(begun(node, by_name, context)) == [NONE]

    tell_guarded(story)


def test_topics_of_a_produce_are_written_or_denied_one_by_one() -> None:
    async def story(node: ToyNode) -> None:
        for name in ("a", "b"):
            await new_topic(node, name)
        await grant(node, WRITES_A)
        answer = await node.ask(produce_to(["b", "a", "hidden"]), ALICE)
        assert results(answer) == [("b", DENIED), ("a", NONE), ("hidden", DENIED)]
        assert (len(log_of(node, "a")), log_of(node, "b")) == (1, [])
        unknown = plain_request(
            Api.PRODUCE, 13, acks=1,
            topic_data=[{"topic_id": UUID(int=9), "partition_data": [{"index": 0}]}],
        )  # fmt: skip
        assert codes_of(await node.ask(unknown, ALICE)) == [UNKNOWN_ID]

    tell_guarded(story)


def test_denied_produce_with_acks_0_closes_the_connection() -> None:
    async def story(node: ToyNode) -> None:
        for name in ("a", "b"):
            await new_topic(node, name)
        await grant(node, WRITES_A)
        assert await node.ask(produce_to(["a"], acks=0), ALICE) is None
        with pytest.raises(CloseConnection, match="Topic authorization failed"):
            await node.ask(produce_to(["a", "b"], acks=0), ALICE)
        assert (len(log_of(node, "a")), log_of(node, "b")) == (2, [])
        part = {"index": 0, "records": transactional_batch()}
        transactional = plain_request(
            Api.PRODUCE, 9, acks=0, topic_data=[{"name": "a", "partition_data": [part]}]
        )
        with pytest.raises(CloseConnection, match="Transactional Id authorization failed"):
            await node.ask(transactional, ALICE)
        assert len(log_of(node, "a")) == 2

    tell_guarded(story)


def fetched(answer: Any) -> dict[Any, list[ErrorCode]]:
    assert answer.error_code is NONE
    return {
        getattr(one, "topic", getattr(one, "topic_id", None)): [
            part.error_code for part in one.partitions
        ]
        for one in answer.responses
    }


def test_fetch_session_applies_the_newest_acls_to_known_topics() -> None:
    async def story(node: ToyNode) -> None:
        topic_id = await new_topic(node, "a", partitions=2)
        consumer = {"replica_id": -1, "replica_epoch": -1}
        first = plain_request(
            Api.FETCH, 17, session_epoch=0, replica_state=consumer, max_bytes=1000,
            topics=[{"topic_id": topic_id, "partitions": [{"partition": p} for p in (0, 1)]}],
        )  # fmt: skip
        await grant(node, READS_A)
        answer = await node.ask(first, ALICE)
        assert fetched(answer) == {topic_id: [NONE, NONE]}
        session = {"session_id": answer.session_id, "max_bytes": 1000, "replica_state": consumer}
        later = [plain_request(Api.FETCH, 17, session_epoch=n, **session) for n in (1, 2, 3, 4)]
        assert fetched(await node.ask(later[0], ALICE)) == {}
        await revoke_all(node)
        for request in later[1:3]:
            answer = await node.ask(request, ALICE)
            assert fetched(answer) == {topic_id: [DENIED, DENIED]}
            assert not any(part.records for part in answer.responses[0].partitions)
        await grant(node, READS_A)
        assert fetched(await node.ask(later[3], ALICE)) == {topic_id: [NONE, NONE]}

    tell_guarded(story)


def test_a_fetch_that_waited_is_answered_by_the_newest_acls() -> None:
    async def story(node: ToyNode) -> None:
        await new_topic(node, "a")
        await new_topic(node, "b")
        await grant(node, READS_A, (Do.READ, Kind.TOPIC, "b"))
        news = node.replicas.fetches_wait_for = asyncio.Event()
        waiting = [
            asyncio.create_task(node.ask(fetch(name, (0, 0)), user))
            for name, user in (("a", ALICE), ("b", ALICE), ("a", ROOT), ("a", PEER))
        ]
        await asyncio.sleep(0)
        await revoke_all(node)
        await grant(node, (Do.READ, Kind.TOPIC, "b"))
        await node.ask(produce("a", (0, batch(b"later"))), ROOT)
        await node.ask(produce("b", (0, batch(b"later"))), ROOT)
        news.set()
        answers = await asyncio.gather(*waiting)
        assert [list(fetched(answer).values()) for answer in answers] == [
            [[DENIED]], [[NONE]], [[NONE]], [[NONE]],
        ]  # fmt: skip
        read = [bool(answer.responses[0].partitions[0].records) for answer in answers]
        assert read == [False, True, True, True]

    tell_guarded(story)


def test_a_fetch_does_not_say_whether_a_denied_topic_exists() -> None:
    async def story(node: ToyNode) -> None:
        topic_id = await new_topic(node, "a")
        for name in ("a", "missing"):
            answer = await node.ask(fetch(name, (0, 0), session_epoch=-1), ALICE)
            assert fetched(answer) == {name: [DENIED]}
        assert node.replicas.spec is not None
        assert not node.replicas.spec.partitions
        answer = await node.ask(fetch("a", (0, 0), session_epoch=-1), PEER)
        assert fetched(answer) == {"a": [NONE]}
        for replica in (1, 2):  # a client is no replica, with the right of CLUSTER_ACTION or not
            await grant(node, (Do.CLUSTER_ACTION, Kind.CLUSTER, "kafka-cluster"))
            answer = await node.ask(fetch("a", (0, 0), replica_id=replica), ALICE)
            assert answer.error_code is ErrorCode.cluster_authorization_failed
        assert topic_id_of(topic_id) == node.metadata.image.topics["a"].topic_id

    tell_guarded(story)


TOPICS = ("a", "b", "c", "d")


@settings(max_examples=60, deadline=None)
@given(
    asked=st.lists(st.sampled_from(TOPICS), max_size=6),
    existing=st.sets(st.sampled_from(TOPICS)),
    allowed=st.sets(st.sampled_from(TOPICS)),
    denied=st.sets(st.sampled_from(TOPICS)),
)
def test_exactly_the_allowed_topics_are_read_and_written(
    asked: list[str], existing: set[str], allowed: set[str], denied: set[str]
) -> None:
    """The model: a topic is touched if it exists, an ACL allows it, and none denies it."""

    async def story(node: ToyNode) -> None:
        for name in sorted(existing):
            await new_topic(node, name)
        both = (Do.READ, Do.WRITE)
        await grant(node, *((do, Kind.TOPIC, n) for n in sorted(allowed) for do in both))
        await grant(
            node,
            *((do, Kind.TOPIC, n) for n in sorted(denied) for do in both),
            permission=AclPermission.DENY,
        )
        open_topics = allowed - denied
        wanted = [
            DENIED
            if name not in open_topics
            else NONE
            if name in existing
            else ErrorCode.unknown_topic_or_partition
            for name in asked
        ]
        once = dict.fromkeys(asked)
        found = dict(results(await node.ask(produce_to(list(once)), ALICE)))
        assert found == dict(zip(asked, wanted, strict=True))
        written = {name for name in existing if log_of(node, name)}
        assert written == set(asked) & open_topics & existing
        topics = [{"topic": name, "partitions": [{"partition": 0}]} for name in asked]
        read = plain_request(
            Api.FETCH, 12, session_epoch=-1, replica_id=-1, max_bytes=1000, topics=topics
        )
        answer = fetched(await node.ask(read, ALICE))
        assert {name: code for name, (code,) in answer.items()} == found

    tell_guarded(story)


def test_a_transaction_gets_all_partitions_or_none() -> None:
    def add(*names: str) -> Any:
        return plain_request(
            Api.ADD_PARTITIONS_TO_TXN, 3, v3_and_below_transactional_id="x",
            v3_and_below_topics=[{"name": name, "partitions": [0, 7]} for name in names],
        )  # fmt: skip

    async def story(node: ToyNode) -> None:
        for name in ("a", "b"):
            await new_topic(node, name)
        await grant(node, (Do.WRITE, Kind.TRANSACTIONAL_ID, "x"), WRITES_A)
        unknown, untried = ErrorCode.unknown_topic_or_partition, ErrorCode.operation_not_attempted
        answer = await node.ask(add("a", "b", "hidden"), ALICE)
        assert codes_of(answer) == [untried, unknown, DENIED, DENIED, DENIED, DENIED]
        broker_call = plain_request(Api.ADD_PARTITIONS_TO_TXN, 5)
        await grant(node, (Do.ALL, Kind.CLUSTER, "kafka-cluster"))
        assert codes_of(await node.ask(broker_call, ALICE)) == [31]

    tell_guarded(story)


def test_checks_come_in_kafkas_order() -> None:
    """A transaction's offsets need the transactional id, then the group, then each topic."""

    async def story(node: ToyNode) -> None:
        await new_topic(node, "a")
        part = {"partition_index": 0}
        request = plain_request(
            Api.TXN_OFFSET_COMMIT, 3, transactional_id="x", group_id="g",
            topics=[{"name": "a", "partitions": [part]}, {"name": "a", "partitions": [part]}],
        )  # fmt: skip
        assert codes_of(await node.ask(request, ALICE)) == [53, 53]
        await grant(node, (Do.WRITE, Kind.TRANSACTIONAL_ID, "x"))
        assert codes_of(await node.ask(request, ALICE)) == [30, 30]
        await grant(node, (Do.READ, Kind.GROUP, "g"))
        assert codes_of(await node.ask(request, ALICE)) == [DENIED, DENIED]

    tell_guarded(story)


def test_a_client_without_rights_writes_no_marker() -> None:
    async def story(node: ToyNode) -> None:
        await new_topic(node, "a")
        topics = [{"name": "a", "partition_indexes": [0]}]
        marker = {"producer_id": 7, "producer_epoch": 1, "topics": topics}
        request = plain_request(Api.WRITE_TXN_MARKERS, 1, markers=[marker])
        assert codes_of(await node.ask(request, ALICE)) == [31]
        assert node.replicas.txn_markers.markers == []
        await grant(node, (Do.ALTER, Kind.CLUSTER, "kafka-cluster"))
        assert codes_of(await node.ask(request, ALICE)) == [NONE]
        commit = plain_request(
            Api.WRITE_TXN_MARKERS, 1, markers=[{**marker, "transaction_result": True}]
        )
        assert codes_of(await node.ask(commit, ALICE)) == [31]
        assert len(node.replicas.txn_markers.markers) == 1

    tell_guarded(story)


def test_the_host_of_an_acl_is_the_address_of_the_client() -> None:
    elsewhere = RequestContext("client", "192.0.2.1", ALICE.principal)

    async def story(node: ToyNode) -> None:
        await new_topic(node, "a")
        await grant(node, WRITES_A, host=HOST)
        request = produce("a", (0, batch(b"x")))
        assert codes_of(begun(node, request, ALICE)) == [NONE]
        assert begun(node, request, elsewhere) is None
        assert codes_of(await node.ask(request, elsewhere)) == [DENIED]

    tell_guarded(story)
