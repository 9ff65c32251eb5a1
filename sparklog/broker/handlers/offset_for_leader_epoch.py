"""OffsetForLeaderEpoch (23): where an epoch ends, for truncation. Source: KIP-101, KIP-320."""

from __future__ import annotations

from typing import Any, Final

from sparklog.broker.handlers.answering import NO_THROTTLE
from sparklog.broker.handlers.by_topic import Shape, answer_each
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.core.types import PartitionId
from sparklog.protocol.building import Answer

_UNKNOWN: Final = -1
SHAPE: Final[Shape[tuple[int, int]]] = Shape(
    topic="OffsetForLeaderTopicResult",
    partition="EpochEndOffset",
    fields=lambda found: dict(zip(("leader_epoch", "end_offset"), found, strict=True)),
    unknown=(_UNKNOWN, _UNKNOWN),
    name="topic",
    number="partition",
)


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer for every partition with the newest epoch up to the one asked for, and its end."""
    answer = Answer.to(request)

    async def ask(where: PartitionId, part: Any) -> tuple[int, int]:
        current = getattr(part, "current_leader_epoch", _UNKNOWN)
        return await node.replicas.end_of_epoch(where, current, part.leader_epoch)

    topics = await answer_each(answer, SHAPE, node.metadata.image, request.topics, ask)
    return answer.response(throttle_time=NO_THROTTLE, topics=topics)
