"""AddOffsetsToTxn (25): a group's offsets become part of a transaction. Source: KIP-98."""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE
from sparklog.broker.handlers.init_producer_id import fenced_code
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.internal_topics import InternalTopic
from sparklog.broker.request import RequestContext
from sparklog.coordinator.effects import ProducerIdentity
from sparklog.coordinator.placing import GROUPS_TOPIC, partition_for
from sparklog.core.errors import SparklogError
from sparklog.protocol.building import Answer

FENCED_SINCE: Final = 2


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Add the partition in which the group's coordinator keeps its offsets."""
    answer = Answer.to(request)
    producer = ProducerIdentity(int(request.producer_id), int(request.producer_epoch))
    code = ErrorCode.none
    try:
        groups = InternalTopic.of(GROUPS_TOPIC, node.config)
        topic = await groups.ensure(node.metadata, node.environment)
        offsets = (GROUPS_TOPIC, partition_for(request.group_id, topic.partitions))
        await node.transactions.coordinator.add_partitions(
            request.transactional_id, producer, (offsets,), 0, waits=True
        )
    except SparklogError as error:
        code = fenced_code(error, answer.version >= FENCED_SINCE)
    return answer.response(throttle_time=NO_THROTTLE, error_code=code)
