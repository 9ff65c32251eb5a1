"""StoredShareGroups: share groups and their members, from the records of `__consumer_offsets`.

The coordinator stores members and their partitions. It does not store who still sends heartbeats:
a member that was lost with its broker stays here until the coordinator removes it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from sparklog.coordinator.consumer.messages import NO_PARTS, Parts
from sparklog.coordinator.effects import CoordinatorRecord
from sparklog.coordinator.share.records import (
    ShareGroupEpoch,
    ShareMemberAssignment,
    ShareMemberRecord,
    StatefulPartitions,
    read_share_record,
)


@dataclass(frozen=True, slots=True)
class StoredShareMember:
    """A member, as the coordinator stored it last."""

    member_id: str
    client_id: str
    client_host: str
    assigned: Parts


@dataclass(slots=True)
class StoredShareGroup:
    """A share group."""

    epoch: int = 0
    partitions: Parts = NO_PARTS
    """The partitions that have a state, or are about to get one."""
    _about: dict[str, ShareMemberRecord] = field(default_factory=dict)
    _assigned: dict[str, Parts] = field(default_factory=dict)

    @property
    def members(self) -> list[StoredShareMember]:
        """Return the members, by id."""
        return [
            StoredShareMember(
                member_id,
                about.client_id,
                about.client_host,
                self._assigned.get(member_id, NO_PARTS),
            )
            for member_id, about in sorted(self._about.copy().items())
        ]

    def take_member(self, record: ShareMemberRecord) -> None:
        """Keep a member, or drop one that has left."""
        if record.gone:
            self._about.pop(record.member_id, None)
        else:
            self._about[record.member_id] = record

    def take_assignment(self, record: ShareMemberAssignment) -> None:
        """Keep the partitions of a member, or drop those of one that has left."""
        if record.gone:
            self._assigned.pop(record.member_id, None)
        else:
            self._assigned[record.member_id] = record.assigned


@dataclass(slots=True)
class StoredShareGroups:
    """Folded records of `__consumer_offsets` of the kinds 10 to 15."""

    _groups: dict[str, StoredShareGroup] = field(default_factory=dict)

    @property
    def group_ids(self) -> Collection[str]:
        """Return the groups."""
        return list(self._groups)

    def group(self, group_id: str) -> StoredShareGroup | None:
        """Return a group; None if there is none."""
        return self._groups.get(group_id)

    def take(self, key: bytes, value: bytes | None) -> None:
        """Fold a record.

        Raises:
            DataCorrupt: it is not a record of a share group.
        """
        record = read_share_record(CoordinatorRecord(key, value))
        if isinstance(record, ShareGroupEpoch) and record.epoch is None:
            self._groups.pop(record.group_id, None)
            return
        known = self._groups.get(record.group_id)
        group = StoredShareGroup() if known is None else known
        match record:
            case ShareGroupEpoch(epoch=int(epoch)):
                group.epoch = epoch
                self._groups[record.group_id] = group
            case ShareMemberRecord():
                group.take_member(record)
            case ShareMemberAssignment():
                group.take_assignment(record)
            case StatefulPartitions():
                group.partitions = record.initializing | record.initialized
            case _:
                return
        if not getattr(record, "gone", False):
            self._groups[record.group_id] = group
