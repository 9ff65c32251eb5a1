"""BrokerHeartbeat (63): between brokers; the controller answers. Source: KIP-631."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of
from sparklog.broker.handlers.brokers_only import check_broker
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.core.errors import ClusterAuthorizationFailed
from sparklog.protocol.api import Api
from sparklog.protocol.building import Answer


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Let the controller answer, or say that this is not the controller."""
    try:
        check_broker(node, context, Api.BROKER_HEARTBEAT.label)
    except ClusterAuthorizationFailed as refused:
        return _refused(request, code_of(refused))
    response = await node.broker_heartbeat(request)
    return _refused(request, ErrorCode.not_controller) if response is None else response


def _refused(request: Any, code: ErrorCode) -> Any:
    return Answer.to(request).response(
        throttle_time=NO_THROTTLE,
        error_code=code,
        is_caught_up=False,
        is_fenced=False,
        should_shut_down=False,
    )
