"""DescribeTopicPartitions (75): topics page by page. Source: KIP-966."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import (
    NO_THROTTLE,
    TOPIC_OPERATIONS,
)
from sparklog.broker.handlers.described import described
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.protocol.building import Answer

PARTITIONS_MAX = 2000
"""Of one answer, as `max.request.partition.size.limit` in Kafka."""


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with topics in the order of their names, from the cursor on; none named asks for all.

    A topic of a cursor that is gone meanwhile is passed over.
    """
    answer = Answer.to(request)
    image = node.metadata.image
    named = {t.name for t in request.topics}
    names = sorted(named or image.topics)
    first, skipped = "", 0
    if request.cursor is not None:
        first, skipped = request.cursor.topic_name, max(0, request.cursor.partition_index)
    left = min(max(1, request.response_partition_limit), PARTITIONS_MAX)
    topics: list[Any] = []
    cursor = None
    for name in (n for n in names if n >= first):
        start = skipped if name == first else 0
        topic = image.topics.get(name)
        if left == 0:
            cursor = answer.entity("Cursor", topic_name=name, partition_index=0)
            break
        if topic is None:
            if name in named and name != first:
                topics.append(_unknown(answer, name))
            continue
        states = topic.partition_states[start : start + left]
        topics.append(
            described(
                answer,
                "DescribeTopicPartitionsResponse",
                image,
                topic,
                TOPIC_OPERATIONS,
                partitions=range(start, start + len(states)),
                eligible_leader_replicas=(),
                last_known_elr=(),
            )
        )
        left -= len(states)
        if start + len(states) < topic.partitions:
            end = start + len(states)
            cursor = answer.entity("Cursor", topic_name=name, partition_index=end)
            break
    return answer.response(throttle_time=NO_THROTTLE, topics=tuple(topics), next_cursor=cursor)


def _unknown(answer: Answer, name: str) -> Any:
    return answer.entity(
        "DescribeTopicPartitionsResponseTopic",
        error_code=ErrorCode.unknown_topic_or_partition,
        name=name,
        topic_id=None,
        partitions=(),
    )
