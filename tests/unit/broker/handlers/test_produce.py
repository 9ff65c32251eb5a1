"""Produce without a task: what is begun, what is left to the general handler, and errors."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.produce import begin as begin_produce
from sparklog.broker.runtime.request import UNTHROTTLED, RequestContext
from sparklog.cluster.metadata import changes
from sparklog.coordinator.internal_topics import GROUPS_TOPIC
from sparklog.core.quotas import PRODUCER_BYTE_RATE, entity_of
from sparklog.core.types import PartitionId
from sparklog.protocol.messages import frames, produce_fast_path
from sparklog.protocol.records.header import ATTRIBUTES_AT, TRANSACTIONAL_BIT
from sparklog.protocol.topic_ids import uuid_of
from sparklog.security.principal import USER, Principal
from tests.harness.handler_node import ToyNode, tell
from tests.harness.handler_requests import create_topics, produce
from tests.harness.replica_cluster import batch

CLIENT = RequestContext("c", "127.0.0.1", Principal(USER, "etl"))


class Told:
    """Takes one answer."""

    def __init__(self, request: Any) -> None:
        self._request_type = type(request)
        self.response: Any = None
        self.work: Coroutine[Any, Any, Any] | None = None
        self.throttle = UNTHROTTLED

    def answer(self, frame: bytearray, throttle: timedelta = UNTHROTTLED) -> None:
        assert self.response is None
        self.throttle = throttle
        self.response = frames.decode_response(bytes(frame)[4:], self._request_type)

    def go_on(self, work: Coroutine[Any, Any, Any]) -> None:
        assert self.work is None
        self.work = work


def begin(node: ToyNode, request: Any) -> Told | None:
    """Begin a request as the listener does; None when it is left to the general handler."""
    plain = produce_fast_path.read(bytes(frames.encode_request(request, 5, "c"))[4:])
    assert plain is not None
    told = Told(request)
    return told if begin_produce(node.as_node(), plain, told, CLIENT) else None


def parts(response: Any) -> list[tuple[int, ErrorCode, int]]:
    return [
        (p.index, p.error_code, p.base_offset)
        for t in response.responses
        for p in t.partition_responses
    ]


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
@pytest.mark.parametrize("acks", [1, -1])
def test_batches_are_appended_and_answered(version: int, acks: int) -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t", partitions=2))
        topic_id = node.metadata.image.topics["t"].topic_id
        topic = uuid_of(topic_id) if version == 13 else "t"
        request = produce(topic, (1, batch(b"a")), (0, batch(b"b")), version=version, acks=acks)
        for offset in (0, 1):
            told = begin(node, request)
            assert told is not None
            none = ErrorCode.none
            assert parts(told.response) == [(1, none, offset), (0, none, offset)]
        assert node.replicas.logs == {
            PartitionId(topic_id, 1): [batch(b"a")] * 2,
            PartitionId(topic_id, 0): [batch(b"b")] * 2,
        }
        assert node.replicas.acks == acks

    tell(story)


def test_fast_path_leaves_other_requests_to_the_general_handler() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t", partitions=2))
        plain = batch(b"a")
        transactional = bytearray(plain)
        transactional[ATTRIBUTES_AT + 1] |= TRANSACTIONAL_BIT
        twice = produce("t", (0, plain), (0, plain))
        for request in (
            produce("t", (0, plain), (1, bytes(transactional))),
            produce("t", (0, plain), (2, plain)),
            produce("t", (-1, plain)),
            produce("unknown", (0, plain)),
            produce(GROUPS_TOPIC, (0, plain)),
            produce("t", (0, plain), acks=0),
            produce("t", (0, plain), acks=2),
            produce("t"),
            twice,
        ):
            assert begin(node, request) is None
        node.replicas.busy = True
        assert begin(node, produce("t", (0, plain))) is None
        assert node.replicas.logs == {}

    tell(story)


def test_fast_path_reports_an_error_as_the_general_handler() -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t", partitions=2))
        topic_id = node.metadata.image.topics["t"].topic_id
        node.replicas.elsewhere.add(PartitionId(topic_id, 1))
        request = produce("t", (0, batch(b"a")), (1, batch(b"b")), version=10)
        told = begin(node, request)
        assert told is not None
        assert told.response is None
        assert told.work is not None
        response = await told.work
        assert parts(response) == [
            (0, ErrorCode.none, 0),
            (1, ErrorCode.not_leader_or_follower, -1),
        ]
        assert response.responses[0].partition_responses[1].current_leader.leader_id == 1
        assert [job.batches for job in node.replicas.finished] == [
            {PartitionId(topic_id, 0): batch(b"a"), PartitionId(topic_id, 1): batch(b"b")}
        ]

    tell(story)


@pytest.mark.parametrize("entity", [{"client-id": "c"}, {"user": "etl"}])
@pytest.mark.parametrize("version", [3, 9, 13])
def test_fast_path_throttles_a_client_over_its_quota(
    version: int, entity: dict[str, str | None]
) -> None:
    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("t"))
        topic_id = node.metadata.image.topics["t"].topic_id
        await node.metadata.decide(
            lambda image: changes.alter(image, entity_of(entity), {PRODUCER_BYTE_RATE: 100.0})
        )
        topic = uuid_of(topic_id) if version == 13 else "t"
        told = begin(node, produce(topic, (0, batch(b"x" * 3000)), version=version))
        assert told is not None
        assert told.throttle == told.response.throttle_time > timedelta(seconds=20)
        node.replicas.elsewhere.add(PartitionId(topic_id, 0))
        failed = begin(node, produce(topic, (0, batch(b"x")), version=version))
        assert failed is not None
        assert failed.work is not None
        assert (await failed.work).throttle_time > timedelta(seconds=20)

    tell(story)
