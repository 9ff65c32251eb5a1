"""DescribeProducers (61): the producers that partitions led here know of. Source: KIP-664."""

from __future__ import annotations

from typing import Any

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of, message_of
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.handlers.partitions import partition_of, topic_of
from sparklog.broker.request import RequestContext
from sparklog.cluster.image import Topic
from sparklog.core.errors import SparklogError
from sparklog.protocol.building import Answer


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer for every partition asked for."""
    answer = Answer.to(request)
    image = node.metadata.image
    topics = []
    for asked in request.topics:
        topic = topic_of(image, asked)
        parts = [await _partition(node, answer, topic, int(n)) for n in asked.partition_indexes]
        topics.append(answer.entity("TopicResponse", name=asked.name, partitions=tuple(parts)))
    return answer.response(throttle_time=NO_THROTTLE, topics=tuple(topics))


async def _partition(
    node: HandlerNode, answer: Answer, topic: Topic | SparklogError, number: int
) -> Any:
    failed, producers = None, []
    where = partition_of(topic, number)
    if isinstance(where, SparklogError):
        failed = where
    else:
        try:
            producers = await node.replicas.marking.producers(where)
        except SparklogError as error:
            failed = error
    return answer.entity(
        "PartitionResponse",
        partition_index=number,
        error_code=code_of(failed),
        error_message=message_of(failed),
        active_producers=tuple(
            answer.entity(
                "ProducerState",
                producer_id=one.producer_id,
                producer_epoch=one.producer_epoch,
                last_sequence=one.last_sequence,
                last_timestamp=one.written_ms,
                coordinator_epoch=one.coordinator_epoch,
                current_txn_start_offset=one.transaction_start,
            )
            for one in producers
        ),
    )
