"""OffsetDelete (47): forget committed offsets of topics that nobody reads. Source: KIP-496."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.handlers.partitions import partition_of, topic_of
from sparklog.broker.request import RequestContext
from sparklog.coordinator.offset_messages import DeletedOffsets
from sparklog.core.errors import SparklogError
from sparklog.protocol.building import Answer


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with a code for every partition, or one for all."""
    answer, image = Answer.to(request), node.metadata.image
    asked = [(t.name, int(p.partition_index)) for t in request.topics for p in t.partitions]
    known = {
        (t.name, int(p.partition_index)): partition_of(topic_of(image, t), int(p.partition_index))
        for t in request.topics
        for p in t.partitions
    }
    wanted = [where for where in asked if not isinstance(known[where], SparklogError)]
    try:
        deleted = await node.groups.delete_offsets(request.group_id, wanted)
    except SparklogError as error:
        deleted = DeletedOffsets(code_of(error))
    if deleted.error is not ErrorCode.none:
        return answer.response(throttle_time=NO_THROTTLE, error_code=deleted.error, topics=())
    codes = dict(zip(wanted, deleted.offsets, strict=True))
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        topics=tuple(
            answer.entity(
                "OffsetDeleteResponseTopic",
                name=topic.name,
                partitions=tuple(
                    answer.entity(
                        "OffsetDeleteResponsePartition",
                        partition_index=part.partition_index,
                        error_code=codes.get(
                            (topic.name, int(part.partition_index)),
                            ErrorCode.unknown_topic_or_partition,
                        ),
                    )
                    for part in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
