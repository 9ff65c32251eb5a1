"""ConsumerGroups: the consumer groups (KIP-848) of one shard, and their timers.

`GroupShard` uses it beside the classic groups and the offsets of all groups.
Source: Kafka's `GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Final

from kio.schema.errors import ErrorCode

from sparklog.coordinator import log_notes
from sparklog.coordinator.classic.group import ClassicGroup
from sparklog.coordinator.config import GroupSettings
from sparklog.coordinator.consumer.group import ConsumerGroup, ConsumerGroupState, ConsumerMember
from sparklog.coordinator.consumer.heartbeat import MemberChange, check, heartbeat, leave, remove
from sparklog.coordinator.consumer.messages import (
    JOIN_EPOCH,
    LEAVE_STATIC_EPOCH,
    NO_PARTS,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
)
from sparklog.coordinator.consumer.migration import (
    as_heartbeat,
    downgraded,
    find_classic,
    has_protocol_in_common,
    joined,
    must_rejoin,
    synced,
    upgraded,
)
from sparklog.coordinator.consumer.records import (
    ConsumerRecord,
    GroupEpoch,
    MemberState,
    OldRecord,
    TargetEpoch,
    read_record,
    write_record,
)
from sparklog.coordinator.consumer.topics import NoTopics, Topics
from sparklog.coordinator.effects import CoordinatorRecord
from sparklog.coordinator.messages import (
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    LeaveResult,
    SyncRequest,
    SyncResult,
)
from sparklog.coordinator.timers import Timers
from sparklog.core.config.group import HEARTBEAT_INTERVAL, NONE_SET, SESSION_TIMEOUT
from sparklog.core.config.model import Config
from sparklog.core.errors import GroupIdNotFound, GroupMaxSizeReached

UNSETTLED_MS: Final = 500
UNSETTLED_MS_PER_MEMBER: Final = 5
"""Heartbeat intervals of a group whose partitions move.

A member learns only from a heartbeat that others revoked partitions. Kafka makes it wait for a
whole interval; 200 heartbeats a second cost little.
"""


class ConsumerTimer(IntEnum):
    """Kinds of a member's deadlines."""

    SESSION = 0
    """The member sent no heartbeat for too long."""
    REVOKE = 1
    """The member has not revoked partitions for too long."""
    REJOIN = 2
    """A classic member must join again, and has not done so for too long."""


_WHY: Final = {
    ConsumerTimer.SESSION: "its session expired",
    ConsumerTimer.REVOKE: "it did not revoke partitions in time",
    ConsumerTimer.REJOIN: "it did not join again in time",
}
"""Why a member is removed when its time is up."""

Configs = Callable[[str], Config]
"""Returns a group's own settings, as far as they are valid."""


def no_configs(group_id: str) -> Config:
    """Return no settings: a group uses those of the brokers."""
    return NONE_SET


TimerKey = tuple[str, str, ConsumerTimer]
"""Group id, member id and kind."""


