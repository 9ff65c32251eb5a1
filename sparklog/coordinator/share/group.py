"""ShareGroup: the state of one share group (KIP-932), changed by `apply` alone.

Three epochs follow each other. The group epoch rises when members, subscriptions, topics or states
change. The target epoch is the group epoch for which the target assignment was computed. A member
reaches the target epoch with its next heartbeat: it has nothing to revoke, since others may have
the same partitions.

SHARE-GROUP-1: A member gets only partitions whose state is initialized.
SHARE-GROUP-2: Replaying a group's records, in any order that compaction leaves, gives the same
    group.

Source: Kafka's `ShareGroup`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final
from uuid import UUID

from sparklog.coordinator.consumer.messages import Part, Parts
from sparklog.coordinator.share.assignor import SIMPLE
from sparklog.coordinator.share.delivery_state import SharePartitionKey
from sparklog.coordinator.share.messages import ShareGroupDescription, ShareMemberDescription
from sparklog.coordinator.share.records import (
    ShareGroupEpoch,
    ShareMemberAssignment,
    ShareMemberRecord,
    ShareMemberTarget,
    ShareRecord,
    ShareTargetEpoch,
    StatefulPartitions,
)

SHARE: Final = "share"
"""The type of such groups, and their protocol type."""


class ShareGroupState(StrEnum):
    """States of a share group, with Kafka's names. A deleted group is Dead."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ShareMember:
    """One member: its metadata and its assignment."""

    about: ShareMemberRecord
    has: ShareMemberAssignment

    @property
    def member_id(self) -> str:
        """Return the member id."""
        return self.about.member_id

    @property
    def epoch(self) -> int:
        """Return the member epoch: the target epoch that it has reached."""
        return self.has.epoch


def tombstones_of(member: ShareMember) -> tuple[ShareRecord, ...]:
    """Return the tombstones of a member's records."""
    group_id, member_id = member.about.group_id, member.member_id
    return (
        ShareMemberAssignment(group_id, member_id, gone=True),
        ShareMemberTarget(group_id, member_id, None),
        ShareMemberRecord(group_id, member_id, gone=True),
    )


class ShareGroup:
    """One share group; see the module."""

    def __init__(self, group_id: str) -> None:
        """Start without members."""
        self.group_id = group_id
        self.epoch = 0
        self.topics_hash = 0
        self.target_epoch = 0
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Parts] = {}
        self.partitions = StatefulPartitions(group_id)
        self.topics_seen: int | None = None
        """The version of the topics at the last comparison with the subscriptions."""

    def apply(self, record: ShareRecord) -> None:
        """Apply a record, replayed or new."""
        match record:
            case ShareGroupEpoch():
                self.epoch, self.topics_hash = record.epoch or 0, record.topics_hash
            case ShareTargetEpoch():
                self.target_epoch = record.epoch or 0
            case ShareMemberTarget():
                if record.parts is None:
                    self.targets.pop(record.member_id, None)
                else:
                    self.targets[record.member_id] = record.parts
            case StatefulPartitions():
                empty = StatefulPartitions(self.group_id)
                self.partitions = empty if record.gone else record
            case ShareMemberRecord():
                self._apply_member(record)
            case ShareMemberAssignment():
                self._apply_assignment(record)

    @property
    def state(self) -> str:
        """Return the group's state, with Kafka's name."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def subscribed(self) -> frozenset[str]:
        """Return the names of all subscribed topics."""
        return frozenset().union(*(member.about.names for member in self.members.values()))

    def state_keys(self, parts: Parts | None = None) -> tuple[SharePartitionKey, ...]:
        """Return the keys of partitions in order; without `parts`, of those with a state."""
        found = self.partitions.initialized if parts is None else parts
        return tuple(SharePartitionKey(self.group_id, *part) for part in sorted(found))

    def without_topics(self, topic_ids: frozenset[UUID]) -> StatefulPartitions | None:
        """Return the partitions without those of deleted topics; None if nothing changes."""
        before = self.partitions
        after = replace(
            before,
            initializing=_without(before.initializing, topic_ids),
            initialized=_without(before.initialized, topic_ids),
            deleting=before.deleting - topic_ids,
            names={t: name for t, name in before.names.items() if t not in topic_ids},
        )
        return None if after == before else after

    def burial(self) -> list[ShareRecord]:
        """Return the tombstones of the group and its members."""
        return [
            *(record for member in self.members.values() for record in tombstones_of(member)),
            StatefulPartitions(self.group_id, gone=True),
            ShareTargetEpoch(self.group_id, None),
            ShareGroupEpoch(self.group_id, None),
        ]

    def described(self) -> ShareGroupDescription:
        """Return the description of the group for administrators."""
        return ShareGroupDescription(
            self.group_id,
            self.state,
            self.epoch,
            self.target_epoch,
            SIMPLE,
            tuple(
                ShareMemberDescription(
                    member.member_id,
                    member.about.rack_id,
                    member.epoch,
                    member.about.client_id,
                    member.about.client_host,
                    member.about.names,
                    member.has.assigned,
                )
                for member in self.members.values()
            ),
        )

    def _apply_member(self, record: ShareMemberRecord) -> None:
        if record.gone:
            self.members.pop(record.member_id, None)
            return
        known = self.members.get(record.member_id)
        has = known.has if known else ShareMemberAssignment(self.group_id, record.member_id)
        self.members[record.member_id] = ShareMember(record, has)

    def _apply_assignment(self, record: ShareMemberAssignment) -> None:
        known = self.members.get(record.member_id)
        if record.gone:
            if known is not None:
                has = ShareMemberAssignment(self.group_id, record.member_id)
                self.members[record.member_id] = replace(known, has=has)
            return
        # Compaction may leave a member's assignment ahead of its metadata.
        about = known.about if known else ShareMemberRecord(self.group_id, record.member_id)
        self.members[record.member_id] = ShareMember(about, record)


def _without(parts: Parts, topic_ids: frozenset[UUID]) -> Parts:
    return frozenset(part for part in parts if _topic_of(part) not in topic_ids)


def _topic_of(part: Part) -> UUID:
    return part[0]
