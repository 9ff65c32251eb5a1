"""GroupRegistry: the groups of a shard with their types, and their conversion and deletion.

It keeps rule GROUP-SHARD-1. The caller appends the returned records in their order. Times are
ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kio.schema.errors import ErrorCode

from sparklog.coordinator.classic import rebalance
from sparklog.coordinator.classic.group import ClassicGroup, GroupState
from sparklog.coordinator.classic.rebalance import RebalanceStep, TimerKey
from sparklog.coordinator.config import GroupSettings
from sparklog.coordinator.consumer.group import ConsumerGroup
from sparklog.coordinator.consumer.groups import ConsumerGroups
from sparklog.coordinator.consumer.messages import JOIN_EPOCH, ConsumerHeartbeat
from sparklog.coordinator.consumer.topics import Topics
from sparklog.coordinator.effects import CoordinatorRecord
from sparklog.coordinator.group_records import (
    GroupKey,
    read_group_key,
    read_group_value,
    write_group_key,
    write_group_value,
)
from sparklog.coordinator.log_notes import name
from sparklog.coordinator.messages import JoinRequest
from sparklog.coordinator.offsets import GroupOffsets
from sparklog.coordinator.timers import Timers
from sparklog.core.errors import GroupIdNotFound
from sparklog.protocol.messages.consumer_protocol import PROTOCOL_TYPE

RECORDS_AT_ONCE: Final = 1000
"""Offsets that one batch deletes: it stays well below max.message.bytes."""


class GroupRegistry:
    """The groups of a shard; see the module."""

    def __init__(
        self,
        settings: GroupSettings,
        topics: Callable[[], Topics],
        consumers: ConsumerGroups,
        offsets: GroupOffsets,
        timers: Timers[TimerKey],
    ) -> None:
        """Start without groups; `timers` are those of classic groups."""
        self.classic: dict[str, ClassicGroup] = {}
        self.consumers = consumers
        self.offsets = offsets
        self._settings = settings
        self._topics = topics
        self._timers = timers

    def replay_consumer(self, record: CoordinatorRecord, timestamp_ms: int) -> None:
        """Apply a record of a consumer group.

        Raises:
            DataCorrupt: the record cannot be read.
        """
        group_id = self.consumers.replay(record)
        if self.consumers.get(group_id) is not None:
            self.classic.pop(group_id, None)
        else:
            self.know(group_id, timestamp_ms)

    def replay_classic(self, record: CoordinatorRecord, timestamp_ms: int) -> None:
        """Apply the record of a classic group.

        Raises:
            DataCorrupt: the record cannot be read.
        """
        group_id = read_group_key(record.key).group_id
        if record.value is not None:
            self.classic[group_id] = ClassicGroup.of(group_id, read_group_value(record.value))
        elif self.offsets.holds(group_id):
            self.classic[group_id] = ClassicGroup(group_id, timestamp_ms)
        else:
            self.classic.pop(group_id, None)

    def made(self, group_id: str, now_ms: int) -> ClassicGroup:
        """Return a classic group; create it if it does not exist."""
        group = self.classic.get(group_id)
        if group is None:
            group = self.classic[group_id] = ClassicGroup(group_id, now_ms)
        return group

    def know(self, group_id: str, now_ms: int) -> None:
        """Ensure that a group with offsets exists; it is classic until a newer member joins."""
        if self.consumers.get(group_id) is not None:
            return
        if self.offsets.holds(group_id):
            self.made(group_id, now_ms)
        else:
            self.forget_unused(group_id)

    def forget_unused(self, group_id: str) -> None:
        """Remove an empty group that has no stored state and no member about to join."""
        group = self.classic.get(group_id)
        if group is None or group.state is not GroupState.EMPTY:
            return
        if not (group.generation or group.pending or self.offsets.holds(group_id)):
            del self.classic[group_id]

    def delete_group(self, group: ClassicGroup) -> list[CoordinatorRecord]:
        """Delete a classic group that is empty or was converted; return the tombstones."""
        for member_id in group.pending:
            self._timers.cancel(rebalance.session_key(group, member_id))
        group.become(GroupState.DEAD, group.state_since_ms)
        del self.classic[group.group_id]
        if not group.generation:
            return []
        return [CoordinatorRecord(write_group_key(GroupKey(group.group_id)), None)]

    def delete_consumer(self, group_id: str) -> list[CoordinatorRecord]:
        """Delete a consumer group without members, if it exists; return the tombstones."""
        return self.consumers.delete_group(group_id) if self.consumers.get(group_id) else []

    def expire_offsets(self, now_ms: int) -> list[CoordinatorRecord]:
        """Delete expired offsets, and empty groups without offsets; return the tombstones."""
        records: list[CoordinatorRecord] = []
        for consumers in list(self.consumers.all()):
            if len(records) >= RECORDS_AT_ONCE:
                break
            records += self.offsets.expire(consumers, now_ms)
            if not consumers.members and not self.offsets.holds(consumers.group_id):
                records += self.consumers.delete_group(consumers.group_id)
        for group in list(self.classic.values()):
            if len(records) >= RECORDS_AT_ONCE:
                break
            records += self.offsets.expire(group, now_ms)
            unused = group.state is GroupState.EMPTY and not group.pending
            if unused and not self.offsets.holds(group.group_id):
                records += self.delete_group(group)
        return records

    def stays_consumer(self, asked: JoinRequest) -> bool:
        """Return True if this is a consumer group, and stays one when this classic member joins."""
        group = self.consumers.get(asked.group_id)
        return group is not None and (bool(group.members) or asked.protocol_type != PROTOCOL_TYPE)

    def upgrade(
        self, classic: ClassicGroup, asked: ConsumerHeartbeat, topics: Topics, turn: RebalanceStep
    ) -> list[CoordinatorRecord]:
        """Convert a classic group to a consumer group; its members will join again.

        Raises:
            GroupIdNotFound: the group stays classic.
        """
        may_upgrade = self._settings.may_upgrade and classic.is_consumer
        if asked.epoch != JOIN_EPOCH or not may_upgrade:
            raise GroupIdNotFound(f"Group {asked.group_id} is not a consumer group.")
        records = self.consumers.upgrade(classic, topics, turn.now_ms)
        turn.notes.append(f"[GroupId {name(classic.group_id)}] Upgraded to a consumer group")
        for member in classic.members.values():
            rebalance.fail_waiting(member, ErrorCode.rebalance_in_progress, turn)
            self._timers.cancel(rebalance.session_key(classic, member.member_id))
        self._timers.cancel(rebalance.join_key(classic))
        self._timers.cancel(rebalance.sync_key(classic))
        return records

    def downgrade_one(self, group_id: str, turn: RebalanceStep) -> list[CoordinatorRecord]:
        """Call `downgrade` for one group, if it is a consumer group."""
        group = self.consumers.get(group_id)
        return [] if group is None else self.downgrade((group,), turn)

    def downgrade(
        self, groups: Iterable[ConsumerGroup], turn: RebalanceStep
    ) -> list[CoordinatorRecord]:
        """Convert consumer groups that have only classic members left to classic ones."""
        records: list[CoordinatorRecord] = []
        if not self._settings.may_downgrade:
            return records
        left = [group.group_id for group in groups if group.is_all_classic]
        if left:
            self.consumers.take_topics(self._topics())
        for group_id in left:
            classic, tombstones = self.consumers.downgrade(group_id, turn.now_ms)
            records += tombstones
            turn.notes.append(f"[GroupId {name(group_id)}] Downgraded to a classic group")
            self.classic[group_id] = classic
            for member in classic.members.values():
                rebalance.keep_session(classic, member, turn)
            # This record follows the tombstones of the consumer group, or a replay would delete it.
            records.append(stored(classic))
            rebalance.rebalance(classic, turn, "downgrade from a consumer group")
        return records


def stored(group: ClassicGroup) -> CoordinatorRecord:
    """Return the record of a classic group."""
    key = write_group_key(GroupKey(group.group_id))
    return CoordinatorRecord(key, write_group_value(group.value()))
