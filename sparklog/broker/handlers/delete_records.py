"""DeleteRecords (21): drop everything before an offset. Source: KIP-107."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of
from sparklog.broker.handlers.by_topic import ask_each
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.core.errors import OutcomeUnknown, SparklogError
from sparklog.core.types import PartitionId
from sparklog.protocol.building import Answer

MILLISECOND: Final = timedelta(milliseconds=1)
_UNKNOWN: Final = -1


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Trim every partition led here and answer with where it starts now."""
    answer = Answer.to(request)
    timeout_s = max(1, request.timeout // MILLISECOND) / 1000

    async def ask(where: PartitionId, part: Any) -> int:
        try:
            async with asyncio.timeout(timeout_s):
                return await node.replicas.delete_records(where, part.offset)
        except TimeoutError:
            raise OutcomeUnknown(f"not trimmed in time; ask again. partition={where}") from None

    found = await ask_each(
        node.metadata.image, request.topics, lambda part: int(part.partition_index), ask
    )
    return answer.response(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            answer.entity(
                "DeleteRecordsTopicResult",
                name=topic.name,
                partitions=tuple(
                    _part(answer, part.partition_index, outcome)
                    for part, outcome in zip(topic.partitions, outcomes, strict=True)
                ),
            )
            for topic, outcomes in zip(request.topics, found, strict=True)
        ),
    )


def _part(answer: Answer, number: int, outcome: int | SparklogError) -> Any:
    failed = outcome if isinstance(outcome, SparklogError) else None
    return answer.entity(
        "DeleteRecordsPartitionResult",
        partition_index=number,
        low_watermark=_UNKNOWN if isinstance(outcome, SparklogError) else outcome,
        error_code=code_of(failed),
    )
