"""Heartbeat (12): a member of a classic group lives, and hears whether to join again."""

from __future__ import annotations

from typing import Any

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of
from sparklog.broker.handlers.groups import member_of
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.coordinator.group_messages import HeartbeatRequest
from sparklog.core.errors import SparklogError
from sparklog.protocol.building import Answer


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with a code."""
    asked = HeartbeatRequest(request.group_id, member_of(request), int(request.generation_id))
    try:
        code = await node.groups.heartbeat(asked)
    except SparklogError as error:
        code = code_of(error)
    return Answer.to(request).response(throttle_time=NO_THROTTLE, error_code=code)
