"""OffsetForLeaderEpoch (23): where an epoch ends, for truncation. Source: KIP-101, KIP-320."""

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


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer for every partition with the newest epoch up to the one asked for, and its end."""
    answer = Answer.to(request)

    async def ask(where: PartitionId, part: Any) -> tuple[int, int]:
        current = getattr(part, "current_leader_epoch", _UNKNOWN)
        return await node.replicas.end_of_epoch(where, current, part.leader_epoch)

    found = await ask_each(
        node.metadata.image, request.topics, lambda part: int(part.partition), ask
    )
    return answer.response(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            answer.entity(
                "OffsetForLeaderTopicResult",
                topic=topic.topic,
                partitions=tuple(
                    _part(answer, part.partition, outcome)
                    for part, outcome in zip(topic.partitions, outcomes, strict=True)
                ),
            )
            for topic, outcomes in zip(request.topics, found, strict=True)
        ),
    )


def _part(answer: Answer, number: int, outcome: tuple[int, int] | SparklogError) -> Any:
    failed = outcome if isinstance(outcome, SparklogError) else None
    epoch, end = (_UNKNOWN, _UNKNOWN) if isinstance(outcome, SparklogError) else outcome
    return answer.entity(
        "EpochEndOffset",
        error_code=code_of(failed),
        partition=number,
        leader_epoch=epoch,
        end_offset=end,
    )
