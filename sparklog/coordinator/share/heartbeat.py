"""Heartbeats of share groups: the checks, and the records that result.

Every check comes before the first record. A heartbeat that joins or changes the subscription raises
the group epoch. The same heartbeat then computes the target and gives the member its partitions.

A partition without a state is not assigned. The group records that the state is being initialized,
and the shard's leader does that in an errand. `initialized` records the result, and assigns the
partitions.

Source: Kafka's `GroupMetadataManager.shareGroupHeartbeat`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from sparklog.coordinator.consumer.messages import NO_PARTS, Part, Parts
from sparklog.coordinator.consumer.topics import Topics, subscription_hash
from sparklog.coordinator.share.assignor import Sharer, assign_simply
from sparklog.coordinator.share.group import ShareGroup, ShareMember, tombstones_of
from sparklog.coordinator.share.messages import JOIN_EPOCH, LEAVE_EPOCH, ShareHeartbeat
from sparklog.coordinator.share.records import (
    ShareGroupEpoch,
    ShareMemberAssignment,
    ShareMemberRecord,
    ShareMemberTarget,
    ShareRecord,
    ShareTargetEpoch,
)
from sparklog.core.errors import (
    FencedMemberEpoch,
    GroupMaxSizeReached,
    InvalidRequest,
    UnknownMemberId,
)

ID_BYTES_MAX: Final = 32_767
"""The largest id that a record's key can hold."""


@dataclass(slots=True)
class ShareChange:
    """Records for one group, each applied when it is added."""

    group: ShareGroup
    topics: Topics
    now_ms: int
    records: list[ShareRecord] = field(default_factory=list)
    begun: Parts = NO_PARTS
    """Partitions whose state must be initialized because of this change."""

    def add(self, record: ShareRecord) -> None:
        """Apply and collect a record."""
        self.group.apply(record)
        self.records.append(record)


def check_share_heartbeat(asked: ShareHeartbeat) -> None:
    """Reject a heartbeat that is invalid for any group.

    Raises:
        InvalidRequest: an id is empty or too long, or the epoch and the subscription contradict
            each other.
    """
    for name, word in (
        ("MemberId", asked.member_id),
        ("GroupId", asked.group_id),
        ("RackId", asked.rack_id),
    ):
        if word is not None and not word.strip():
            raise InvalidRequest(f"{name} can't be empty.")
        if word is not None and len(word.encode()) > ID_BYTES_MAX:
            raise InvalidRequest(f"{name} is too long. bytes_max={ID_BYTES_MAX}")
    if asked.epoch == JOIN_EPOCH and not asked.names:
        raise InvalidRequest("SubscribedTopicNames must be set in first request.")
    if asked.epoch < LEAVE_EPOCH:
        raise InvalidRequest("MemberEpoch is invalid.")


def heartbeat(
    group: ShareGroup, asked: ShareHeartbeat, change: ShareChange, size_max: int
) -> ShareMember:
    """Handle the heartbeat of a joining or present member; return the member afterwards.

    Raises:
        GroupError: the heartbeat is rejected; nothing was changed.
    """
    before = _member_before(group, asked, size_max)
    known = before.about if before else ShareMemberRecord(asked.group_id, asked.member_id)
    about = replace(
        known,
        rack_id=known.rack_id if asked.rack_id is None else asked.rack_id,
        client_id=asked.client_id,
        client_host=asked.client_host,
        names=known.names if asked.names is None else tuple(sorted(set(asked.names))),
    )
    if before is None or about != known:
        change.add(about)
    resubscribed = before is None or about.names != known.names
    if resubscribed or group.topics_seen != change.topics.version:
        _follow_topics(change, changed=resubscribed)
        _begin_states(change)
    if group.epoch > group.target_epoch:
        _assign(change)
    _reconcile(group.members[asked.member_id], change)
    return group.members[asked.member_id]


def leave(group: ShareGroup, member_id: str, change: ShareChange) -> None:
    """Remove a member that leaves.

    Raises:
        UnknownMemberId: the group has no such member.
    """
    remove(_known(group, member_id), change)


def remove(member: ShareMember, change: ShareChange) -> None:
    """Remove a member; others get its partitions with their next heartbeats."""
    for record in tombstones_of(member):
        change.add(record)
    _follow_topics(change, changed=True)


def initialized(change: ShareChange, parts: Parts) -> None:
    """Record that states of partitions are initialized, and assign the partitions."""
    group, before = change.group, change.group.partitions
    done = parts & before.initializing
    if not done:
        return
    change.add(
        replace(
            before,
            initializing=before.initializing - done,
            initialized=before.initialized | done,
        )
    )
    if group.members:
        change.add(ShareGroupEpoch(group.group_id, group.epoch + 1, group.topics_hash))
        _assign(change)


