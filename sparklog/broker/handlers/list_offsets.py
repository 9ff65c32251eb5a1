"""ListOffsets (2): the offset at a time, and at the ends. Source: KIP-79, KIP-734, KIP-405."""

from __future__ import annotations

from typing import Any, Final

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of
from sparklog.broker.handlers.by_topic import ask_each
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.core.errors import SparklogError
from sparklog.core.types import PartitionId
from sparklog.protocol.building import Answer

_UNKNOWN: Final = -1
_READ_UNCOMMITTED: Final = 0


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer for every partition; where there is no such record the offset is -1."""
    answer = Answer.to(request)
    isolation = getattr(request, "isolation_level", _READ_UNCOMMITTED)

    async def ask(where: PartitionId, part: Any) -> tuple[int, int, int]:
        epoch = getattr(part, "current_leader_epoch", _UNKNOWN)
        return await node.replicas.list_offset(where, part.timestamp, isolation, epoch)

    found = await ask_each(
        node.metadata.image, request.topics, lambda part: int(part.partition_index), ask
    )
    return answer.response(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            answer.entity(
                "ListOffsetsTopicResponse",
                name=topic.name,
                partitions=tuple(
                    _part(answer, part.partition_index, outcome)
                    for part, outcome in zip(topic.partitions, outcomes, strict=True)
                ),
            )
            for topic, outcomes in zip(request.topics, found, strict=True)
        ),
    )


def _part(answer: Answer, number: int, outcome: tuple[int, int, int] | SparklogError) -> Any:
    failed = outcome if isinstance(outcome, SparklogError) else None
    timestamp, offset, epoch = (
        (_UNKNOWN, _UNKNOWN, _UNKNOWN) if isinstance(outcome, SparklogError) else outcome
    )
    return answer.entity(
        "ListOffsetsPartitionResponse",
        partition_index=number,
        error_code=code_of(failed),
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch,
    )
