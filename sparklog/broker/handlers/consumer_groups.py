"""ConsumerGroupHeartbeat (68): joins, stays in, or leaves a group of the consumer protocol.

In such a group the coordinator assigns the partitions.

Source: KIP-848; KIP-1082 (members make their own ids from version 1 on).

ConsumerGroupDescribe (69): groups of the consumer protocol, with their members.

Source: KIP-848; KIP-1099 (member types in version 1).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.classic_groups import host_of, milliseconds
from sparklog.broker.handlers.described_groups import (
    assignment,
    describe_groups,
    named_assignment,
)
from sparklog.broker.handlers.responses import NO_THROTTLE, code_of, message_of
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.request import RequestContext
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.coordinator.consumer.messages import (
    JOIN_EPOCH,
    ConsumerHeartbeat,
    ConsumerMemberDescription,
    FilterTopics,
    Parts,
)
from sparklog.core.errors import SparklogError, Unavailable
from sparklog.protocol.messages.builder import ResponseBuilder
from sparklog.protocol.topic_ids import topic_id_of

OWN_ID_SINCE: Final = 1
_NO_ID: Final = UUID(int=0)


async def consumer_group_heartbeat(
    node: BrokerNode,
    request: Any,
    context: RequestContext,
    may_describe: FilterTopics | None = None,
) -> Any:
    """Return the member's epoch, and its assignment if that has changed.

    A pattern matches only topics that `may_describe` returns, if it is given.
    """
    answer = ResponseBuilder.to(request)
    asked = _asked(node, request, context, may_describe)
    await read_new_topics(node, asked.names or ())
    try:
        result = await node.groups.consumer_heartbeat(asked)
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
        member_id=result.member_id,
        member_epoch=result.epoch,
        heartbeat_interval=timedelta(milliseconds=result.heartbeat_interval_ms),
        assignment=assignment(answer, result.assignment),
    )


def _asked(
    node: BrokerNode, request: Any, context: RequestContext, may_describe: FilterTopics | None
) -> ConsumerHeartbeat:
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
        may_describe=may_describe,
    )


def _owned(topics: Any) -> Parts | None:
    if topics is None:
        return None
    return frozenset((t.topic_id or _NO_ID, int(number)) for t in topics for number in t.partitions)


async def read_new_topics(node: BrokerNode, names: Iterable[str]) -> None:
    """Look for topics that another broker may just have created; the next heartbeat comes late."""
    if all(name in node.metadata.image.topics for name in names):
        return
    try:
        await node.metadata.catch_up()
    except Unavailable:
        pass  # the group gets them when the metadata names them


SPEAKS_CLASSIC: Final = 0
SPEAKS_CONSUMER: Final = 1
"""The types of members, by the protocol that they use."""


async def consumer_group_describe(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return a description, or an error, of every group."""
    image = node.metadata.image
    return await describe_groups(request, image, "consumer", node.groups.describe_consumer, _member)


def _member(
    answer: ResponseBuilder, member: ConsumerMemberDescription, image: MetadataImage
) -> Any:
    return answer.entity(
        "Member",
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.names,
        subscribed_topic_regex=member.regex,
        assignment=named_assignment(answer, member.assigned, image),
        target_assignment=named_assignment(answer, member.target, image),
        member_type=SPEAKS_CLASSIC if member.is_classic else SPEAKS_CONSUMER,
    )
