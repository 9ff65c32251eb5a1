"""DescribeGroups (15): classic groups with their members. Source: KIP-430, KIP-1043."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE, NOT_ASKED, code_of
from sparklog.broker.handlers.groups import GROUP_OPERATIONS
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.coordinator.group_views import GroupDescription
from sparklog.core.errors import SparklogError
from sparklog.protocol.building import Answer

NOT_FOUND_SINCE: Final = 6
"""The first version that says so of an unknown group; to older ones it is just dead."""


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer about every group."""
    answer = Answer.to(request)
    asks = bool(getattr(request, "include_authorized_operations", False))
    found = await asyncio.gather(*(_describe(node, group_id) for group_id in request.groups))
    return answer.response(
        throttle_time=NO_THROTTLE,
        groups=tuple(_group(answer, group, asks) for group in found),
    )


async def _describe(node: HandlerNode, group_id: str) -> GroupDescription:
    try:
        return await node.groups.describe(group_id)
    except SparklogError as error:
        return GroupDescription(group_id, code_of(error), str(error), state="")


def _group(answer: Answer, group: GroupDescription, asks_operations: bool) -> Any:
    error = group.error
    if answer.version < NOT_FOUND_SINCE and error is ErrorCode.group_id_not_found:
        error = ErrorCode.none
    return answer.entity(
        "DescribedGroup",
        error_code=error,
        error_message=group.message,
        group_id=group.group_id,
        group_state=str(group.state),
        protocol_type=group.protocol_type,
        protocol_data=group.protocol,
        members=tuple(
            answer.entity(
                "DescribedGroupMember",
                member_id=m.member_id,
                group_instance_id=m.instance_id,
                client_id=m.client_id,
                client_host=m.client_host,
                member_metadata=m.metadata,
                member_assignment=m.assignment,
            )
            for m in group.members
        ),
        authorized_operations=GROUP_OPERATIONS if asks_operations else NOT_ASKED,
    )
