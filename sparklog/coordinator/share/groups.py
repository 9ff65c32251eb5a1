"""ShareGroups: the share groups (KIP-932) of one shard, their timers and their errands.

`GroupShard` uses it beside the groups of other types. Empty share groups stay until they are
deleted, as in Kafka. Source: Kafka's `GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from sparklog.coordinator import log_notes
from sparklog.coordinator.consumer.groups import Configs, no_configs
from sparklog.coordinator.consumer.messages import NO_PARTS, Parts
from sparklog.coordinator.consumer.topics import NoTopics, Topics
from sparklog.coordinator.effects import CoordinatorRecord
from sparklog.coordinator.share.delivery_state import SharePartitionKey
from sparklog.coordinator.share.group import ShareGroup, ShareMember
from sparklog.coordinator.share.heartbeat import (
    ShareChange,
    begin_deletion,
    heartbeat,
    initialized,
    leave,
    remove,
)
from sparklog.coordinator.share.messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    InitializeShareState,
    ShareHeartbeat,
    ShareHeartbeatAnswer,
    ShareStatesToDelete,
)
from sparklog.coordinator.share.records import (
    ShareGroupEpoch,
    ShareTargetEpoch,
    read_share_record,
    write_share_record,
)
from sparklog.coordinator.share.settings import ShareSettings
from sparklog.coordinator.timers import Timers
from sparklog.core.errors import GroupIdNotFound

INITIALIZING_MS: Final = 500
"""Heartbeat interval of a group that waits for the states of its partitions.

