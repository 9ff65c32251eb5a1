"""DeleteGroups (42): forget groups without members, with their offsets. Source: KIP-229."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.core.errors import SparklogError
from sparklog.protocol.building import Answer

_MESSAGES: Final = {
    ErrorCode.group_id_not_found: "No such group.",
    ErrorCode.non_empty_group: "The group has members; stop them first.",
    ErrorCode.not_coordinator: "Another broker coordinates the group; find it again.",
    ErrorCode.coordinator_load_in_progress: "The coordinator is loading; try again.",
}


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with a code for every group."""
    answer = Answer.to(request)
    codes = await asyncio.gather(*(_delete(node, g) for g in request.groups_names))
    return answer.response(
        throttle_time=NO_THROTTLE,
        results=tuple(
            answer.entity(
                "DeletableGroupResult",
                group_id=group_id,
                error_code=code,
                error_message=_MESSAGES.get(code),
            )
            for group_id, code in zip(request.groups_names, codes, strict=True)
        ),
    )


async def _delete(node: HandlerNode, group_id: str) -> ErrorCode:
    try:
        return await node.groups.delete(group_id)
    except SparklogError as error:
        return code_of(error)
