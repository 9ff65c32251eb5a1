"""JoinGroup (11): be a member of a classic group. Source: KIP-62, KIP-345, KIP-394, KIP-814."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of
from sparklog.broker.handlers.groups import host_of, milliseconds
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.coordinator.group_messages import Joined, JoinRequest
from sparklog.core.entropy import Entropy
from sparklog.core.errors import SparklogError
from sparklog.protocol.building import Answer

MEMBER_ID_REQUIRED_SINCE: Final = 4
NULLABLE_PROTOCOL_SINCE: Final = 7
SKIPS_ASSIGNMENT_SINCE: Final = 9
PREFIX_MAX: Final = 1_000
"""Characters of a client's or an instance's id in a member id: the whole must fit a string."""


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with the generation that the member is part of."""
    answer = Answer.to(request)
    try:
        joined = await node.groups.join(_asked(node, request, context))
    except SparklogError as error:
        joined = Joined(code_of(error), request.member_id)
    protocol = joined.protocol
    if protocol is None and answer.version < NULLABLE_PROTOCOL_SINCE:
        protocol = ""
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=tuple(
            answer.entity(
                "JoinGroupResponseMember",
                member_id=m.member_id,
                group_instance_id=m.instance_id,
                metadata=m.metadata,
            )
            for m in joined.members
        ),
    )


def _asked(node: HandlerNode, request: Any, context: RequestContext) -> JoinRequest:
    version = request.__version__
    instance_id = getattr(request, "group_instance_id", None)
    session_ms = milliseconds(request.session_timeout)
    rebalance = getattr(request, "rebalance_timeout", None)
    prefix = context.client_id or "" if instance_id is None else instance_id
    return JoinRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        new_member_id=f"{prefix[:PREFIX_MAX]}-{_unique(node.environment.entropy)}",
        instance_id=instance_id,
        client_id=context.client_id or "",
        client_host=host_of(context),
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=session_ms if rebalance is None else milliseconds(rebalance),
        protocol_type=request.protocol_type,
        protocols=tuple((p.name, p.metadata) for p in request.protocols),
        requires_member_id=version >= MEMBER_ID_REQUIRED_SINCE,
        can_skip_assignment=version >= SKIPS_ASSIGNMENT_SINCE,
    )


def _unique(entropy: Entropy) -> str:
    """Return a random UUID (version 4)."""
    return str(UUID(bytes=entropy.random_bytes(16), version=4))
