"""DeleteRecords (21): drop everything before an offset. Source: KIP-107."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final

from sparklog.broker.handlers.answering import NO_THROTTLE
from sparklog.broker.handlers.by_topic import Shape, answer_each
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.cluster import registry
from sparklog.core.errors import OutcomeUnknown
from sparklog.core.types import PartitionId
from sparklog.protocol.building import Answer

MILLISECOND: Final = timedelta(milliseconds=1)
SHAPE: Final[Shape[int]] = Shape(
    topic="DeleteRecordsTopicResult",
    partition="DeleteRecordsPartitionResult",
    fields=lambda start: {"low_watermark": start},
    unknown=-1,
)


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Trim every partition led here and answer with where it starts now."""
    answer = Answer.to(request)
    timeout_s = max(1, request.timeout // MILLISECOND) / 1000

    async def ask(where: PartitionId, part: Any) -> int:
        topic = node.metadata.image.topic_of(where.topic_id)
        if topic is not None:
            registry.check_may_delete_records(topic)
        try:
            async with asyncio.timeout(timeout_s):
                return await node.replicas.delete_records(where, part.offset)
        except TimeoutError:
            raise OutcomeUnknown(f"not trimmed in time; ask again. partition={where}") from None

    topics = await answer_each(answer, SHAPE, node.metadata.image, request.topics, ask)
    return answer.response(throttle_time=NO_THROTTLE, topics=topics)
