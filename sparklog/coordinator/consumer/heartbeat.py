"""Heartbeats of consumer groups: the checks, and the records that result.

Every check comes before the first record. Each heartbeat reconciles: it takes one step of a member
from its current to its target assignment.

- Stable, Unreleased -> Unrevoked: the target lacks some of its partitions, so it must revoke them.
- Unrevoked -> Unrevoked: it still owns some of them, or does not report its partitions.
- any -> Stable: it has all of its target, and the target epoch.
- any -> Unreleased: as Stable, but without partitions that other members still hold.

A member revokes partitions by leaving them out of the owned ones in its heartbeat. A partition
keeps the epoch in which it was assigned as long as the member keeps it. A partition that was
revoked and assigned again has the new epoch. A static member that returns under its instance id
(epoch 0) holds its partitions from its first epoch.
Source: Kafka's `GroupMetadataManager.consumerGroupHeartbeat`, `CurrentAssignmentBuilder`; KIP-848,
KIP-345 (static members).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import UUID

from sparklog.coordinator.consumer.assignors import ASSIGNORS, Reader
from sparklog.coordinator.consumer.group import ConsumerGroup, ConsumerMember, burial_of
from sparklog.coordinator.consumer.messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_PARTS,
    UNCHANGED_MS,
    ConsumerHeartbeat,
    FilterTopics,
    Part,
    Parts,
)
from sparklog.coordinator.consumer.records import (
    ConsumerRecord,
    GroupEpoch,
    MemberAssignment,
    MemberRecord,
    MemberState,
    MemberTarget,
    ResolvedPattern,
    TargetEpoch,
)
from sparklog.coordinator.consumer.topics import Topics, check_pattern, matching, subscription_hash
from sparklog.core.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    InvalidRegularExpression,
    InvalidRequest,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)


def next_assignment(
    has: MemberAssignment,
    target: Parts,
    target_epoch: int,
    owned: Parts | None,
    is_held_by_other: Callable[[Part], bool],
) -> MemberAssignment:
    """Return a member's assignment after a heartbeat.

    Args:
        has: current assignment.
        target: target assignment.
        target_epoch: its epoch.
        owned: partitions that the member reports; None: unchanged.
        is_held_by_other: True if another member holds a partition.
    """
    if has.state is MemberState.STABLE and has.epoch == target_epoch:
        return has
    if has.state is MemberState.UNREVOKED_PARTITIONS and _owns_any(owned, has.revoking):
        return has
    kept = has.assigned & target
    to_revoke = has.assigned - kept
    if to_revoke and _owns_any(owned, to_revoke):
        return replace(
            has, state=MemberState.UNREVOKED_PARTITIONS, assigned=kept, revoking=to_revoke
        )
    missing = target - kept
    blocked = frozenset(part for part in missing if is_held_by_other(part))
    state = MemberState.UNRELEASED_PARTITIONS if blocked else MemberState.STABLE
    assigned = kept | (missing - blocked)
    previous = has.previous_epoch if has.epoch == target_epoch else has.epoch
    return MemberAssignment(
        has.group_id,
        has.member_id,
        target_epoch,
        previous,
        state,
        assigned,
        since={part: has.since[part] or target_epoch for part in kept},
    )


def _owns_any(owned: Parts | None, parts: Parts) -> bool:
    """Return True if a member may still own some of the partitions."""
    return bool(parts if owned is None else owned & parts)


ID_BYTES_MAX: Final = 32_767
"""The largest id that a record's key can hold."""


@dataclass(slots=True)
class MemberChange:
    """Records for one group, each applied when it is added."""

    group: ConsumerGroup
    topics: Topics
    now_ms: int
    records: list[ConsumerRecord] = field(default_factory=list)

    def add(self, record: ConsumerRecord) -> None:
        """Apply and collect a record."""
        self.group.apply(record)
        self.records.append(record)


def check(asked: ConsumerHeartbeat, assignors: Sequence[str]) -> None:
    """Reject a heartbeat that is invalid for any group; `assignors` are the enabled ones.

    Raises:
        InvalidRequest: the fields contradict each other. UnsupportedAssignor,
            InvalidRegularExpression.
    """
    for name, word in (
        ("GroupId", asked.group_id),
        ("MemberId", asked.member_id),
        ("InstanceId", asked.instance_id),
    ):
        if word is not None and not 0 < len(word.encode()) <= ID_BYTES_MAX:
            raise InvalidRequest(f"{name} cannot be empty, nor that long. bytes_max={ID_BYTES_MAX}")
    if asked.epoch < LEAVE_STATIC_EPOCH:
        raise InvalidRequest(f"MemberEpoch is invalid. member_epoch={asked.epoch}")
    if asked.epoch == LEAVE_STATIC_EPOCH and asked.instance_id is None:
        raise InvalidRequest("InstanceId can't be null when a static member leaves to come back")
    if asked.epoch == JOIN_EPOCH:
        if asked.rebalance_timeout_ms == UNCHANGED_MS:
            raise InvalidRequest("RebalanceTimeoutMs must be provided in first request")
        if asked.classic is None and (asked.owned is None or asked.owned):
            raise InvalidRequest("TopicPartitions must be empty when (re-)joining")
        if asked.names is None and asked.regex is None:
            raise InvalidRequest("SubscribedTopicNames or SubscribedTopicRegex must be set")
    if asked.assignor is not None and asked.assignor not in assignors:
        raise UnsupportedAssignor(
            f"ServerAssignor {asked.assignor} is not supported. Supported assignors: "
            f"{', '.join(assignors)}"
        )
    if asked.regex:
        check_pattern(asked.regex)


