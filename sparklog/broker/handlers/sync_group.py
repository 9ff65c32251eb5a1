"""SyncGroup (14): a member's assignment; the leader of a generation brings everybody's."""

from __future__ import annotations

from typing import Any

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of
from sparklog.broker.handlers.groups import member_of
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.coordinator.group_messages import Synced, SyncRequest
from sparklog.core.errors import SparklogError
from sparklog.protocol.building import Answer


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with the member's assignment, once there is one."""
    asked = SyncRequest(
        group_id=request.group_id,
        member=member_of(request),
        generation=int(request.generation_id),
        protocol_type=getattr(request, "protocol_type", None),
        protocol=getattr(request, "protocol_name", None),
        assignments=tuple((a.member_id, a.assignment) for a in request.assignments),
    )
    try:
        synced = await node.groups.sync(asked)
    except SparklogError as error:
        synced = Synced(code_of(error))
    return Answer.to(request).response(
        throttle_time=NO_THROTTLE,
        error_code=synced.error,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )
