"""Requests of classic groups: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

A JoinGroup comes from a new member, or from one that joins again. Its response waits until the
rebalance has all members; it comes at once if the join changes nothing. SyncGroup, Heartbeat and
LeaveGroup have one table each, by the group's state.

Source: Kafka `GroupMetadataManager.classicGroupJoinToClassicGroup`, `classicGroupSync`,
`classicGroupHeartbeat`, `classicGroupLeave`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kio.schema.errors import ErrorCode

from sparklog.coordinator import log_notes
from sparklog.coordinator.classic.group import ClassicGroup, GroupState, Member
from sparklog.coordinator.classic.rebalance import (
    NEW_MEMBER_TIMEOUT_MS,
    RebalanceStep,
    answer_join,
    answer_sync,
    assigned,
    drop,
    fail_waiting,
    joined,
    keep_session,
    prepare,
    rebalance,
    remove_pending,
    session_key,
    share,
    synced,
)
from sparklog.coordinator.effects import Token
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

Rejoin = Callable[[ClassicGroup, Member, JoinRequest, Token, RebalanceStep], None]


def join(group: ClassicGroup, asked: JoinRequest, token: Token, turn: RebalanceStep) -> None:
    """Handle a JoinGroup."""
    refused = _refusal(group, asked, turn)
    if refused is not ErrorCode.none:
        turn.answer(token, JoinResult(refused, asked.member_id))
    elif not asked.member_id:
        _join_new(group, asked, token, turn)
    elif asked.member_id in group.pending:
        _add(group, asked, asked.member_id, token, turn)
    else:
        _REJOIN[group.state](group, group.members[asked.member_id], asked, token, turn)


def _refusal(group: ClassicGroup, asked: JoinRequest, turn: RebalanceStep) -> ErrorCode:
    if not _has_capacity(group, asked.member_id, turn):
        return ErrorCode.group_max_size_reached
    if not group.supports(asked.protocol_type, asked.protocols):
        return ErrorCode.inconsistent_group_protocol
    if asked.member_id and asked.member_id not in group.pending:
        return group.check(MemberIdentity(asked.member_id, asked.instance_id))
    if asked.member_id and asked.instance_id is not None:
        return ErrorCode.unknown_member_id  # a pending id is never a static member's
    return ErrorCode.none


def _has_capacity(group: ClassicGroup, member_id: str, turn: RebalanceStep) -> bool:
    """Return True if a member fits into the group; in a rebalance the first to join do."""
    size_max = turn.settings.group_max_size
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        waits = member is not None and member.join_token is not None
        joined_count = sum(m.join_token is not None for m in group.members.values())
        return waits or joined_count < size_max
    return member is not None or len(group.members) < size_max


def _join_new(group: ClassicGroup, asked: JoinRequest, token: Token, turn: RebalanceStep) -> None:
    known = None if asked.instance_id is None else group.static.get(asked.instance_id)
    if known is not None:
        _replace(group, group.members[known], asked, token, turn)
    elif asked.instance_id is None and asked.requires_member_id:
        group.pending.add(asked.new_member_id)
        key = session_key(group, asked.new_member_id)
        turn.timers.set(key, turn.now_ms + asked.session_timeout_ms)
        turn.answer(token, JoinResult(ErrorCode.member_id_required, asked.new_member_id))
    else:
        _add(group, asked, asked.new_member_id, token, turn)


def _add(
    group: ClassicGroup, asked: JoinRequest, member_id: str, token: Token, turn: RebalanceStep
) -> None:
    if not group.members:
        group.protocol_type = asked.protocol_type
    member = Member(
        member_id=member_id,
        instance_id=asked.instance_id,
        client_id=asked.client_id,
        client_host=asked.client_host,
        rebalance_timeout_ms=asked.rebalance_timeout_ms,
        session_timeout_ms=asked.session_timeout_ms,
        protocols=asked.protocols,
        join_token=token,
        is_new=True,
    )
    group.add(member)
    group.grew = True
    turn.timers.set(session_key(group, member_id), turn.now_ms + NEW_MEMBER_TIMEOUT_MS)
    who, client = log_notes.name(member_id), log_notes.name(asked.client_id)
    turn.notes.append(
        f"Member {who} with client id {client} joins group {log_notes.name(group.group_id)} "
        f"in {group.state} state, adding it to the group"
    )
    rebalance(group, turn, f"adding new member {who}")


def _update(
    group: ClassicGroup, member: Member, asked: JoinRequest, token: Token, turn: RebalanceStep
) -> None:
    """Update a member and rebalance. An older join of it gets REBALANCE_IN_PROGRESS."""
    answer_join(member, JoinResult(ErrorCode.rebalance_in_progress, member.member_id), turn)
    who = log_notes.name(member.member_id)
    changed = member.protocols != asked.protocols
    _take(member, asked)
    member.join_token = token
    reason = f"updating metadata of member {who}" if changed else f"member {who} rejoining"
    rebalance(group, turn, reason)


def _take(member: Member, asked: JoinRequest) -> None:
    member.protocols = asked.protocols
    member.rebalance_timeout_ms = asked.rebalance_timeout_ms
    member.session_timeout_ms = asked.session_timeout_ms
    member.client_id, member.client_host = asked.client_id, asked.client_host


def _repeat(
    group: ClassicGroup, member: Member, asked: JoinRequest, token: Token, turn: RebalanceStep
) -> None:
    """Reply with the current generation: the member may have missed the response."""
    turn.answer(token, joined(group, member))


def _rejoin_completing(
    group: ClassicGroup, member: Member, asked: JoinRequest, token: Token, turn: RebalanceStep
) -> None:
    same = member.protocols == asked.protocols
    (_repeat if same else _update)(group, member, asked, token, turn)


def _rejoin_stable(
    group: ClassicGroup, member: Member, asked: JoinRequest, token: Token, turn: RebalanceStep
) -> None:
    """Rebalance also if the leader joins again: it noticed that topics changed."""
    same = member.protocols == asked.protocols and member.member_id != group.leader
    (_repeat if same else _update)(group, member, asked, token, turn)


_REJOIN: Final[dict[GroupState, Rejoin]] = {
    GroupState.PREPARING_REBALANCE: _update,
    GroupState.COMPLETING_REBALANCE: _rejoin_completing,
    GroupState.STABLE: _rejoin_stable,
}
"""The Empty state has no members that could join again."""


def _replace(
    group: ClassicGroup, member: Member, asked: JoinRequest, token: Token, turn: RebalanceStep
) -> None:
    """Replace a static member with its restarted process, and fence the old process.

    A stable group does not rebalance, unless the new process changes the elected protocol.
    """
    fail_waiting(member, ErrorCode.fenced_instance_id, turn)
    turn.timers.cancel(session_key(group, member.member_id))
    old_leader, old_id = group.leader, log_notes.name(member.member_id)
    who = log_notes.name(asked.new_member_id)
    instance = log_notes.name(asked.instance_id or "")
    turn.notes.append(
        f"Static member with instance id {instance} of group {log_notes.name(group.group_id)} "
        f"joins anew: {who} replaces {old_id}"
    )
    group.replace(member, asked.new_member_id)
    _take(member, asked)
    keep_session(group, member, turn)
    if group.state is GroupState.STABLE and group.protocol == group.elected_protocol():
        turn.store(group)
        turn.answer(token, _in_place(group, member, old_leader, asked))
        return
    member.join_token = token
    if member.is_new:  # a waiting new member sends no heartbeats
        turn.timers.set(session_key(group, member.member_id), turn.now_ms + NEW_MEMBER_TIMEOUT_MS)
    if group.state is GroupState.PREPARING_REBALANCE:
        rebalance(group, turn, f"static member {instance} joins anew")
    else:
        prepare(group, turn, f"static member {instance} joins anew")


def _in_place(
    group: ClassicGroup, member: Member, old_leader: str | None, asked: JoinRequest
) -> JoinResult:
    """Return the response to a restarted static member in a stable group.

    A leader must not assign again. Older clients get the previous member id as the leader, so that
    they do not. Newer ones get all members and the flag to skip the assignment (KIP-814).
    """
    leads = group.leader == member.member_id
    knows = asked.can_skip_assignment
    return JoinResult(
        ErrorCode.none,
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol,
        ((group.leader if knows else old_leader) or ""),
        group.described() if leads and knows else (),
        skip_assignment=leads and knows,
    )


Sync = Callable[[ClassicGroup, Member, SyncRequest, Token, RebalanceStep], None]

_HEARTBEAT: Final[dict[GroupState, ErrorCode]] = {
    GroupState.PREPARING_REBALANCE: ErrorCode.rebalance_in_progress,
    GroupState.COMPLETING_REBALANCE: ErrorCode.none,
    GroupState.STABLE: ErrorCode.none,
}
"""The response to a heartbeat with the right generation, by state."""


def heartbeat(group: ClassicGroup, asked: HeartbeatRequest, turn: RebalanceStep) -> ErrorCode:
    """Handle a heartbeat; return its code."""
    error = _check(group, asked.member, asked.generation)
    if error is not ErrorCode.none:
        return error
    keep_session(group, group.members[asked.member.member_id], turn)
    return _HEARTBEAT[group.state]


def sync(group: ClassicGroup, asked: SyncRequest, token: Token, turn: RebalanceStep) -> None:
    """Reply with the assignment, or wait for it; the leader's SyncGroup brings it.

    If the group is too large to store, its leader gets an error and there is no assignment, as in
    Kafka.
    """
    error = _check(group, asked.member, asked.generation)
    if error is ErrorCode.none and not _speaks(group, asked):
        error = ErrorCode.inconsistent_group_protocol
    if error is not ErrorCode.none:
        turn.answer(token, SyncResult(error))
        return
    _SYNC[group.state](group, group.members[asked.member.member_id], asked, token, turn)


def leave(group: ClassicGroup, asked: LeaveRequest, turn: RebalanceStep) -> LeaveResult:
    """Remove members; return a code for each."""
    before = set(group.members)
    codes = tuple(_leave(group, who, turn) for who in asked.members)
    if gone := before - group.members.keys():
        who, name = log_notes.members(gone), log_notes.name(group.group_id)
        turn.notes.append(f"Members {who} left group {name} by LeaveGroup")
        rebalance(group, turn, f"removing {who} on LeaveGroup")
    return LeaveResult(ErrorCode.none, codes)


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
    group: ClassicGroup, member: Member, asked: SyncRequest, token: Token, turn: RebalanceStep
) -> None:
    turn.answer(token, SyncResult(ErrorCode.rebalance_in_progress))


def _sync_completing(
    group: ClassicGroup, member: Member, asked: SyncRequest, token: Token, turn: RebalanceStep
) -> None:
    # its earlier SyncGroup still waits
    answer_sync(member, SyncResult(ErrorCode.rebalance_in_progress), turn)
    assignments = dict(asked.assignments) if member.member_id == group.leader else {}
    if group.stored_bytes(assignments) > turn.settings.batch_bytes_max:
        turn.answer(token, SyncResult(ErrorCode.unknown_server_error))
        return
    member.sync_token = token
    synced(group, member.member_id, turn)
    if member.member_id == group.leader:
        turn.notes.append(
            f"Assignment received from leader {log_notes.name(member.member_id)} for group "
            f"{log_notes.name(group.group_id)} for generation {group.generation}. "
            f"The group has {len(group.members)} members"
        )
        share(group, assignments, ErrorCode.none, turn)
        group.become(GroupState.STABLE, turn.now_ms)
        turn.store(group)


def _sync_stable(
    group: ClassicGroup, member: Member, asked: SyncRequest, token: Token, turn: RebalanceStep
) -> None:
    synced(group, member.member_id, turn)
    turn.answer(token, assigned(group, member))


_SYNC: Final[dict[GroupState, Sync]] = {
    GroupState.PREPARING_REBALANCE: _sync_preparing,
    GroupState.COMPLETING_REBALANCE: _sync_completing,
    GroupState.STABLE: _sync_stable,
}
"""The Empty state has no members."""


def _leave(group: ClassicGroup, who: MemberIdentity, turn: RebalanceStep) -> ErrorCode:
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