def heartbeat(
    group: ConsumerGroup, asked: ConsumerHeartbeat, change: MemberChange, members_max: int
) -> ConsumerMember:
    """Handle the heartbeat of a joining or present member; return the member afterwards.

    Raises:
        GroupError: the heartbeat is rejected; nothing was changed.
    """
    before = _member_before(group, asked, members_max)
    change_regexes = asked.regex is not None or group.topics_seen != change.topics.version
    if before is not None and before.member_id != asked.member_id:
        before = _replaced(before, asked.member_id, change)
    about = _about(before, asked)
    resubscribed = before is None or _wish(about) != _wish(before.about)
    if before is None or about != before.about:
        change.add(about)
    if change_regexes:
        _resolve_patterns(change, asked.may_describe)
    if resubscribed or group.topics_seen != change.topics.version:
        _follow_topics(change, changed=resubscribed)
    if group.epoch > group.target_epoch:
        _assign(change)
    reconcile(group.members[asked.member_id], asked, change)
    return group.members[asked.member_id]


def reconcile(member: ConsumerMember, asked: ConsumerHeartbeat, change: MemberChange) -> None:
    """Move a member one step towards its target assignment."""
    group, has = change.group, member.has
    after = next_assignment(
        has,
        group.targets.get(member.member_id, NO_PARTS),
        group.target_epoch,
        NO_PARTS if asked.epoch == JOIN_EPOCH and asked.classic is None else asked.owned,
        lambda part: group.is_held_by_other(part, member.member_id),
    )
    if after != has:
        change.add(after)


def leave(group: ConsumerGroup, asked: ConsumerHeartbeat, change: MemberChange) -> None:
    """Remove a member. A static one that will return keeps its partitions until its session ends.

    Raises:
        UnknownMemberId, FencedInstanceId: the ids do not name a present member.
    """
    member = _known(group, asked)
    if asked.epoch == LEAVE_EPOCH:
        remove(member, change)
    else:
        # A static member that returns holds its partitions from its first epoch on.
        change.add(replace(member.has, epoch=LEAVE_STATIC_EPOCH, revoking=NO_PARTS, since={}))


def remove(member: ConsumerMember, change: MemberChange) -> None:
    """Remove a member and release its partitions."""
    _replace_by_tombstones(member, change)
    names = {m.about.regex for m in change.group.members.values()}
    for pattern in sorted(change.group.patterns.keys() - names):
        change.add(ResolvedPattern(change.group.group_id, pattern, None))
    _follow_topics(change, changed=True)


def _member_before(
    group: ConsumerGroup, asked: ConsumerHeartbeat, members_max: int
) -> ConsumerMember | None:
    """Return the member that sent a heartbeat; None for a new one."""
    if asked.epoch != JOIN_EPOCH:
        member = _known(group, asked)
        _check_epoch(member, asked)
        return member
    if asked.instance_id is not None:
        holder = group.members.get(group.static.get(asked.instance_id, ""))
        if holder is not None:
            # A classic static member does not leave: a new process replaces it.
            may_leave = asked.classic is not None or holder.is_classic
            released = holder.epoch == LEAVE_STATIC_EPOCH or may_leave
            if not released and holder.member_id != asked.member_id:
                raise UnreleasedInstanceId(
                    "another member has the instance id and has not left. "
                    f"group={group.group_id} instance_id={asked.instance_id}"
                )
            return holder
    known = group.members.get(asked.member_id)
    if known is None and len(group.members) >= members_max:
        raise GroupMaxSizeReached(
            f"the group has as many members as it may. group={group.group_id} max={members_max}"
        )
    return known