def begin_deletion(change: ShareChange) -> None:
    """Record that all states of the group are being deleted, before the group itself is."""
    before = change.group.partitions
    topic_ids = {topic_id for topic_id, _ in before.initialized | before.initializing}
    if topic_ids:
        change.add(
            replace(
                before,
                initializing=NO_PARTS,
                initialized=NO_PARTS,
                deleting=before.deleting | topic_ids,
            )
        )
        change.group.topics_seen = None


def _member_before(group: ShareGroup, asked: ShareHeartbeat, size_max: int) -> ShareMember | None:
    """Return the member that sent a heartbeat; None for a new one."""
    if asked.epoch != JOIN_EPOCH:
        member = _known(group, asked.member_id)
        _check_epoch(member, asked.epoch)
        return member
    known = group.members.get(asked.member_id)
    if known is None and len(group.members) >= size_max:
        raise GroupMaxSizeReached(
            f"The share group has reached its maximum capacity of {size_max} members."
        )
    return known


def _known(group: ShareGroup, member_id: str) -> ShareMember:
    member = group.members.get(member_id)
    if member is None:
        raise UnknownMemberId(f"Member {member_id} is not a member of group {group.group_id}.")
    return member


def _check_epoch(member: ShareMember, epoch: int) -> None:
    """Reject an epoch that is not the member's.

    The previous epoch is valid: the response with the current one may be lost.
    """
    if epoch not in (member.epoch, member.has.previous_epoch):
        than = "greater" if epoch > member.epoch else "smaller"
        raise FencedMemberEpoch(
            f"The share group member has a {than} member epoch ({epoch}) than the one known by "
            f"the group coordinator ({member.epoch}). The member must abandon all its partitions "
            "and rejoin."
        )


def _follow_topics(change: ShareChange, *, changed: bool) -> None:
    """Raise the group epoch if members or their topics changed."""
    group = change.group
    topics_hash = subscription_hash(group.subscribed(), change.topics)
    group.topics_seen = change.topics.version
    if changed or topics_hash != group.topics_hash:
        change.add(ShareGroupEpoch(group.group_id, group.epoch + 1, topics_hash))


def _begin_states(change: ShareChange) -> None:
    """Record which subscribed partitions need a state and have none yet."""
    group, before = change.group, change.group.partitions
    wanted: set[Part] = set()
    names = dict(before.names)
    for name in sorted(group.subscribed()):
        found = change.topics.find(name)
        if found is not None:
            topic_id, count = found
            wanted.update((topic_id, number) for number in range(count))
            names[topic_id] = name
    begun = frozenset(wanted - before.initialized - before.initializing)
    if not begun:
        return
    change.begun |= begun
    topic_ids = {topic_id for topic_id, _ in begun}
    after = replace(
        before,
        initializing=before.initializing | begun,
        deleting=before.deleting - topic_ids,
    )
    change.add(replace(after, names={t: names[t] for t in after.topic_ids() if t in names}))


def _assign(change: ShareChange) -> None:
    """Compute a new target assignment of the partitions that have a state."""
    group, topics = change.group, change.topics
    known = {name: found for name in group.subscribed() if (found := topics.find(name))}
    counts = dict(known.values())
    parts = frozenset(
        (topic_id, number)
        for topic_id, number in group.partitions.initialized
        if number < counts.get(topic_id, 0)
    )
    sharers = {
        member_id: Sharer(
            frozenset(known[name][0] for name in member.about.names if name in known),
            group.targets.get(member_id, NO_PARTS),
        )
        for member_id, member in group.members.items()
    }
    for member_id, assigned in sorted(assign_simply(sharers, parts).items()):
        if group.targets.get(member_id) != assigned:
            change.add(ShareMemberTarget(group.group_id, member_id, assigned))
    change.add(ShareTargetEpoch(group.group_id, group.epoch, change.now_ms))


def _reconcile(member: ShareMember, change: ShareChange) -> None:
    """Give a member its target assignment, and the epoch of that."""
    group, has = change.group, member.has
    target = group.targets.get(member.member_id, NO_PARTS)
    if has.epoch != group.target_epoch or has.assigned != target:
        previous = has.previous_epoch if has.epoch == group.target_epoch else has.epoch
        change.add(
            ShareMemberAssignment(
                group.group_id, member.member_id, group.target_epoch, previous, target
            )
        )
