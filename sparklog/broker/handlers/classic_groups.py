"""Handlers of the classic group protocol, and helpers that the other group handlers share.

JoinGroup (11): a client becomes a member of a classic group, or joins again.

Source: KIP-62, KIP-345, KIP-394, KIP-814.

SyncGroup (14): returns a member's assignment. The leader of the generation sends all assignments.

Heartbeat (12): keeps a member of a classic group alive. The code says if it must join again.

LeaveGroup (13): members leave a classic group, or an administrator removes them.

Source: KIP-345, KIP-496 (several at once).

DescribeGroups (15): classic groups with their members. Source: KIP-430, KIP-1043.

ListGroups (16): the groups that this broker coordinates. Source: KIP-518, KIP-848 (filters).

DeleteGroups (42): deletes groups without members, and their offsets. Source: KIP-229.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.responses import NO_THROTTLE, NOT_ASKED, code_of
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.request import RequestContext
from sparklog.coordinator.group.description import DescribedGroup
from sparklog.coordinator.messages import (
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    LeaveResult,
    MemberIdentity,
    SyncRequest,
    SyncResult,
)
from sparklog.core.entropy import Entropy
from sparklog.core.errors import RecordTooLarge, SparklogError
from sparklog.protocol.messages.builder import ResponseBuilder

GROUP_OPERATIONS: Final = 0b1_0100_1000
"""Read, delete and describe: every client may do these if no authorizer restricts it."""
_MILLISECOND: Final = timedelta(milliseconds=1)


def milliseconds(span: timedelta) -> int:
    """Return a span of time as a message carries it."""
    return span // _MILLISECOND


def member_of(asked: Any) -> MemberIdentity:
    """Return the member that a request, or a part of one, names as its sender."""
    return MemberIdentity(asked.member_id, getattr(asked, "group_instance_id", None))


def host_of(context: RequestContext) -> str:
    """Return a client's host as Kafka stores it."""
    return f"/{context.client_host}"


def commit_code(error: SparklogError) -> ErrorCode:
    """Return the code of an offset commit that failed with `error`."""
    if isinstance(error, RecordTooLarge):
        return ErrorCode.invalid_commit_offset_size
    return code_of(error)


MEMBER_ID_REQUIRED_SINCE: Final = 4
NULLABLE_PROTOCOL_SINCE: Final = 7
SKIPS_ASSIGNMENT_SINCE: Final = 9
PREFIX_MAX: Final = 1_000
"""Characters of a client id or instance id in a member id, which must fit a Kafka string."""


async def join_group(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return the generation that the member belongs to."""
    answer = ResponseBuilder.to(request)
    try:
        joined = await node.groups.join(_asked(node, request, context))
    except SparklogError as error:
        joined = JoinResult(code_of(error), request.member_id)
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


def _asked(node: BrokerNode, request: Any, context: RequestContext) -> JoinRequest:
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


async def sync_group(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return the member's assignment, as soon as there is one."""
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
        synced = SyncResult(code_of(error))
    return ResponseBuilder.to(request).response(
        throttle_time=NO_THROTTLE,
        error_code=synced.error,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )


async def heartbeat(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return a code for the member."""
    asked = HeartbeatRequest(request.group_id, member_of(request), int(request.generation_id))
    try:
        code = await node.groups.heartbeat(asked)
    except SparklogError as error:
        code = code_of(error)
    return ResponseBuilder.to(request).response(throttle_time=NO_THROTTLE, error_code=code)


MANY_SINCE: Final = 3
"""The first version with several members."""


async def leave_group(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return a code for every member."""
    answer = ResponseBuilder.to(request)
    many = answer.version >= MANY_SINCE
    asked = LeaveRequest(
        request.group_id,
        tuple(member_of(m) for m in (request.members if many else (request,))),
    )
    try:
        left = await node.groups.leave(asked)
    except SparklogError as error:
        left = LeaveResult(code_of(error))
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
            # No code per member if the whole request is rejected.
            for m, code in zip(asked.members, left.members, strict=False)
        ),
    )


NOT_FOUND_SINCE: Final = 6
"""The first version with GROUP_ID_NOT_FOUND; older ones get an unknown group as dead."""


async def describe_groups(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return a description, or an error, of every group."""
    answer = ResponseBuilder.to(request)
    asks = bool(getattr(request, "include_authorized_operations", False))
    found = await asyncio.gather(*(_describe(node, group_id) for group_id in request.groups))
    return answer.response(
        throttle_time=NO_THROTTLE,
        groups=tuple(_group(answer, group, asks) for group in found),
    )


async def _describe(node: BrokerNode, group_id: str) -> DescribedGroup:
    try:
        return await node.groups.describe(group_id)
    except SparklogError as error:
        return DescribedGroup(group_id, code_of(error), str(error), state="")


def _group(answer: ResponseBuilder, group: DescribedGroup, asks_operations: bool) -> Any:
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


async def list_groups(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return the groups that match the filters, which ignore case."""
    answer = ResponseBuilder.to(request)
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


_MESSAGES: Final = {
    ErrorCode.group_id_not_found: "No such group.",
    ErrorCode.non_empty_group: "The group has members; stop them first.",
    ErrorCode.not_coordinator: "Another broker coordinates the group; find it again.",
    ErrorCode.coordinator_load_in_progress: "The coordinator is loading; try again.",
}


async def delete_groups(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return a code for every group."""
    answer = ResponseBuilder.to(request)
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


async def _delete(node: BrokerNode, group_id: str) -> ErrorCode:
    try:
        return await node.groups.delete(group_id)
    except SparklogError as error:
        return code_of(error)
