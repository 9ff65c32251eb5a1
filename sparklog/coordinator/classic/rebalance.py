"""Rebalances of a classic group, from the first join to the assignment of all members.

- `prepare`: members must join (again); timer JOIN.
- `complete_join`: the joined members form the next generation; JoinGroup responses, timer SYNC.
- `share`: the leader has sent the assignment; SyncGroup responses.

A first rebalance waits `group.initial.rebalance.delay.ms` for more members. It waits again while
more come, up to their rebalance time-out. A later one waits until all members joined, at most for
the longest rebalance time-out. It then removes members that have not joined, except static ones.
Source: Kafka `GroupMetadataManager` (classic groups); KIP-134, KIP-345.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from kio.schema.errors import ErrorCode

from sparklog.coordinator import log_notes
from sparklog.coordinator.classic.group import ClassicGroup, GroupState, Member
from sparklog.coordinator.config import GroupSettings
from sparklog.coordinator.effects import Token
from sparklog.coordinator.messages import NO_MEMBER, JoinResult, SyncResult
from sparklog.coordinator.timers import Timers

NEW_MEMBER_TIMEOUT_MS: Final = 300_000
"""Time for the first response to a member: the coordinator does not notice a closed connection."""


class TimerKind(IntEnum):
    """Kinds of a group's deadlines."""

    SESSION = 0
    """Session of a member, or of a member id that no client has joined with yet."""
    JOIN = 1
    SYNC = 2
    OFFSETS = 3
    """Next check for expired offsets, in all groups."""


TimerKey = tuple[str, TimerKind, str]
"""Group id, kind, member id or ''."""


@dataclass(slots=True)
class RebalanceStep:
    """Inputs of one event, and its results so far."""

    now_ms: int
    settings: GroupSettings
    timers: Timers[TimerKey]
    replies: list[tuple[Token, object]] = field(default_factory=list)
    changed: dict[str, ClassicGroup] = field(default_factory=dict)
    """Groups whose record must be written."""
    notes: list[str] = field(default_factory=list)
    """Lines for the log of the broker."""

    def answer(self, token: Token, reply: object) -> None:
        """Add a reply to a caller."""
        self.replies.append((token, reply))

    def store(self, group: ClassicGroup) -> None:
        """Mark a group's record to be written."""
        self.changed[group.group_id] = group


def rebalance(group: ClassicGroup, turn: RebalanceStep, reason: str) -> None:
    """Begin a rebalance because of `reason`, or continue the current one."""
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_if_joined(group, turn)
    else:
        prepare(group, turn, reason)


def prepare(group: ClassicGroup, turn: RebalanceStep, reason: str) -> None:
    """Begin a rebalance. The next heartbeat returns REBALANCE_IN_PROGRESS to each member."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        share(group, {}, ErrorCode.rebalance_in_progress, turn)
    turn.timers.cancel(sync_key(group))
    is_first = group.state is GroupState.EMPTY
    turn.notes.append(log_notes.preparing(group.group_id, group.state, group.generation, reason))
    group.become(GroupState.PREPARING_REBALANCE, turn.now_ms)
    if is_first:
        delay_ms = turn.settings.group_initial_rebalance_delay_ms
        group.delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.grew = False
        turn.timers.set(join_key(group), turn.now_ms + delay_ms)
    elif group.all_joined:
        complete_join(group, turn)
    else:
        turn.timers.set(join_key(group), turn.now_ms + group.rebalance_timeout_ms)


def complete_if_joined(group: ClassicGroup, turn: RebalanceStep) -> None:
    """End the join phase if all members joined; a first rebalance always takes its delay."""
    joining = group.state is GroupState.PREPARING_REBALANCE
    if joining and group.delay_left_ms is None and group.all_joined:
        complete_join(group, turn)


def join_time_is_up(group: ClassicGroup, turn: RebalanceStep) -> None:
    """End the join phase, or extend a first rebalance that still grows."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    if group.grew and group.delay_left_ms:
        delay_ms = min(turn.settings.group_initial_rebalance_delay_ms, group.delay_left_ms)
        group.delay_left_ms -= delay_ms
        group.grew = False
        turn.timers.set(join_key(group), turn.now_ms + delay_ms)
    else:
        complete_join(group, turn)


def complete_join(group: ClassicGroup, turn: RebalanceStep) -> None:
    """Begin the next generation with the joined members, and respond to them."""
    turn.timers.cancel(join_key(group))
    absent = [m for m in group.members.values() if m.join_token is None and m.instance_id is None]
    for member in absent:
        turn.timers.cancel(session_key(group, member.member_id))
        group.remove(member.member_id)
    if absent:
        who = log_notes.members(m.member_id for m in absent)
        turn.notes.append(f"{_named(group)} removed members who haven't joined: {who}")
    if group.members and not group.elect_joined_leader():
        # Only static members are left, and none has joined: wait until they join or expire.
        turn.timers.set(join_key(group), turn.now_ms + group.rebalance_timeout_ms)
        return
    group.begin_generation(turn.now_ms)
    if not group.members:
        turn.notes.append(f"{_named(group)} with generation {group.generation} is now empty")
        turn.store(group)
        return
    turn.notes.append(
        f"Stabilized {_named(group, 'group')} generation {group.generation} "
        f"with {len(group.members)} members"
    )
    for member in group.members.values():
        answer_join(member, joined(group, member), turn)
        member.is_new = False
        keep_session(group, member, turn)
    turn.timers.set(sync_key(group), turn.now_ms + group.rebalance_timeout_ms)


