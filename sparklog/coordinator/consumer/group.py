"""ConsumerGroup: the state of one consumer group (KIP-848), changed by `apply` alone.

Three epochs follow each other. The group epoch rises when members, subscriptions or topics change.
The target epoch is the group epoch for which the target assignment was computed. The member epoch
is the target epoch that the member has reached. A member that must revoke partitions keeps its
epoch until it has revoked them.

CONSUMER-GROUP-1: One member at most holds a partition: it is assigned to it, or not revoked by it
    yet.
CONSUMER-GROUP-2: Replaying a group's records, in any order that compaction leaves, gives the same
    group.

Source: Kafka's `ConsumerGroup`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from kio.schema.errors import ErrorCode

from sparklog.coordinator.consumer.assignors import ASSIGNORS
from sparklog.coordinator.consumer.messages import (
    LEAVE_STATIC_EPOCH,
    NO_PARTS,
    ConsumerGroupDescription,
    ConsumerMemberDescription,
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
    OldRecord,
    ResolvedPattern,
    TargetEpoch,
)
from sparklog.coordinator.messages import NO_GENERATION, CommitRequest, OffsetToCommit

CONSUMER: Final = "consumer"
"""The type of such groups, and their protocol type."""


class ConsumerGroupState(StrEnum):
    """States of a consumer group, with Kafka's names."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member: its metadata and its assignment."""

    about: MemberRecord
    has: MemberAssignment

    @property
    def member_id(self) -> str:
        """Return the member id."""
        return self.about.member_id

    @property
    def epoch(self) -> int:
        """Return the member epoch: the target epoch that it has reached."""
        return self.has.epoch

    @property
    def is_classic(self) -> bool:
        """Return True if it still uses the classic protocol."""
        return self.about.classic is not None


def burial_of(member: ConsumerMember) -> tuple[ConsumerRecord, ...]:
    """Return the tombstones of a member's records."""
    group_id, member_id = member.about.group_id, member.member_id
    return (
        MemberAssignment(group_id, member_id, gone=True),
        MemberTarget(group_id, member_id, None),
        MemberRecord(group_id, member_id, gone=True),
    )


