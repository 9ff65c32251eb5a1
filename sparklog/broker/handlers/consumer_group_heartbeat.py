"""ConsumerGroupHeartbeat (68): join, stay in, or leave a group whose coordinator assigns.

Source: KIP-848; KIP-1082 (members make their own ids from version 1 on).
"""

from __future__ import annotations

from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of, message_of
from sparklog.broker.handlers.groups import host_of, milliseconds
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.coordinator.consumer_messages import (
    JOIN_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    Parts,
)
from sparklog.core.errors import SparklogError, Unavailable
from sparklog.protocol.building import Answer
from sparklog.protocol.topic_ids import topic_id_of

OWN_ID_SINCE: Final = 1
_NO_ID: Final = UUID(int=0)


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with the member's epoch and, when that is news, what it may read."""
    answer = Answer.to(request)
    asked = _asked(node, request, context)
    await _hear_of_new_topics(node, asked)
    try:
        told = await node.groups.consumer_heartbeat(asked)
    except SparklogError as error:
        return answer.response(
            throttle_time=NO_THROTTLE,
            error_code=code_of(error),
            error_message=message_of(error),
            member_id=None,
            member_epoch=0,
            heartbeat_interval=NO_THROTTLE,
            assignment=None,
        )
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        member_id=told.member_id,
        member_epoch=told.epoch,
        heartbeat_interval=timedelta(milliseconds=told.heartbeat_interval_ms),
        assignment=_assignment(answer, told),
    )


def _asked(node: HandlerNode, request: Any, context: RequestContext) -> ConsumerHeartbeat:
    member_id, epoch = request.member_id, int(request.member_epoch)
    if not member_id and epoch == JOIN_EPOCH and request.__version__ < OWN_ID_SINCE:
        member_id = topic_id_of(UUID(bytes=node.environment.entropy.random_bytes(16)))
    return ConsumerHeartbeat(
        group_id=request.group_id,
        member_id=member_id,
        epoch=epoch,
        client_id=context.client_id or "",
        client_host=host_of(context),
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=milliseconds(request.rebalance_timeout),
        names=request.subscribed_topic_names,
        regex=getattr(request, "subscribed_topic_regex", None),
        assignor=request.server_assignor,
        owned=_owned(request.topic_partitions),
    )


def _owned(topics: Any) -> Parts | None:
    if topics is None:
        return None
    return frozenset((t.topic_id or _NO_ID, int(number)) for t in topics for number in t.partitions)


async def _hear_of_new_topics(node: HandlerNode, asked: ConsumerHeartbeat) -> None:
    """Look for topics that another broker may just have created: the next heartbeat is far off."""
    if all(name in node.metadata.image.topics for name in asked.names or ()):
        return
    try:
        await node.metadata.catch_up()
    except Unavailable:
        pass  # they are read once they are heard of


def _assignment(answer: Answer, told: ConsumerHeartbeatAnswer) -> Any:
    if told.assignment is None:
        return None
    return answer.entity(
        "Assignment",
        topic_partitions=tuple(
            answer.entity(
                "TopicPartitions", topic_id=topic_id, partitions=tuple(n for _, n in parts)
            )
            for topic_id, parts in groupby(sorted(told.assignment), itemgetter(0))
        ),
    )
