"""The lag of share groups, and the ends of partitions that other brokers lead."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.responses import NO_THROTTLE
from sparklog.broker.runtime.environment import Address, Unreachable
from sparklog.broker.share.offset_admin import ends_of, lag_of
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import (
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
)
from sparklog.coordinator.share.delivery_state import ShareState
from sparklog.core.errors import NotServing
from sparklog.core.types import PartitionId
from sparklog.protocol.messages.builder import ResponseBuilder
from sparklog.protocol.topic_ids import topic_id_of

TOPIC = UUID(int=5)
LEADERS = (1, 2, 2, 3, 1)
"""Leaders of the partitions; broker 1 asks."""


def image() -> MetadataImage:
    topic_id = topic_id_of(TOPIC)
    records: list[Record] = [
        *(RegisterBrokerRecord(i, f"{i:032x}", f"b{i}", 9092, None) for i in (1, 2, 3)),
        TopicRecord("t", topic_id),
        *(PartitionRecord(topic_id, n, (i,), (i,), i, 0) for n, i in enumerate(LEADERS)),
    ]
    return MetadataImage().applied(records, len(records))


class LeadersNetwork:
    """Broker 2 answers for its partitions, except one; broker 3 does not answer."""

    def __init__(self, failure: Exception) -> None:
        self.failure = failure

    async def call(self, peer: Address, request: Any, **more: Any) -> Any:
        """Answer a ListOffsets."""
        if peer.host == "b3":
            raise self.failure
        answer = ResponseBuilder.to(request)
        (topic,) = request.topics
        parts = tuple(
            answer.entity(
                "ListOffsetsPartitionResponse",
                partition_index=part.partition_index,
                error_code=ErrorCode.not_leader_or_follower
                if part.partition_index == 2
                else ErrorCode.none,
                timestamp=-1,
                offset=40 + part.partition_index,
                leader_epoch=0,
            )
            for part in topic.partitions
        )
        found = answer.entity("ListOffsetsTopicResponse", name=topic.name, partitions=parts)
        return answer.response(throttle_time=NO_THROTTLE, topics=(found,))


@pytest.mark.parametrize("failure", [Unreachable("refused"), TimeoutError()])
def test_ends_of_partitions_come_from_their_leaders(failure: Exception) -> None:
    async def look_up(where: PartitionId) -> int:
        if where.partition == 4:
            raise NotServing("another broker leads it by now")
        return 30

    async def whole() -> None:
        parts = [(TOPIC, n) for n in (*range(len(LEADERS)), 9)]
        network: Any = LeadersNetwork(failure)
        found = await ends_of(parts, image(), 1, look_up, network)
        assert found == {(TOPIC, 0): 30, (TOPIC, 1): 41}

    asyncio.run(whole())


def test_lag_counts_unfinished_records() -> None:
    assert lag_of(ShareState(1, 10, delivery_complete_count=3), 20) == 7
    assert lag_of(ShareState(1, 10), 20) == 10
    assert lag_of(ShareState(1, 30), 20) == 0, "the log was truncated"
    assert lag_of(ShareState(1, 10), None) == -1
    assert lag_of(ShareState(1), 20) == -1
