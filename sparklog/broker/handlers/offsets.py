"""ListOffsets (2): the offset at a time, and at the ends. Source: KIP-79, KIP-734, KIP-405.

OffsetForLeaderEpoch (23): where an epoch ends, for truncation. Source: KIP-101, KIP-320.

DeleteRecords (21): drop everything before an offset. Source: KIP-107.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final

from sparklog.broker.handlers.request_parts import ResultShape, answer_each
from sparklog.broker.handlers.responses import NO_THROTTLE
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.request import RequestContext
from sparklog.cluster.metadata import changes
from sparklog.core.errors import OutcomeUnknown
from sparklog.core.types import PartitionId
from sparklog.protocol.messages.builder import ResponseBuilder

_UNKNOWN: Final = -1
_READ_UNCOMMITTED: Final = 0
SHAPE: Final[ResultShape[tuple[int, int, int]]] = ResultShape(
    topic="ListOffsetsTopicResponse",
    partition="ListOffsetsPartitionResponse",
    fields=lambda found: dict(zip(("timestamp", "offset", "leader_epoch"), found, strict=True)),
    unknown=(_UNKNOWN, _UNKNOWN, _UNKNOWN),
)


async def list_offsets(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Answer for every partition; where there is no such record the offset is -1."""
    answer = ResponseBuilder.to(request)
    isolation = getattr(request, "isolation_level", _READ_UNCOMMITTED)

    async def ask(where: PartitionId, part: Any) -> tuple[int, int, int]:
        epoch = getattr(part, "current_leader_epoch", _UNKNOWN)
        return await node.replicas.offset_lookup.list_offset(
            where, part.timestamp, isolation, epoch
        )

    topics = await answer_each(answer, SHAPE, node.metadata.image, request.topics, ask)
    return answer.response(throttle_time=NO_THROTTLE, topics=topics)


OFFSET_FOR_LEADER_EPOCH_SHAPE: Final[ResultShape[tuple[int, int]]] = ResultShape(
    topic="OffsetForLeaderTopicResult",
    partition="EpochEndOffset",
    fields=lambda found: dict(zip(("leader_epoch", "end_offset"), found, strict=True)),
    unknown=(_UNKNOWN, _UNKNOWN),
    name="topic",
    number="partition",
)


async def offset_for_leader_epoch(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Answer for every partition with the newest epoch up to the one asked for, and its end."""
    answer = ResponseBuilder.to(request)

    async def ask(where: PartitionId, part: Any) -> tuple[int, int]:
        current = getattr(part, "current_leader_epoch", _UNKNOWN)
        lookup = node.replicas.offset_lookup
        return await lookup.end_of_epoch(where, current, part.leader_epoch)

    topics = await answer_each(
        answer, OFFSET_FOR_LEADER_EPOCH_SHAPE, node.metadata.image, request.topics, ask
    )
    return answer.response(throttle_time=NO_THROTTLE, topics=topics)


MILLISECOND: Final = timedelta(milliseconds=1)
DELETE_RECORDS_SHAPE: Final[ResultShape[int]] = ResultShape(
    topic="DeleteRecordsTopicResult",
    partition="DeleteRecordsPartitionResult",
    fields=lambda start: {"low_watermark": start},
    unknown=-1,
)


async def delete_records(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Trim every partition led here and answer with where it starts now."""
    answer = ResponseBuilder.to(request)
    timeout_s = max(1, request.timeout // MILLISECOND) / 1000

    async def ask(where: PartitionId, part: Any) -> int:
        topic = node.metadata.image.topic_of(where.topic_id)
        if topic is not None:
            changes.check_may_delete_records(topic)
        try:
            async with asyncio.timeout(timeout_s):
                return await node.replicas.offset_lookup.delete_records(where, part.offset)
        except TimeoutError:
            raise OutcomeUnknown(f"not trimmed in time; ask again. partition={where}") from None

    topics = await answer_each(
        answer, DELETE_RECORDS_SHAPE, node.metadata.image, request.topics, ask
    )
    return answer.response(throttle_time=NO_THROTTLE, topics=topics)
