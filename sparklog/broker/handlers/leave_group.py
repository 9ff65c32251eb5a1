"""LeaveGroup (13): members leave a classic group, or an administrator removes them.

Source: KIP-345, KIP-496 (several at once).
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of
from sparklog.broker.handlers.groups import member_of
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.coordinator.group_messages import LeaveRequest, Left
from sparklog.core.errors import SparklogError
from sparklog.protocol.building import Answer

MANY_SINCE: Final = 3
"""The first version with several members."""


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with a code for every member."""
    answer = Answer.to(request)
    many = answer.version >= MANY_SINCE
    asked = LeaveRequest(
        request.group_id,
        tuple(member_of(m) for m in (request.members if many else (request,))),
    )
    try:
        left = await node.groups.leave(asked)
    except SparklogError as error:
        left = Left(code_of(error))
    if not many:
        code = left.error if left.error is not ErrorCode.none else left.members[0]
        return answer.response(throttle_time=NO_THROTTLE, error_code=code)
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=left.error,
        members=tuple(
            answer.entity(
                "MemberResponse",
                member_id=m.member_id,
                group_instance_id=m.instance_id,
                error_code=code,
            )
            # Empty where the whole request is refused.
            for m, code in zip(asked.members, left.members, strict=False)
        ),
    )
