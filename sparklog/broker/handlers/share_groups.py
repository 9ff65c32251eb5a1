"""ShareGroupHeartbeat (76): joins, stays in, or leaves a share group.

ShareGroupDescribe (77): share groups, with their members.

Source: KIP-932.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.classic_groups import host_of
from sparklog.broker.handlers.consumer_groups import read_new_topics
from sparklog.broker.handlers.described_groups import (
    assignment,
    describe_groups,
    named_assignment,
)
from sparklog.broker.handlers.responses import NO_THROTTLE, code_of, message_of
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.request import RequestContext
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.coordinator.share.messages import (
    ShareHeartbeat,
    ShareMemberDescription,
)
from sparklog.core.errors import SparklogError
from sparklog.protocol.messages.builder import ResponseBuilder


async def share_group_heartbeat(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return the member's epoch, and its assignment if that has changed."""
    answer = ResponseBuilder.to(request)
    names = request.subscribed_topic_names
    await read_new_topics(node, names or ())
    asked = ShareHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=int(request.member_epoch),
        client_id=context.client_id or "",
        client_host=host_of(context),
        rack_id=request.rack_id,
        names=names,
    )
    try:
        result = await node.groups.share_heartbeat(asked)
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


async def share_group_describe(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return a description, or an error, of every group."""
    image = node.metadata.image
    return await describe_groups(request, image, "share", node.groups.describe_share, _member)


def _member(answer: ResponseBuilder, member: ShareMemberDescription, image: MetadataImage) -> Any:
    return answer.entity(
        "Member",
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.names,
        assignment=named_assignment(answer, member.assigned, image),
    )
