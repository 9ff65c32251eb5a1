"""The consumer groups (KIP-848) of one partition of `__consumer_offsets`, and their timers.

Part of `group_shard`, which knows the groups of the other type and everybody's offsets.
Source: Kafka's `GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final

from sparklog.coordinator.consumer_group import ConsumerGroup, ConsumerGroupState, ConsumerMember
from sparklog.coordinator.consumer_membership import Change, check, heartbeat, leave, remove
from sparklog.coordinator.consumer_messages import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_PARTS,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
)
from sparklog.coordinator.consumer_records import (
    ConsumerRecord,
    GroupEpoch,
    MemberState,
    OldRecord,
    read_record,
    write_record,
)
from sparklog.coordinator.effects import CoordinatorRecord
from sparklog.coordinator.group_settings import GroupSettings
from sparklog.coordinator.subscribed_topics import Topics
from sparklog.coordinator.timers import Timers
from sparklog.core.errors import GroupIdNotFound

UNSETTLED_MS: Final = 500
UNSETTLED_MS_PER_MEMBER: Final = 5
"""Heartbeats of a group whose partitions change hands: a member learns of partitions that others
gave up only by asking. Kafka lets it wait for a whole interval; 200 heartbeats a second are not
much."""


class ConsumerTimer(IntEnum):
    """What is due."""

    SESSION = 0
    """The member has not been heard of for too long."""
    REVOKE = 1
    """The member has not given up partitions for too long."""


TimerKey = tuple[str, str, ConsumerTimer]
"""Group, member, what."""


class NoTopics:
    """No topics: what is known before the first heartbeat brings them."""

    version: Final = -1

    def names(self) -> Iterable[str]:
        """Return none."""
        return ()

    def find(self, name: str) -> None:
        """Find nothing."""


class ConsumerGroups:
    """See the module."""

    def __init__(self, settings: GroupSettings) -> None:
        """Start empty: the log comes next."""
        self._settings = settings
        self._timers: Timers[TimerKey] = Timers()
        self._groups: dict[str, ConsumerGroup] = {}
        self._topics: Topics = NoTopics()
        """As the last heartbeat brought them: a member's time may be up between heartbeats."""

    def get(self, group_id: str) -> ConsumerGroup | None:
        """Return a group, if there is one of this type."""
        return self._groups.get(group_id)

    def all(self) -> Iterable[ConsumerGroup]:
        """Return all groups of this type."""
        return self._groups.values()

    def replay(self, record: CoordinatorRecord) -> str:
        """Take in a record of the log; return the group it is of.

        Raises:
            DataCorrupt: it cannot be read.
        """
        found = read_record(record)
        group = self._groups.get(found.group_id)
        if isinstance(found, GroupEpoch) and found.epoch is None:
            self._groups.pop(found.group_id, None)
        elif group is not None:
            group.apply(found)
        elif record.value is not None and not isinstance(found, OldRecord):
            group = self._groups[found.group_id] = ConsumerGroup(found.group_id)
            group.apply(found)
        return found.group_id

    def loaded(self, now_ms: int) -> None:
        """Begin to serve: members have their whole time-outs from now on."""
        for group in self._groups.values():
            for member in group.members.values():
                self._set_timers(group, member, now_ms, revoke_anew=True)

    @property
    def next_deadline_ms(self) -> int | None:
        """Return when something is due."""
        return self._timers.next_ms

    def expire(self, now_ms: int) -> list[CoordinatorRecord]:
        """Remove members whose time is up; return the records that say so."""
        records: list[ConsumerRecord] = []
        while (key := self._timers.pop_due(now_ms)) is not None:
            group_id, member_id, kind = key
            group = self._groups.get(group_id)
            member = group.members.get(member_id) if group is not None else None
            if group is None or member is None:
                continue
            if kind is ConsumerTimer.REVOKE and not _is_revoking(member):
                continue
            change = Change(group, self._topics, now_ms)
            remove(member, change)
            self._cancel_timers(group_id, member_id)
            records += change.records
        return [write_record(record) for record in records]

    def heartbeat(
        self, asked: ConsumerHeartbeat, topics: Topics, now_ms: int, first_epoch: int = 0
    ) -> tuple[ConsumerHeartbeatAnswer, list[CoordinatorRecord]]:
        """Take in that a member joins, lives or leaves; return its answer and the records.

        A group that is new begins behind `first_epoch`, that of the classic group it was.

        Raises:
            GroupError, InvalidRequest: it is refused; nothing was changed.
        """
        check(asked)
        self._topics = topics
        group = self._groups.get(asked.group_id)
        if group is None:
            if asked.epoch != JOIN_EPOCH:
                raise GroupIdNotFound(f"Group {asked.group_id} not found.")
            group = ConsumerGroup(asked.group_id)
            group.epoch = group.target_epoch = first_epoch
        change = Change(group, topics, now_ms)
        if asked.epoch < JOIN_EPOCH:
            return self._left(group, asked, change)
        known = group.members.get(asked.member_id)
        before = known.has.assigned if known is not None else NO_PARTS
        replaced = group.static.get(asked.instance_id or "")
        member = heartbeat(group, asked, change, self._settings.group_consumer_max_size)
        self._groups[asked.group_id] = group
        if replaced is not None and replaced != member.member_id:
            self._cancel_timers(group.group_id, replaced)
        began = known is None or known.epoch != member.epoch or not _is_revoking(known)
        self._set_timers(group, member, now_ms, revoke_anew=began)
        # A member that is behind missed the answer before this one.
        is_behind = known is not None and known.epoch != asked.epoch
        told = asked.is_full or is_behind or member.has.assigned != before
        answer = ConsumerHeartbeatAnswer(
            member.member_id,
            member.epoch,
            self._interval_ms(group),
            member.has.assigned if told else None,
        )
        return answer, [write_record(record) for record in change.records]

    def bury(self, group_id: str) -> list[CoordinatorRecord]:
        """Forget a group without members; return the records that say so."""
        group = self._groups.pop(group_id)
        return [write_record(record) for record in group.burial()]

    def _left(
        self, group: ConsumerGroup, asked: ConsumerHeartbeat, change: Change
    ) -> tuple[ConsumerHeartbeatAnswer, list[CoordinatorRecord]]:
        leave(group, asked, change)
        if asked.epoch == LEAVE_STATIC_EPOCH:
            self._timers.cancel((group.group_id, asked.member_id, ConsumerTimer.REVOKE))
        else:
            self._cancel_timers(group.group_id, asked.member_id)
        answer = ConsumerHeartbeatAnswer(asked.member_id, asked.epoch, self._interval_ms(group))
        return answer, [write_record(record) for record in change.records]

    def _interval_ms(self, group: ConsumerGroup) -> int:
        """Return when a member is to be heard of again: soon, while partitions change hands."""
        settled_ms = self._settings.group_consumer_heartbeat_interval_ms
        if group.state in (ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY):
            return settled_ms
        return min(settled_ms, max(UNSETTLED_MS, UNSETTLED_MS_PER_MEMBER * len(group.members)))

    def _set_timers(
        self, group: ConsumerGroup, member: ConsumerMember, now_ms: int, *, revoke_anew: bool
    ) -> None:
        session = (group.group_id, member.member_id, ConsumerTimer.SESSION)
        self._timers.set(session, now_ms + self._settings.group_consumer_session_timeout_ms)
        revoke = (group.group_id, member.member_id, ConsumerTimer.REVOKE)
        if not _is_revoking(member):
            self._timers.cancel(revoke)
        elif revoke_anew or self._timers.get(revoke) is None:
            self._timers.set(revoke, now_ms + max(0, member.about.rebalance_timeout_ms))

    def _cancel_timers(self, group_id: str, member_id: str) -> None:
        for kind in ConsumerTimer:
            self._timers.cancel((group_id, member_id, kind))


def _is_revoking(member: ConsumerMember) -> bool:
    return member.has.state is MemberState.UNREVOKED_PARTITIONS