def sync_time_is_up(group: ClassicGroup, turn: RebalanceStep) -> None:
    """Remove members that did not send SyncGroup, and rebalance without them."""
    if not group.to_sync:
        return
    who = log_notes.members(group.to_sync)
    turn.notes.append(f"{_named(group)} removed members who haven't sent their sync: {who}")
    for member_id in sorted(group.to_sync):
        turn.timers.cancel(session_key(group, member_id))
        drop(group, group.members[member_id], turn)
    prepare(group, turn, f"removing {who} on pending sync request expiration")


def synced(group: ClassicGroup, member_id: str, turn: RebalanceStep) -> None:
    """Record that a member of this generation sent SyncGroup."""
    group.to_sync.discard(member_id)
    if not group.to_sync:
        turn.timers.cancel(sync_key(group))


def share(
    group: ClassicGroup, assignments: Mapping[str, bytes], error: ErrorCode, turn: RebalanceStep
) -> None:
    """Set every member's assignment, and respond to waiting SyncGroup requests."""
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
        if member.sync_token is not None:
            reply = assigned(group, member) if error is ErrorCode.none else SyncResult(error)
            answer_sync(member, reply, turn)
            keep_session(group, member, turn)


def remove(group: ClassicGroup, member: Member, turn: RebalanceStep, reason: str) -> None:
    """Remove a member and rebalance because of `reason`."""
    turn.timers.cancel(session_key(group, member.member_id))
    drop(group, member, turn)
    rebalance(group, turn, reason)


def drop(group: ClassicGroup, member: Member, turn: RebalanceStep) -> None:
    """Remove a member, and reject its waiting requests: a living client joins again."""
    fail_waiting(member, ErrorCode.unknown_member_id, turn, shown_id=NO_MEMBER)
    group.remove(member.member_id)


def remove_pending(group: ClassicGroup, member_id: str, turn: RebalanceStep) -> None:
    """Remove a member id that no client has joined with."""
    turn.timers.cancel(session_key(group, member_id))
    group.pending.discard(member_id)
    complete_if_joined(group, turn)


def session_is_over(group: ClassicGroup, member_id: str, turn: RebalanceStep) -> None:
    """Remove a member whose session expired, unless a request of it waits."""
    if member_id in group.pending:
        remove_pending(group, member_id, turn)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    waits = member.join_token is not None or member.sync_token is not None
    if member.is_new or not waits:
        who = log_notes.name(member_id)
        turn.notes.append(
            f"Member {who} in {_named(group, 'group')} has failed, removing it from the group"
        )
        remove(group, member, turn, f"removing member {who} on heartbeat expiration")


def keep_session(group: ClassicGroup, member: Member, turn: RebalanceStep) -> None:
    """Extend a member's session to its whole time-out from now on."""
    deadline_ms = turn.now_ms + member.session_timeout_ms
    turn.timers.set(session_key(group, member.member_id), deadline_ms)


def fail_waiting(
    member: Member, error: ErrorCode, turn: RebalanceStep, *, shown_id: str | None = None
) -> None:
    """Reject a member's waiting requests; `told` is the member id in the JoinGroup response."""
    answer_join(member, JoinResult(error, member.member_id if shown_id is None else shown_id), turn)
    answer_sync(member, SyncResult(error), turn)


def answer_join(member: Member, reply: JoinResult, turn: RebalanceStep) -> None:
    """Respond to a member's JoinGroup, if one waits."""
    if member.join_token is not None:
        turn.answer(member.join_token, reply)
        member.join_token = None


def answer_sync(member: Member, reply: SyncResult, turn: RebalanceStep) -> None:
    """Respond to a member's SyncGroup, if one waits."""
    if member.sync_token is not None:
        turn.answer(member.sync_token, reply)
        member.sync_token = None


def joined(group: ClassicGroup, member: Member) -> JoinResult:
    """Return the JoinGroup response for a member of the generation."""
    leads = member.member_id == group.leader
    return JoinResult(
        ErrorCode.none,
        member.member_id,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader or NO_MEMBER,
        group.described() if leads else (),
    )


def assigned(group: ClassicGroup, member: Member) -> SyncResult:
    """Return a member's assignment."""
    return SyncResult(ErrorCode.none, group.protocol_type, group.protocol, member.assignment)


def _named(group: ClassicGroup, noun: str = "Group") -> str:
    return f"{noun} {log_notes.name(group.group_id)}"


def session_key(group: ClassicGroup, member_id: str) -> TimerKey:
    """Return the key of a member's session timer."""
    return group.group_id, TimerKind.SESSION, member_id


def join_key(group: ClassicGroup) -> TimerKey:
    """Return the key of the join phase's timer."""
    return group.group_id, TimerKind.JOIN, ""


def sync_key(group: ClassicGroup) -> TimerKey:
    """Return the key of the sync phase's timer."""
    return group.group_id, TimerKind.SYNC, ""
