"""ListOffsets (2): the offset at a time, and at the ends. Source: KIP-79, KIP-734, KIP-405."""

from __future__ import annotations

from typing import Any, Final

from sparklog.broker.handlers.answering import NO_THROTTLE
from sparklog.broker.handlers.by_topic import Shape, answer_each
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.core.types import PartitionId
from sparklog.protocol.building import Answer

_UNKNOWN: Final = -1
_READ_UNCOMMITTED: Final = 0
SHAPE: Final[Shape[tuple[int, int, int]]] = Shape(
    topic="ListOffsetsTopicResponse",
    partition="ListOffsetsPartitionResponse",
    fields=lambda found: dict(zip(("timestamp", "offset", "leader_epoch"), found, strict=True)),
    unknown=(_UNKNOWN, _UNKNOWN, _UNKNOWN),
)


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer for every partition; where there is no such record the offset is -1."""
    answer = Answer.to(request)
    isolation = getattr(request, "isolation_level", _READ_UNCOMMITTED)

    async def ask(where: PartitionId, part: Any) -> tuple[int, int, int]:
        epoch = getattr(part, "current_leader_epoch", _UNKNOWN)
        return await node.replicas.list_offset(where, part.timestamp, isolation, epoch)

    topics = await answer_each(answer, SHAPE, node.metadata.image, request.topics, ask)
    return answer.response(throttle_time=NO_THROTTLE, topics=topics)