def _known(group: ConsumerGroup, asked: ConsumerHeartbeat) -> ConsumerMember:
    if asked.instance_id is not None:
        holder = group.static.get(asked.instance_id)
        if holder is None:
            raise UnknownMemberId(f"no member has the instance id. instance_id={asked.instance_id}")
        if holder != asked.member_id:
            raise FencedInstanceId(
                "another member has taken over the instance id. "
                f"group={group.group_id} instance_id={asked.instance_id}"
            )
    member = group.members.get(asked.member_id)
    if member is None:
        raise UnknownMemberId(
            f"the group has no such member. group={group.group_id} member_id={asked.member_id}"
        )
    return member


def _check_epoch(member: ConsumerMember, asked: ConsumerHeartbeat) -> None:
    """Reject an epoch that is not the member's.

    The previous epoch is valid if the response with the current one may be lost. The member then
    owns no more than its current assignment.
    """
    if asked.epoch == member.epoch:
        return
    is_retry = (
        asked.epoch < member.epoch
        and asked.epoch == member.has.previous_epoch
        and asked.owned is not None
        and asked.owned <= member.has.assigned
    )
    if not is_retry:
        raise FencedMemberEpoch(
            "the member's epoch is not the coordinator's: give up all partitions and join anew. "
            f"member_id={member.member_id} member_epoch={asked.epoch} known_epoch={member.epoch}"
        )


def _about(before: ConsumerMember | None, asked: ConsumerHeartbeat) -> MemberRecord:
    known = before.about if before is not None else MemberRecord(asked.group_id, asked.member_id)
    timeout_ms = asked.rebalance_timeout_ms
    return replace(
        known,
        instance_id=known.instance_id if asked.instance_id is None else asked.instance_id,
        rack_id=known.rack_id if asked.rack_id is None else asked.rack_id,
        client_id=asked.client_id,
        client_host=asked.client_host,
        names=known.names if asked.names is None else tuple(sorted(set(asked.names))),
        regex=known.regex if asked.regex is None else asked.regex or None,
        rebalance_timeout_ms=(
            known.rebalance_timeout_ms if timeout_ms == UNCHANGED_MS else timeout_ms
        ),
        assignor=known.assignor if asked.assignor is None else asked.assignor,
        classic=asked.classic,
    )


def _wish(about: MemberRecord) -> tuple[tuple[str, ...], str | None]:
    return about.names, about.regex


def _replaced(before: ConsumerMember, member_id: str, change: MemberChange) -> ConsumerMember:
    """Move the state of a static member to the new process under its instance id."""
    group_id, target = change.group.group_id, change.group.targets.get(before.member_id)
    _replace_by_tombstones(before, change)
    change.add(replace(before.about, member_id=member_id))
    if target is not None:
        change.add(MemberTarget(group_id, member_id, target))
    change.add(MemberAssignment(group_id, member_id, assigned=before.has.assigned))
    return change.group.members[member_id]


def _replace_by_tombstones(member: ConsumerMember, change: MemberChange) -> None:
    for record in burial_of(member):
        change.add(record)


def _resolve_patterns(change: MemberChange, may_describe: FilterTopics | None) -> None:
    """Resolve the members' patterns against the current topics that the client may describe."""
    group, topics = change.group, change.topics
    wanted = {m.about.regex for m in group.members.values() if m.about.regex}
    for pattern in sorted(group.patterns.keys() - wanted):
        change.add(ResolvedPattern(group.group_id, pattern, None))
    for pattern in sorted(wanted):
        try:
            names = matching(pattern, topics.names())
        except InvalidRegularExpression:  # a coordinator with another engine accepted it
            names = frozenset()
        if may_describe is not None:
            names = may_describe(names)
        if group.patterns.get(pattern) != names:
            version, now_ms = topics.version, change.now_ms
            change.add(ResolvedPattern(group.group_id, pattern, names, version, now_ms))


def _follow_topics(change: MemberChange, *, changed: bool) -> None:
    """Raise the group epoch if members or their topics changed."""
    group = change.group
    topics_hash = subscription_hash(group.subscribed(), change.topics)
    group.topics_seen = change.topics.version
    if changed or topics_hash != group.topics_hash:
        change.add(GroupEpoch(group.group_id, group.epoch + 1, topics_hash))


def _assign(change: MemberChange) -> None:
    """Compute a new target assignment."""
    group, topics = change.group, change.topics
    known = {name: found for name in group.subscribed() if (found := topics.find(name))}
    counts: dict[UUID, int] = {known[name][0]: known[name][1] for name in sorted(known)}
    readers = {
        member_id: Reader(
            frozenset(known[name][0] for name in group.subscription(member) if name in known),
            member.about.instance_id,
            group.targets.get(member_id, NO_PARTS),
        )
        for member_id, member in group.members.items()
    }
    assign = ASSIGNORS[group.assignor]
    for member_id, parts in sorted(assign(readers, counts).items()):
        if group.targets.get(member_id) != parts:
            change.add(MemberTarget(group.group_id, member_id, parts))
    change.add(TargetEpoch(group.group_id, group.epoch))