class ConsumerGroups:
    """The consumer groups of one shard; see the module."""

    def __init__(self, settings: GroupSettings, configs: Configs = no_configs) -> None:
        """Start empty, before the replay. `configs` returns a group's own settings."""
        self._settings = settings
        self._configs = configs
        self._timers: Timers[TimerKey] = Timers()
        self._groups: dict[str, ConsumerGroup] = {}
        self._topics: Topics = NoTopics()
        """The topics of the last heartbeat: a member may expire between heartbeats."""
        self._notes: list[str] = []

    def take_notes(self) -> list[str]:
        """Return the lines for the log since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def get(self, group_id: str) -> ConsumerGroup | None:
        """Return a consumer group, or None."""
        return self._groups.get(group_id)

    def all(self) -> Iterable[ConsumerGroup]:
        """Return all consumer groups."""
        return self._groups.values()

    def replay(self, record: CoordinatorRecord) -> str:
        """Apply a record of the log; return its group id.

        Raises:
            DataCorrupt: the record cannot be read.
        """
        found = read_record(record)
        group = self._groups.get(found.group_id)
        if isinstance(found, GroupEpoch) and found.epoch is None:
            self._groups.pop(found.group_id, None)
        elif group is not None:
            group.apply(found)
        elif record.value is not None and not isinstance(found, OldRecord):
            group = self._groups[found.group_id] = self._new(found.group_id)
            group.apply(found)
        return found.group_id

    def loaded(self, now_ms: int) -> None:
        """Begin to serve after the replay: every member gets its whole time-outs from now on."""
        for group in self._groups.values():
            for member in group.members.values():
                self._set_timers(group, member, now_ms, revoke_anew=True)

    @property
    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline in ms, or None."""
        return self._timers.next_ms

    def expire(self, now_ms: int) -> list[CoordinatorRecord]:
        """Remove members whose time is up; return the records of that."""
        records: list[ConsumerRecord] = []
        while (key := self._timers.pop_due(now_ms)) is not None:
            group_id, member_id, kind = key
            group = self._groups.get(group_id)
            member = group.members.get(member_id) if group is not None else None
            if group is None or member is None:
                continue
            if kind is ConsumerTimer.REVOKE and not _is_revoking(member):
                continue
            change = MemberChange(group, self._topics, now_ms)
            remove(member, change)
            self._note(change, f"Member {log_notes.name(member_id)} fenced because {_WHY[kind]}")
            self._cancel_timers(group_id, member_id)
            records += change.records
        return [write_record(record) for record in records]

    def heartbeat(
        self, asked: ConsumerHeartbeat, topics: Topics, now_ms: int, first_epoch: int = 0
    ) -> tuple[ConsumerHeartbeatAnswer, list[CoordinatorRecord]]:
        """Handle a heartbeat that joins, renews or leaves; return the response and the records.

        The epoch of a new group starts after `first_epoch`, the generation of the classic group
        before it.

        Raises:
            GroupError, InvalidRequest: the heartbeat is rejected; nothing was changed.
        """
        check(asked, self._settings.group_consumer_assignors)
        self._topics = topics
        group = self._groups.get(asked.group_id)
        if group is None:
            if asked.epoch != JOIN_EPOCH:
                raise GroupIdNotFound(f"Group {asked.group_id} not found.")
            group = self._new(asked.group_id)
            group.epoch = group.target_epoch = first_epoch
        change = MemberChange(group, topics, now_ms)
        if asked.epoch < JOIN_EPOCH:
            return self._left(group, asked, change)
        known = group.members.get(asked.member_id)
        before = known.has.assigned if known is not None else NO_PARTS
        replaced = group.static.get(asked.instance_id or "")
        member = heartbeat(group, asked, change, self._settings.group_consumer_max_size)
        self._groups[asked.group_id] = group
        who = log_notes.name(member.member_id)
        if known is None:
            self._note(change, f"Member {who} with {_client(member)} joined the consumer group")
        elif change.records:
            self._note(change, f"subscriptions or topics of member {who} changed", is_notable=False)
        if replaced is not None and replaced != member.member_id:
            self._cancel_timers(group.group_id, replaced)
        began = known is None or known.epoch != member.epoch or not _is_revoking(known)
        self._set_timers(group, member, now_ms, revoke_anew=began)
        # A member that is behind missed the previous response.
        is_behind = known is not None and known.epoch != asked.epoch
        sends_assignment = asked.is_full or is_behind or member.has.assigned != before
        answer = ConsumerHeartbeatAnswer(
            member.member_id,
            member.epoch,
            self._interval_ms(group),
            member.has.assigned if sends_assignment else None,
        )
        return answer, [write_record(record) for record in change.records]

    def upgrade(
        self, classic: ClassicGroup, topics: Topics, now_ms: int
    ) -> list[CoordinatorRecord]:
        """Convert a classic group with its members to a consumer group; return the records.

        Raises:
            GroupError: its members are not all consumers, or too many; nothing was changed.
        """
        if len(classic.members) >= self._settings.group_consumer_max_size:
            raise GroupMaxSizeReached(
                f"the group has as many members as it may. group={classic.group_id}"
            )
        records = upgraded(classic, topics)
        group = self._groups[classic.group_id] = self._new(classic.group_id)
        for record in records:
            group.apply(record)
        for member in group.members.values():
            self._set_timers(group, member, now_ms, revoke_anew=True)
        return [write_record(record) for record in records]

    def downgrade(self, group_id: str, now_ms: int) -> tuple[ClassicGroup, list[CoordinatorRecord]]:
        """Convert a group that has only classic members to a classic one; return the records."""
        group = self._groups[group_id]
        for member_id in group.members:
            self._cancel_timers(group_id, member_id)
        return downgraded(group, self._topics, now_ms), self.delete_group(group_id)

    def take_topics(self, topics: Topics) -> None:
        """Set the current topics, for requests that do not bring them."""
        self._topics = topics

    def classic_join(
        self, asked: JoinRequest, now_ms: int
    ) -> tuple[JoinResult, list[CoordinatorRecord]]:
        """Handle a classic member's JoinGroup; the response does not wait.

        Raises:
            GroupError, InvalidRequest: the join is rejected; nothing was changed.
        """
        group = self._groups[asked.group_id]
        known = group.static.get(asked.instance_id or "")
        if not asked.member_id and asked.instance_id is None and asked.requires_member_id:
            return JoinResult(ErrorCode.member_id_required, asked.new_member_id), []
        if asked.member_id and known is not None and known != asked.member_id:
            return JoinResult(ErrorCode.fenced_instance_id, asked.member_id), []
        if not has_protocol_in_common(group, asked):
            return JoinResult(ErrorCode.inconsistent_group_protocol, asked.member_id), []
        member_id = asked.member_id or asked.new_member_id
        first = as_heartbeat(asked, member_id, self._topics)
        if first.owned and asked.member_id and asked.member_id not in group.members:
            # The member was removed and does not know it: others read the partitions that it owns.
            return JoinResult(ErrorCode.unknown_member_id, asked.member_id), []
        _, records = self.heartbeat(first, self._topics, now_ms)
        self._timers.cancel((asked.group_id, member_id, ConsumerTimer.REJOIN))
        return joined(group.members[member_id]), records

    def classic_sync(self, asked: SyncRequest) -> SyncResult:
        """Return a classic member's assignment."""
        found = find_classic(self._groups[asked.group_id], asked.member, asked.generation)
        return SyncResult(found) if isinstance(found, ErrorCode) else synced(found, self._topics)

    def classic_heartbeat(self, asked: HeartbeatRequest, now_ms: int) -> ErrorCode:
        """Handle a classic member's heartbeat; return an error that makes it rejoin when needed."""
        group = self._groups[asked.group_id]
        found = find_classic(group, asked.member, asked.generation)
        if isinstance(found, ErrorCode):
            return found
        self._set_timers(group, found, now_ms, revoke_anew=False)
        rejoin = (group.group_id, found.member_id, ConsumerTimer.REJOIN)
        if not must_rejoin(group, found):
            self._timers.cancel(rejoin)
            return ErrorCode.none
        if self._timers.get(rejoin) is None:
            self._timers.set(rejoin, now_ms + max(0, found.about.rebalance_timeout_ms))
        return ErrorCode.rebalance_in_progress

    def classic_leave(
        self, asked: LeaveRequest, now_ms: int
    ) -> tuple[LeaveResult, list[CoordinatorRecord]]:
        """Remove classic members that leave; return a code for each, and the records."""
        group = self._groups[asked.group_id]
        change, codes = MemberChange(group, self._topics, now_ms), []
        left: list[str] = []
        for who in asked.members:
            found = find_classic(group, who)
            if isinstance(found, ErrorCode):
                codes.append(found)
                continue
            remove(found, change)
            left.append(found.member_id)
            self._cancel_timers(group.group_id, found.member_id)
            codes.append(ErrorCode.none)
        if left:
            self._note(change, f"Members {log_notes.members(left)} left by LeaveGroup")
        records = [write_record(record) for record in change.records]
        return LeaveResult(ErrorCode.none, tuple(codes)), records

    def delete_group(self, group_id: str) -> list[CoordinatorRecord]:
        """Delete a group with its members; return the tombstones."""
        group = self._groups.pop(group_id)
        return [write_record(record) for record in group.burial()]

    def _new(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self._settings.group_consumer_assignors)

    def _left(
        self, group: ConsumerGroup, asked: ConsumerHeartbeat, change: MemberChange
    ) -> tuple[ConsumerHeartbeatAnswer, list[CoordinatorRecord]]:
        leave(group, asked, change)
        kind = "Static member" if asked.epoch == LEAVE_STATIC_EPOCH else "Member"
        self._note(change, f"{kind} {log_notes.name(asked.member_id)} left the consumer group")
        if asked.epoch == LEAVE_STATIC_EPOCH:
            self._timers.cancel((group.group_id, asked.member_id, ConsumerTimer.REVOKE))
        else:
            self._cancel_timers(group.group_id, asked.member_id)
        answer = ConsumerHeartbeatAnswer(asked.member_id, asked.epoch, self._interval_ms(group))
        return answer, [write_record(record) for record in change.records]

    def _note(self, change: MemberChange, what: str, *, is_notable: bool = True) -> None:
        """Note what happened to a member, and the epochs that rose because of it."""
        if is_notable:
            self._notes.append(f"[GroupId {log_notes.name(change.group.group_id)}] {what}")
        self._notes += _epoch_notes(change.records, what)

    def _interval_ms(self, group: ConsumerGroup) -> int:
        """Return the heartbeat interval in ms: short while partitions move."""
        settled_ms = self._set_for(
            group, HEARTBEAT_INTERVAL, self._settings.group_consumer_heartbeat_interval_ms
        )
        if group.state in (ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY):
            return settled_ms
        return min(settled_ms, max(UNSETTLED_MS, UNSETTLED_MS_PER_MEMBER * len(group.members)))

    def _set_timers(
        self, group: ConsumerGroup, member: ConsumerMember, now_ms: int, *, revoke_anew: bool
    ) -> None:
        session = (group.group_id, member.member_id, ConsumerTimer.SESSION)
        classic = member.about.classic
        if classic is not None:
            session_ms = classic.session_timeout_ms
        else:
            session_ms = self._set_for(
                group, SESSION_TIMEOUT, self._settings.group_consumer_session_timeout_ms
            )
        self._timers.set(session, now_ms + session_ms)
        revoke = (group.group_id, member.member_id, ConsumerTimer.REVOKE)
        if not _is_revoking(member):
            self._timers.cancel(revoke)
        elif revoke_anew or self._timers.get(revoke) is None:
            self._timers.set(revoke, now_ms + max(0, member.about.rebalance_timeout_ms))

    def _set_for(self, group: ConsumerGroup, name: str, default: int) -> int:
        """Return a setting of a group, or `default` if the group has none."""
        config = self._configs(group.group_id)
        return config.whole(name) if name in config.given else default

    def _cancel_timers(self, group_id: str, member_id: str) -> None:
        for kind in ConsumerTimer:
            self._timers.cancel((group_id, member_id, kind))


def _is_revoking(member: ConsumerMember) -> bool:
    return member.has.state is MemberState.UNREVOKED_PARTITIONS


def _client(member: ConsumerMember) -> str:
    return f"client id {log_notes.name(member.about.client_id)}"


def _epoch_notes(records: Iterable[ConsumerRecord], reason: str) -> list[str]:
    """Return the lines for new epochs of a group among the records of one change."""
    lines: list[str] = []
    for record in records:
        if isinstance(record, GroupEpoch) and record.epoch is not None:
            group = log_notes.name(record.group_id)
            lines.append(
                f"[GroupId {group}] Bumped group epoch to {record.epoch} (reason: {reason})"
            )
        elif isinstance(record, TargetEpoch) and record.epoch is not None:
            group = log_notes.name(record.group_id)
            lines.append(
                f"[GroupId {group}] Computed a new target assignment for epoch {record.epoch}"
            )
    return lines