class ConsumerGroup:
    """One consumer group; see the module."""

    def __init__(self, group_id: str, assignors: Sequence[str] = tuple(ASSIGNORS)) -> None:
        """Start without members; `assignors` are the enabled ones, the default first."""
        self.group_id = group_id
        self._assignors = assignors
        self.epoch = 0
        self.topics_hash = 0
        self.target_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static: dict[str, str] = {}
        """Instance id -> member id."""
        self.targets: dict[str, Parts] = {}
        self.patterns: dict[str, frozenset[str]] = {}
        """Pattern -> topic names."""
        self.holders: dict[Part, str] = {}
        """Partition -> the member that reads it, or has not revoked it yet."""
        self.topics_seen: int | None = None
        """The version of the topics at the last comparison with the subscriptions."""

    def apply(self, record: ConsumerRecord | OldRecord) -> None:
        """Apply a record, replayed or new."""
        match record:
            case GroupEpoch():
                self.epoch, self.topics_hash = record.epoch or 0, record.topics_hash
            case TargetEpoch():
                self.target_epoch = record.epoch or 0
            case MemberTarget():
                if record.parts is None:
                    self.targets.pop(record.member_id, None)
                else:
                    self.targets[record.member_id] = record.parts
            case ResolvedPattern():
                if record.names is None:
                    self.patterns.pop(record.pattern, None)
                else:
                    self.patterns[record.pattern] = record.names
            case MemberRecord():
                self._apply_member(record)
            case MemberAssignment():
                self._apply_assignment(record)

    @property
    def state(self) -> str:
        """Return the group's state, with Kafka's name."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        settled = all(
            member.has.state is MemberState.STABLE and member.epoch == self.target_epoch
            for member in self.members.values()
            if member.epoch != LEAVE_STATIC_EPOCH
        )
        return ConsumerGroupState.STABLE if settled else ConsumerGroupState.RECONCILING

    @property
    def assignor(self) -> str:
        """Return the enabled assignor that most members ask for; else the default."""
        wishes = Counter(m.about.assignor for m in self.members.values() if m.about.assignor)
        return max(self._assignors, key=lambda name: wishes[name])

    def subscription(self, member: ConsumerMember) -> frozenset[str]:
        """Return the names of the topics that a member subscribes to, by name or by pattern."""
        matched = self.patterns.get(member.about.regex or "", frozenset())
        return matched.union(member.about.names)

    def subscribed(self) -> frozenset[str]:
        """Return the names of all subscribed topics."""
        return frozenset().union(*(self.subscription(m) for m in self.members.values()))

    def is_held_by_other(self, part: Part, member_id: str) -> bool:
        """Return True if another member reads a partition, or has not revoked it yet."""
        return self.holders.get(part, member_id) != member_id

    is_consumer: Final = True
    """Always True: the members are consumers, unlike those of some classic groups."""

    def offsets_unused_since_ms(self, commit_ms: int) -> int:
        """Return since when an offset of an unsubscribed topic is unused, in ms."""
        return commit_ms

    def check_commit(self, asked: CommitRequest) -> ErrorCode:
        """Return the error for an offset commit, or `none`.

        A client that is not a member may commit to a group without members. It may also commit in a
        transaction, where the producer epoch fences it. A member that does not know its newest
        epoch may commit for partitions that it has held since an older epoch. No other member has
        read those meanwhile (KIP-1251).
        """
        who, epoch, transactional = asked.member, asked.generation, asked.producer is not None
        if epoch < 0 and not self.members:
            return ErrorCode.none
        has_no_member = not who.member_id and who.instance_id is None
        if transactional and has_no_member and epoch == NO_GENERATION:
            return ErrorCode.none
        member = self.members.get(who.member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        if not (transactional or member.is_classic or asked.knows_epochs):
            return ErrorCode.unsupported_version
        if epoch == member.epoch or (epoch < member.epoch and _had(member, asked.offsets, epoch)):
            return ErrorCode.none
        # Producers before KIP-1319 do not know member epochs.
        is_generation = member.is_classic or (transactional and not asked.knows_epochs)
        return ErrorCode.illegal_generation if is_generation else ErrorCode.stale_member_epoch

    def check_member(self, member_id: str, epoch: int) -> ErrorCode:
        """Return the error for a member id and epoch, or `none`."""
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        if epoch == member.epoch:
            return ErrorCode.none
        return ErrorCode.illegal_generation if member.is_classic else ErrorCode.stale_member_epoch

    @property
    def is_all_classic(self) -> bool:
        """Return True if there are members, and all of them use the classic protocol."""
        return bool(self.members) and all(m.is_classic for m in self.members.values())

    def burial(self) -> list[ConsumerRecord]:
        """Return the tombstones of the group and its members."""
        members = [record for m in self.members.values() for record in burial_of(m)]
        patterns = [ResolvedPattern(self.group_id, pattern, None) for pattern in self.patterns]
        return [
            *members,
            *patterns,
            TargetEpoch(self.group_id, None),
            GroupEpoch(self.group_id, None),
        ]

    def described(self) -> ConsumerGroupDescription:
        """Return the description of the group for administrators."""
        return ConsumerGroupDescription(
            self.group_id,
            self.state,
            self.epoch,
            self.target_epoch,
            self.assignor,
            tuple(
                ConsumerMemberDescription(
                    m.member_id,
                    m.about.instance_id,
                    m.about.rack_id,
                    m.epoch,
                    m.about.client_id,
                    m.about.client_host,
                    m.about.names,
                    m.about.regex,
                    m.has.assigned,
                    self.targets.get(m.member_id, NO_PARTS),
                    m.is_classic,
                )
                for m in self.members.values()
            ),
        )

    def _apply_member(self, record: MemberRecord) -> None:
        known = self.members.get(record.member_id)
        if record.gone:
            self._forget(record.member_id)
            return
        has = known.has if known else MemberAssignment(self.group_id, record.member_id)
        if known is not None:
            self._forget_instance(known)
        self.members[record.member_id] = ConsumerMember(record, has)
        if record.instance_id is not None:
            self.static[record.instance_id] = record.member_id

    def _apply_assignment(self, record: MemberAssignment) -> None:
        known = self.members.get(record.member_id)
        if record.gone:
            if known is not None:
                self._release(known)
                has = MemberAssignment(self.group_id, record.member_id)
                self.members[record.member_id] = replace(known, has=has)
            return
        # Compaction may leave a member's assignment ahead of its metadata.
        about = known.about if known else MemberRecord(self.group_id, record.member_id)
        if known is not None:
            self._release(known)
        self._hold(record.member_id, record.assigned | record.revoking)
        self.members[record.member_id] = ConsumerMember(about, record)

    def _forget(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._release(member)
        self._forget_instance(member)

    def _forget_instance(self, member: ConsumerMember) -> None:
        instance_id = member.about.instance_id
        if instance_id is not None and self.static.get(instance_id) == member.member_id:
            del self.static[instance_id]

    def _hold(self, member_id: str, parts: Iterable[Part]) -> None:
        self.holders.update((part, member_id) for part in parts)

    def _release(self, member: ConsumerMember) -> None:
        for part in member.has.assigned | member.has.revoking:
            if self.holders.get(part) == member.member_id:
                del self.holders[part]


def _had(member: ConsumerMember, offsets: Iterable[OffsetToCommit], epoch: int) -> bool:
    """Return True if a member has held the partitions of the offsets since an epoch of its own."""
    since = member.has.since
    return all(
        offset.topic_id is not None
        and since.get((offset.topic_id, offset.partition), epoch + 1) <= epoch
        for offset in offsets
    )