A member learns only from a heartbeat that it has partitions. Kafka makes it wait for a whole
interval, 5 s by default, before its first record.
"""


class ShareTimer(IntEnum):
    """Kinds of deadlines."""

    SESSION = 0
    """The member sent no heartbeat for too long."""
    INITIALIZE = 1
    """States of the group were not initialized for too long. The timer has no member."""


TimerKey = tuple[str, str, ShareTimer]
"""Group id, member id and kind."""


class ShareGroups:
    """The share groups of one shard; see the module."""

    def __init__(self, settings: ShareSettings, configs: Configs = no_configs) -> None:
        """Start empty, before the replay. `configs` returns a group's own settings."""
        self._settings = settings
        self._configs = configs
        self._timers: Timers[TimerKey] = Timers()
        self._groups: dict[str, ShareGroup] = {}
        self._topics: Topics = NoTopics()
        """The topics of the last heartbeat: a member may expire between heartbeats."""
        self._notes: list[str] = []
        self._errands: list[InitializeShareState] = []

    def take_notes(self) -> list[str]:
        """Return the lines for the log since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def take_errands(self) -> tuple[InitializeShareState, ...]:
        """Return the errands since the last call."""
        errands, self._errands = tuple(self._errands), []
        return errands

    def get(self, group_id: str) -> ShareGroup | None:
        """Return a share group, or None."""
        return self._groups.get(group_id)

    def all(self) -> Iterable[ShareGroup]:
        """Return all share groups."""
        return self._groups.values()

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply a record of the log.

        Raises:
            DataCorrupt: the record cannot be read.
        """
        found = read_share_record(record)
        group = self._groups.get(found.group_id)
        if isinstance(found, ShareGroupEpoch) and found.epoch is None:
            self._groups.pop(found.group_id, None)
        elif group is not None:
            group.apply(found)
        elif record.value is not None:
            group = self._groups[found.group_id] = ShareGroup(found.group_id)
            group.apply(found)

    def loaded(self, now_ms: int) -> None:
        """Begin to serve after the replay: every member gets its whole session from now on.

        The leader before may not have initialized the states that it had begun: begin anew.
        """
        for group in self._groups.values():
            for member in group.members.values():
                self._set_session(group, member, now_ms)
            self._initialize(group, group.partitions.initializing, now_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline in ms, or None."""
        return self._timers.next_ms

    def expire(self, now_ms: int) -> list[CoordinatorRecord]:
        """Remove members whose session is over, and initialize states that still need it."""
        records: list[CoordinatorRecord] = []
        while (key := self._timers.pop_due(now_ms)) is not None:
            group_id, member_id, kind = key
            group = self._groups.get(group_id)
            if group is None:
                continue
            if kind is ShareTimer.INITIALIZE:
                self._initialize(group, group.partitions.initializing, now_ms)
                continue
            member = group.members.get(member_id)
            if member is not None:
                change = ShareChange(group, self._topics, now_ms)
                remove(member, change)
                who = log_notes.name(member_id)
                self._note(change, f"Member {who} fenced because its session expired")
                records += _written(change)
        return records

    def heartbeat(
        self, asked: ShareHeartbeat, topics: Topics, now_ms: int
    ) -> tuple[ShareHeartbeatAnswer, list[CoordinatorRecord]]:
        """Handle a checked heartbeat that joins, renews or leaves; return its response and records.

        Raises:
            GroupError: the heartbeat is rejected; nothing was changed.
        """
        self._topics = topics
        group = self._groups.get(asked.group_id)
        if group is None:
            if asked.epoch != JOIN_EPOCH:
                raise GroupIdNotFound(f"Group {asked.group_id} not found.")
            group = ShareGroup(asked.group_id)
        change = ShareChange(group, topics, now_ms)
        if asked.epoch == LEAVE_EPOCH:
            return self._left(group, asked, change)
        known = group.members.get(asked.member_id)
        member = heartbeat(group, asked, change, self._settings.size_max)
        self._groups[asked.group_id] = group
        who = log_notes.name(member.member_id)
        if known is None:
            client = log_notes.name(member.about.client_id)
            self._note(change, f"Member {who} with client id {client} joined the share group")
        elif change.records:
            self._note(change, f"subscriptions or topics of member {who} changed", is_notable=False)
        self._set_session(group, member, now_ms)
        waits = self._timers.get(_initialize_key(group)) is not None
        pending = change.begun if waits else group.partitions.initializing
        self._initialize(group, pending, now_ms)
        # A member that is behind missed the previous response.
        is_behind = known is None or known.epoch != asked.epoch
        is_changed = known is None or member.has.assigned != known.has.assigned
        answer = ShareHeartbeatAnswer(
            member.member_id,
            member.epoch,
            self._interval_ms(group),
            member.has.assigned
            if asked.names is not None or is_behind or is_changed or asked.epoch == JOIN_EPOCH
            else None,
        )
        return answer, _written(change)

    def initialized(
        self, group_id: str, parts: Parts, topics: Topics, now_ms: int
    ) -> list[CoordinatorRecord]:
        """Record that states of a group's partitions are initialized; return the records."""
        group = self._groups.get(group_id)
        if group is None:
            return []
        self._topics = topics
        change = ShareChange(group, topics, now_ms)
        initialized(change, parts)
        if not group.partitions.initializing:
            self._timers.cancel(_initialize_key(group))
        self._note(change, "states of partitions were initialized", is_notable=False)
        return _written(change)

    def change(
        self,
        group_id: str,
        alter: Callable[[ShareChange], object],
        topics: Topics,
        now_ms: int,
        *,
        creates: bool = False,
    ) -> tuple[object, list[CoordinatorRecord]]:
        """Change a group as an administrator asks; return the result of `alter` and the records.

        See `offset_changes`. With `creates`, an absent group is created if there are records.

        Raises:
            GroupIdNotFound: there is no such share group.
            GroupError: what `alter` raises; nothing was changed.
        """
        absent = creates and group_id not in self._groups
        group = ShareGroup(group_id) if absent else self._known(group_id)
        change = ShareChange(group, topics, now_ms)
        result = alter(change)
        if change.records:
            self._groups[group_id] = group
        self._note(change, "offsets were changed", is_notable=False)
        return result, _written(change)

    def forget_topics(self, topic_ids: frozenset[UUID]) -> list[CoordinatorRecord]:
        """Forget the states of deleted topics; return the records."""
        records: list[CoordinatorRecord] = []
        for group in self._groups.values():
            after = group.without_topics(topic_ids)
            if after is not None:
                group.apply(after)
                records.append(write_share_record(after))
        return records

    def delete(
        self, group_id: str, topics: Topics, now_ms: int, *, states_deleted: bool
    ) -> tuple[ErrorCode | ShareStatesToDelete, list[CoordinatorRecord]]:
        """Delete a group without members; return the reply and the records.

        The states of its partitions go first. `states_deleted` says that the caller has deleted
        those that the last reply named.
        """
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.group_id_not_found, []
        if group.members:
            return ErrorCode.non_empty_group, []
        has = group.partitions.initialized | group.partitions.initializing
        if has or (group.partitions.deleting and not states_deleted):
            keys = group.state_keys(has | _parts_of(group.partitions.deleting, topics))
            change = ShareChange(group, topics, now_ms)
            begin_deletion(change)
            self._timers.cancel(_initialize_key(group))
            return ShareStatesToDelete(keys), _written(change)
        del self._groups[group_id]
        self._notes.append(f"[GroupId {log_notes.name(group_id)}] Deleted the share group")
        return ErrorCode.none, [write_share_record(record) for record in group.burial()]

    def partitions(self, group_id: str) -> tuple[SharePartitionKey, ...]:
        """Return the partitions of a group that have a state.

        Raises:
            GroupIdNotFound: there is no such share group.
        """
        return self._known(group_id).state_keys()

    def _known(self, group_id: str) -> ShareGroup:
        group = self._groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        return group

    def _left(
        self, group: ShareGroup, asked: ShareHeartbeat, change: ShareChange
    ) -> tuple[ShareHeartbeatAnswer, list[CoordinatorRecord]]:
        leave(group, asked.member_id, change)
        self._timers.cancel(_session_key(group, asked.member_id))
        self._note(change, f"Member {log_notes.name(asked.member_id)} left the share group")
        answer = ShareHeartbeatAnswer(asked.member_id, asked.epoch, self._interval_ms(group))
        return answer, _written(change)

    def _initialize(self, group: ShareGroup, parts: Parts, now_ms: int) -> None:
        """Order the initialization of states, and another one if that fails."""
        if not parts or not group.members:
            return
        errand = InitializeShareState(group.group_id, group.epoch, tuple(sorted(parts)))
        self._errands.append(errand)
        self._timers.set(_initialize_key(group), now_ms + self._settings.initialize_retry_ms)

    def _interval_ms(self, group: ShareGroup) -> int:
        """Return the heartbeat interval, which is short while states are initialized."""
        config = self._settings.for_group(self._configs(group.group_id))
        waits = group.members and group.partitions.initializing
        if not waits:
            return config.heartbeat_interval_ms
        return min(config.heartbeat_interval_ms, INITIALIZING_MS)

    def _set_session(self, group: ShareGroup, member: ShareMember, now_ms: int) -> None:
        config = self._settings.for_group(self._configs(group.group_id))
        key = _session_key(group, member.member_id)
        self._timers.set(key, now_ms + config.session_timeout_ms)

    def _note(self, change: ShareChange, what: str, *, is_notable: bool = True) -> None:
        """Note what happened to a member, and the epochs that rose because of it."""
        group = f"[GroupId {log_notes.name(change.group.group_id)}]"
        if is_notable:
            self._notes.append(f"{group} {what}")
        for record in change.records:
            if isinstance(record, ShareGroupEpoch):
                self._notes.append(f"{group} Bumped group epoch to {record.epoch} (reason: {what})")
            elif isinstance(record, ShareTargetEpoch):
                self._notes.append(
                    f"{group} Computed a new target assignment for epoch {record.epoch}"
                )


def _session_key(group: ShareGroup, member_id: str) -> TimerKey:
    return group.group_id, member_id, ShareTimer.SESSION


def _initialize_key(group: ShareGroup) -> TimerKey:
    return group.group_id, "", ShareTimer.INITIALIZE


def _parts_of(topic_ids: Iterable[UUID], topics: Topics) -> Parts:
    """Return all partitions of topics; a deleted topic has none."""
    parts = NO_PARTS
    for topic_id in topic_ids:
        name = topics.name_of(topic_id)
        found = None if name is None else topics.find(name)
        if found is not None and found[0] == topic_id:
            parts |= {(topic_id, number) for number in range(found[1])}
    return parts


def _written(change: ShareChange) -> list[CoordinatorRecord]:
    return [write_share_record(record) for record in change.records]
