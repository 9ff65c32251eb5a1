"""One consumer group (KIP-848): what its records say of it. Changed by `apply` alone.

Three epochs follow each other: the group's, which rises when members, subscriptions or topics
change; the target assignment's, made for a group epoch; and each member's, the target it has come
to. A member that is to give up partitions stays in its epoch until it has.

  C1  a partition is held by one member at most: assigned to it, or not yet given up by it
  C2  whoever applied a group's records, in any order that compaction leaves, has the same group
Source: Kafka's `ConsumerGroup`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from kio.schema.errors import ErrorCode

from sparklog.coordinator.assignors import ASSIGNORS
from sparklog.coordinator.consumer_messages import (
    LEAVE_STATIC_EPOCH,
    NO_PARTS,
    ConsumerGroupDescription,
    ConsumerMemberDescription,
    Part,
    Parts,
)
from sparklog.coordinator.consumer_records import (
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
from sparklog.coordinator.group_messages import NO_GENERATION
from sparklog.coordinator.offset_messages import CommitRequest, OffsetToCommit

CONSUMER: Final = "consumer"
"""The type of such groups, and their protocol type."""


class ConsumerGroupState(StrEnum):
    """Kafka's names."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """One member: who it is, and what it reads."""

    about: MemberRecord
    has: MemberAssignment

    @property
    def member_id(self) -> str:
        """Return its id."""
        return self.about.member_id

    @property
    def epoch(self) -> int:
        """Return the epoch of the target that it has come to."""
        return self.has.epoch

    @property
    def is_classic(self) -> bool:
        """Return whether it still speaks the classic protocol."""
        return self.about.classic is not None


def burial_of(member: ConsumerMember) -> tuple[ConsumerRecord, ...]:
    """Return the records that forget a member."""
    group_id, member_id = member.about.group_id, member.member_id
    return (
        MemberAssignment(group_id, member_id, gone=True),
        MemberTarget(group_id, member_id, None),
        MemberRecord(group_id, member_id, gone=True),
    )


class ConsumerGroup:
    """See the module."""

    def __init__(self, group_id: str, assignors: Sequence[str] = tuple(ASSIGNORS)) -> None:
        """Start empty; `assignors` are on offer, the default first."""
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
        """Partition -> the member that reads it, or has not given it up yet."""
        self.topics_seen: int | None = None
        """The version of the topics that subscriptions were compared with last."""

    def apply(self, record: ConsumerRecord | OldRecord) -> None:
        """Take in a record, of the log or just decided."""
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
        """Return the assignor that most members want of those on offer; else the first of them."""
        wishes = Counter(m.about.assignor for m in self.members.values() if m.about.assignor)
        return max(self._assignors, key=lambda name: wishes[name])

    def subscription(self, member: ConsumerMember) -> frozenset[str]:
        """Return the names of the topics that a member wants, by name or by pattern."""
        matched = self.patterns.get(member.about.regex or "", frozenset())
        return matched.union(member.about.names)

    def subscribed(self) -> frozenset[str]:
        """Return the names of all topics that members want."""
        return frozenset().union(*(self.subscription(m) for m in self.members.values()))

    def is_held_by_other(self, part: Part, member_id: str) -> bool:
        """Return whether another member reads a partition, or has not given it up yet."""
        return self.holders.get(part, member_id) != member_id

    is_consumer: Final = True
    """Its members are consumers, unlike those of some classic groups."""

    def offsets_unused_since_ms(self, commit_ms: int) -> int:
        """Return since when an offset of a topic that nobody subscribes to is of no use."""
        return commit_ms

    def check_commit(self, asked: CommitRequest) -> ErrorCode:
        """Return what is wrong with a commit of offsets.

        Whoever is no member may commit for a group without members, or in a transaction, whose
        producer is fenced in other ways. A member that has not heard of its newest epoch may commit
        how far it has read partitions that it has had since before the epoch it knows: nobody else
        has read them (KIP-1251).
        """
        who, epoch, transactional = asked.member, asked.generation, asked.producer is not None
        if epoch < 0 and not self.members:
            return ErrorCode.none
        is_nobody = not who.member_id and who.instance_id is None
        if transactional and is_nobody and epoch == NO_GENERATION:
            return ErrorCode.none
        member = self.members.get(who.member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        if not (transactional or member.is_classic or asked.knows_epochs):
            return ErrorCode.unsupported_version
        if epoch == member.epoch or (epoch < member.epoch and _had(member, asked.offsets, epoch)):
            return ErrorCode.none
        # Producers of before KIP-1319 know of no epochs of members.
        is_generation = member.is_classic or (transactional and not asked.knows_epochs)
        return ErrorCode.illegal_generation if is_generation else ErrorCode.stale_member_epoch

    def check_member(self, member_id: str, epoch: int) -> ErrorCode:
        """Return what is wrong with who somebody says it is."""
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.unknown_member_id
        if epoch == member.epoch:
            return ErrorCode.none
        return ErrorCode.illegal_generation if member.is_classic else ErrorCode.stale_member_epoch

    @property
    def is_all_classic(self) -> bool:
        """Return whether nobody is left who speaks the newer protocol."""
        return bool(self.members) and all(m.is_classic for m in self.members.values())

    def burial(self) -> list[ConsumerRecord]:
        """Return the records that forget the group with its members."""
        members = [record for m in self.members.values() for record in burial_of(m)]
        patterns = [ResolvedPattern(self.group_id, pattern, None) for pattern in self.patterns]
        return [
            *members,
            *patterns,
            TargetEpoch(self.group_id, None),
            GroupEpoch(self.group_id, None),
        ]

    def described(self) -> ConsumerGroupDescription:
        """Return the group for administrators."""
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
        # Compaction may leave who a member is behind what it reads.
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
    """Return whether a member has had the partitions of offsets ever since an epoch of its own."""
    since = member.has.since
    return all(
        offset.topic_id is not None
        and since.get((offset.topic_id, offset.partition), epoch + 1) <= epoch
        for offset in offsets
    )
