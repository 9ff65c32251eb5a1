"""ListGroups (16): the groups that this broker coordinates. Source: KIP-518, KIP-848 (filters)."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.core.errors import SparklogError
from sparklog.protocol.building import Answer


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with the groups that pass the filters; their case does not matter."""
    answer = Answer.to(request)
    states = {s.lower() for s in getattr(request, "states_filter", ())}
    types = {t.lower() for t in getattr(request, "types_filter", ())}
    try:
        groups, error = await node.groups.list_groups(), ErrorCode.none
    except SparklogError as failed:
        groups, error = [], code_of(failed)
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=error,
        groups=tuple(
            answer.entity(
                "ListedGroup",
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=str(group.state),
                group_type=group.group_type,
            )
            for group in groups
            if (not states or group.state.lower() in states)
            and (not types or group.group_type.lower() in types)
        ),
    )
