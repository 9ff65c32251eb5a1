"""ShareGroupHeartbeat (76): joins, stays in, or leaves a share group.

ShareGroupDescribe (77): share groups, with their members.

Source: KIP-932.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.classic_groups import GROUP_OPERATIONS, host_of
from sparklog.broker.handlers.consumer_groups import read_new_topics
from sparklog.broker.handlers.responses import NO_THROTTLE, NOT_ASKED, code_of, message_of
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.request import RequestContext
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.coordinator.share.messages import (
    ShareGroupDescription,
    ShareHeartbeat,
    ShareHeartbeatAnswer,
    ShareMemberDescription,
)
from sparklog.core.errors import GroupIdNotFound, SparklogError
from sparklog.protocol.messages.builder import ResponseBuilder
from sparklog.protocol.topic_ids import topic_id_of


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
        assignment=_assignment(answer, result),
    )


def _assignment(answer: ResponseBuilder, result: ShareHeartbeatAnswer) -> Any:
    if result.assignment is None:
        return None
    return answer.entity(
        "Assignment",
        topic_partitions=tuple(
            answer.entity(
                "TopicPartitions", topic_id=topic_id, partitions=tuple(n for _, n in parts)
            )
            for topic_id, parts in groupby(sorted(result.assignment), itemgetter(0))
        ),
    )


async def share_group_describe(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return a description, or an error, of every group."""
    answer = ResponseBuilder.to(request)
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    image = node.metadata.image
    found = await asyncio.gather(*(_describe(node, group_id) for group_id in request.group_ids))
    return answer.response(
        throttle_time=NO_THROTTLE,
        groups=tuple(
            _failed(answer, group_id, group)
            if isinstance(group, SparklogError)
            else _group(answer, group, image, operations)
            for group_id, group in zip(request.group_ids, found, strict=True)
        ),
    )


async def _describe(node: BrokerNode, group_id: str) -> ShareGroupDescription | SparklogError:
    try:
        found = await node.groups.describe_share(group_id)
    except SparklogError as error:
        return error
    return found or GroupIdNotFound(f"Group {group_id} is not a share group.")


def _failed(answer: ResponseBuilder, group_id: str, error: SparklogError) -> Any:
    return answer.entity(
        "DescribedGroup",
        error_code=code_of(error),
        error_message=str(error),
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=(),
        authorized_operations=NOT_ASKED,
    )


def _group(
    answer: ResponseBuilder, group: ShareGroupDescription, image: MetadataImage, operations: int
) -> Any:
    return answer.entity(
        "DescribedGroup",
        error_code=ErrorCode.none,
        error_message=None,
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=tuple(_member(answer, member, image) for member in group.members),
        authorized_operations=operations,
    )


def _member(answer: ResponseBuilder, member: ShareMemberDescription, image: MetadataImage) -> Any:
    """Return a member; partitions of a deleted topic have no name, so they are left out."""
    topics = groupby(sorted(member.assigned), itemgetter(0))
    return answer.entity(
        "Member",
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.names,
        assignment=answer.entity(
            "Assignment",
            topic_partitions=tuple(
                answer.entity(
                    "TopicPartitions",
                    topic_id=topic_id,
                    topic_name=name,
                    partitions=tuple(number for _, number in found),
                )
                for topic_id, found in topics
                if (name := image.names.get(topic_id_of(topic_id))) is not None
            ),
        ),
    )
