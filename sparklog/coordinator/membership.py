"""SyncGroup, Heartbeat and LeaveGroup of a classic group: one table each, by the group's state.

Source: Kafka `GroupMetadataManager.classicGroupSync`, `classicGroupHeartbeat`,
`classicGroupLeave`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kio.schema.errors import ErrorCode

from sparklog.coordinator import group_notes
from sparklog.coordinator.classic_group import ClassicGroup, GroupState, Member
from sparklog.coordinator.effects import Token
from sparklog.coordinator.group_messages import (
    HeartbeatRequest,
    LeaveRequest,
    Left,
    MemberIdentity,
    Synced,
    SyncRequest,
)
from sparklog.coordinator.rebalancing import (
    Turn,
    answer_sync,
    assigned,
    drop,
    keep_session,
    rebalance,
    remove_pending,
    session_key,
    share,
    synced,
)

Sync = Callable[[ClassicGroup, Member, SyncRequest, Token, Turn], None]

_HEARTBEAT: Final[dict[GroupState, ErrorCode]] = {
    GroupState.PREPARING_REBALANCE: ErrorCode.rebalance_in_progress,
    GroupState.COMPLETING_REBALANCE: ErrorCode.none,
    GroupState.STABLE: ErrorCode.none,
}
"""The response to a heartbeat with the right generation, by state."""


def heartbeat(group: ClassicGroup, asked: HeartbeatRequest, turn: Turn) -> ErrorCode:
    """Handle a heartbeat; return its code."""
    error = _check(group, asked.member, asked.generation)
    if error is not ErrorCode.none:
        return error
    keep_session(group, group.members[asked.member.member_id], turn)
    return _HEARTBEAT[group.state]


def sync(group: ClassicGroup, asked: SyncRequest, token: Token, turn: Turn) -> None:
    """Reply with the assignment, or wait for it; the leader's SyncGroup brings it.

    If the group is too large to store, its leader gets an error and there is no assignment, as in
    Kafka.
    """
    error = _check(group, asked.member, asked.generation)
    if error is ErrorCode.none and not _speaks(group, asked):
        error = ErrorCode.inconsistent_group_protocol
    if error is not ErrorCode.none:
        turn.answer(token, Synced(error))
        return
    _SYNC[group.state](group, group.members[asked.member.member_id], asked, token, turn)


def leave(group: ClassicGroup, asked: LeaveRequest, turn: Turn) -> Left:
    """Remove members; return a code for each."""
    before = set(group.members)
    codes = tuple(_leave(group, who, turn) for who in asked.members)
    if gone := before - group.members.keys():
        who, name = group_notes.members(gone), group_notes.name(group.group_id)
        turn.notes.append(f"Members {who} left group {name} by LeaveGroup")
        rebalance(group, turn, f"removing {who} on LeaveGroup")
    return Left(ErrorCode.none, codes)


def _check(group: ClassicGroup, who: MemberIdentity, generation: int) -> ErrorCode:
    error = group.check(who)
    if error is ErrorCode.none and generation != group.generation:
        return ErrorCode.illegal_generation
    return error


def _speaks(group: ClassicGroup, asked: SyncRequest) -> bool:
    """Return True if the request matches the group's protocol; older clients do not send it."""
    return asked.protocol_type in (None, group.protocol_type) and asked.protocol in (
        None,
        group.protocol,
    )


def _sync_preparing(
    group: ClassicGroup, member: Member, asked: SyncRequest, token: Token, turn: Turn
) -> None:
    turn.answer(token, Synced(ErrorCode.rebalance_in_progress))


def _sync_completing(
    group: ClassicGroup, member: Member, asked: SyncRequest, token: Token, turn: Turn
) -> None:
    # its earlier SyncGroup still waits
    answer_sync(member, Synced(ErrorCode.rebalance_in_progress), turn)
    assignments = dict(asked.assignments) if member.member_id == group.leader else {}
    if group.stored_bytes(assignments) > turn.settings.batch_bytes_max:
        turn.answer(token, Synced(ErrorCode.unknown_server_error))
        return
    member.sync_token = token
    synced(group, member.member_id, turn)
    if member.member_id == group.leader:
        turn.notes.append(
            f"Assignment received from leader {group_notes.name(member.member_id)} for group "
            f"{group_notes.name(group.group_id)} for generation {group.generation}. "
            f"The group has {len(group.members)} members"
        )
        share(group, assignments, ErrorCode.none, turn)
        group.become(GroupState.STABLE, turn.now_ms)
        turn.store(group)


def _sync_stable(
    group: ClassicGroup, member: Member, asked: SyncRequest, token: Token, turn: Turn
) -> None:
    synced(group, member.member_id, turn)
    turn.answer(token, assigned(group, member))


_SYNC: Final[dict[GroupState, Sync]] = {
    GroupState.PREPARING_REBALANCE: _sync_preparing,
    GroupState.COMPLETING_REBALANCE: _sync_completing,
    GroupState.STABLE: _sync_stable,
}
"""The Empty state has no members."""


def _leave(group: ClassicGroup, who: MemberIdentity, turn: Turn) -> ErrorCode:
    if who.member_id in group.pending:
        remove_pending(group, who.member_id, turn)
        return ErrorCode.none
    if not who.member_id:
        # An administrator removes a static member by its instance id.
        known = group.static.get(who.instance_id or "")
        if known is None:
            return ErrorCode.unknown_member_id
        who = group.members[known].identity
    error = group.check(who)
    if error is ErrorCode.none:
        turn.timers.cancel(session_key(group, who.member_id))
        drop(group, group.members[who.member_id], turn)
    return error
