"""Parts that the handlers of consumer groups and share groups have in common.

The coordinator assigns the partitions of both, so their descriptions and assignments are alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import groupby
from operator import itemgetter
from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.classic_groups import GROUP_OPERATIONS
from sparklog.broker.handlers.responses import NO_THROTTLE, NOT_ASKED, code_of
from sparklog.broker.runtime.environment import caught
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.coordinator.consumer.messages import Parts
from sparklog.core.errors import GroupIdNotFound, SparklogError
from sparklog.protocol.messages.builder import ResponseBuilder
from sparklog.protocol.topic_ids import topic_id_of

Describe = Callable[[str], Coroutine[Any, Any, Any]]
"""Returns the description of a group; None if the group is of another type."""
MemberEntity = Callable[[ResponseBuilder, Any, MetadataImage], Any]
"""Returns a member as the response describes it."""


async def describe_groups(
    request: Any, image: MetadataImage, kind: str, describe: Describe, member: MemberEntity
) -> Any:
    """Return the response with a description, or an error, of every group of the request.

    `kind` is the type of the groups in words.
    """
    answer = ResponseBuilder.to(request)
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    found = await asyncio.gather(*(caught(describe(one)) for one in request.group_ids))
    groups = []
    for group_id, group in zip(request.group_ids, found, strict=True):
        if group is None:
            missing = GroupIdNotFound(f"Group {group_id} is not a {kind} group.")
            groups.append(_failed(answer, group_id, missing))
        elif isinstance(group, SparklogError):
            groups.append(_failed(answer, group_id, group))
        elif isinstance(group, Exception):
            raise group
        else:
            groups.append(_described(answer, group, image, operations, member))
    return answer.response(throttle_time=NO_THROTTLE, groups=tuple(groups))


def assignment(answer: ResponseBuilder, parts: Parts | None) -> Any:
    """Return partitions by topic, as the response to a heartbeat has them; None: unchanged."""
    if parts is None:
        return None
    return answer.entity(
        "Assignment",
        topic_partitions=tuple(
            answer.entity(
                "TopicPartitions", topic_id=topic_id, partitions=tuple(n for _, n in found)
            )
            for topic_id, found in groupby(sorted(parts), itemgetter(0))
        ),
    )


def named_assignment(answer: ResponseBuilder, parts: Parts, image: MetadataImage) -> Any:
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


def _described(
    answer: ResponseBuilder,
    group: Any,
    image: MetadataImage,
    operations: int,
    member: MemberEntity,
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
        members=tuple(member(answer, one, image) for one in group.members),
        authorized_operations=operations,
    )
