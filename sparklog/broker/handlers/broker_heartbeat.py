"""BrokerHeartbeat (63): between brokers; the controller answers. Source: KIP-631."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.protocol.building import Answer


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Let the controller answer, or say that this is not the controller."""
    response = await node.broker_heartbeat(request)
    if response is not None:
        return response
    return Answer.to(request).response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.not_controller,
        is_caught_up=False,
        is_fenced=False,
        should_shut_down=False,
    )
