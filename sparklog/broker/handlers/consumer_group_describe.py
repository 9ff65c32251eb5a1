"""ConsumerGroupDescribe (69): groups whose coordinator assigns, with their members.

Source: KIP-848; KIP-1099 (member types in version 1).
"""

from __future__ import annotations

import asyncio
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE, NOT_ASKED, code_of
from sparklog.broker.handlers.groups import GROUP_OPERATIONS
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.cluster.image import MetadataImage
from sparklog.coordinator.consumer_messages import (
    ConsumerGroupDescription,
    ConsumerMemberDescription,
    Parts,
)
from sparklog.core.errors import GroupIdNotFound, SparklogError
from sparklog.protocol.building import Answer
from sparklog.protocol.topic_ids import topic_id_of

SPEAKS_CLASSIC: Final = 0
SPEAKS_CONSUMER: Final = 1
"""The types of members, by the protocol they speak."""


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer about every group."""
    answer = Answer.to(request)
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


async def _describe(node: HandlerNode, group_id: str) -> ConsumerGroupDescription | SparklogError:
    try:
        found = await node.groups.describe_consumer(group_id)
    except SparklogError as error:
        return error
    return found or GroupIdNotFound(f"Group {group_id} is not a consumer group.")


def _failed(answer: Answer, group_id: str, error: SparklogError) -> Any:
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
    answer: Answer, group: ConsumerGroupDescription, image: MetadataImage, operations: int
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


def _member(answer: Answer, member: ConsumerMemberDescription, image: MetadataImage) -> Any:
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
        assignment=_assignment(answer, member.assigned, image),
        target_assignment=_assignment(answer, member.target, image),
        member_type=SPEAKS_CLASSIC if member.is_classic else SPEAKS_CONSUMER,
    )


def _assignment(answer: Answer, parts: Parts, image: MetadataImage) -> Any:
    """Return partitions by topic; those of a deleted topic have no name, so they are left out."""
    return answer.entity(
        "Assignment",
        topic_partitions=tuple(
            answer.entity(
                "TopicPartitions",
                topic_id=topic_id,
                topic_name=name,
                partitions=tuple(number for _, number in found),
            )
            for topic_id, found in groupby(sorted(parts), itemgetter(0))
            if (name := image.names.get(topic_id_of(topic_id))) is not None
        ),
    )
