"""GroupShard: members and offsets of the groups in one partition of `__consumer_offsets`.

Every event returns its effects; `effects` describes how the leader applies them.

GROUP-SHARD-1: A group exists if it has members, offsets, a stored record, or member ids that
    clients may join with. It has one type, classic, consumer or share. A group with members
    changes its type only through the migration of KIP-848; a share group never does.
GROUP-SHARD-2: A replay of a shard's records restores its groups with their members. Classic
    members that had joined but had no assignment yet are missing: they join again.

Times are ms. Source: Kafka's `GroupCoordinatorShard`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from kio.schema.errors import ErrorCode

from sparklog.coordinator.classic import rebalance, requests
from sparklog.coordinator.classic.group import GroupState
from sparklog.coordinator.classic.rebalance import RebalanceStep, TimerKey, TimerKind
from sparklog.coordinator.config import GroupSettings
from sparklog.coordinator.consumer.groups import Configs, ConsumerGroups, no_configs
from sparklog.coordinator.consumer.heartbeat import check
from sparklog.coordinator.consumer.messages import ConsumerGroupDescription, ConsumerHeartbeat
from sparklog.coordinator.consumer.records import CONSUMER_KEYS
from sparklog.coordinator.consumer.topics import NoTopics, Topics
from sparklog.coordinator.effects import CoordinatorRecord, CoordinatorResult, Token
from sparklog.coordinator.group.description import (
    described,
    listed,
    listed_consumer,
    listed_share,
    unknown,
)
from sparklog.coordinator.group.registry import RECORDS_AT_ONCE, GroupRegistry, stored
from sparklog.coordinator.group_records import (
    GROUP_KEY,
    NEVER_MS,
    OFFSET_KEYS,
    key_kind,
    read_offset_key,
    read_offset_value,
)
from sparklog.coordinator.messages import (
    NO_MEMBER,
    CommitRequest,
    DeletedOffsets,
    FetchRequest,
    GroupOffsetsResult,
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    LeaveResult,
    SyncRequest,
    SyncResult,
)
from sparklog.coordinator.offsets import CommittedOffsets, GroupOffsets
from sparklog.coordinator.share.groups import ShareGroups
from sparklog.coordinator.share.heartbeat import ShareChange, check_share_heartbeat
from sparklog.coordinator.share.messages import (
    InitializeShareState,
    ShareGroupDescription,
    ShareHeartbeat,
)
from sparklog.coordinator.share.records import SHARE_KEYS
from sparklog.coordinator.share.settings import DEFAULTS, ShareSettings
from sparklog.coordinator.timers import Timers
from sparklog.core.errors import GroupIdNotFound, SparklogError

OFFSETS_KEY: TimerKey = ("", TimerKind.OFFSETS, "")


class GroupShard:
    """The groups of one shard; see the module."""

    def __init__(
        self,
        settings: GroupSettings,
        topics: Callable[[], Topics] = NoTopics,
        configs: Configs = no_configs,
        share: ShareSettings = DEFAULTS,
    ) -> None:
        """Start empty, before the replay.

        `topics` returns the current topics, `configs` a group's own settings. `share` has the
        settings of share groups.
        """
        self._settings = settings
        self._topics = topics
        self._timers: Timers[TimerKey] = Timers()
        self._consumers = ConsumerGroups(settings, configs)
        self._shares = ShareGroups(share, configs)
        self._offsets = GroupOffsets(CommittedOffsets(), settings)
        self._known = GroupRegistry(settings, topics, self._consumers, self._offsets, self._timers)
        self._classic = self._known.classic
        self._position = 0
        """Position of the next record in the log, or beyond: orders commits."""

    # Events of `effects.Shard`.

    def replay(
        self,
        record: CoordinatorRecord,
        *,
        offset: int,
        timestamp_ms: int,
        producer_id: int,
        producer_epoch: int,
        transactional: bool,
    ) -> None:
        """Apply a record of the log.

        Raises:
            DataCorrupt: the record cannot be read.
        """
        self._position = offset + 1
        kind = key_kind(record.key)
        if kind in OFFSET_KEYS:
            key = read_offset_key(record.key)
            value = None if record.value is None else read_offset_value(record.value)
            self._offsets.take(key, value, offset, producer_id if transactional else None)
            self._known.know(key.group_id, timestamp_ms)
        elif kind in CONSUMER_KEYS:
            self._known.replay_consumer(record, timestamp_ms)
        elif kind in SHARE_KEYS:
            self._shares.replay(record)
        elif kind == GROUP_KEY:
            self._known.replay_classic(record, timestamp_ms)

    def replay_marker(self, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """Apply the end of a producer's transaction."""
        self._position += 1
        for group_id in sorted(self._offsets.end_transaction(producer_id, commit=commit)):
            self._known.know(group_id, NEVER_MS)

    def loaded(self, now_ms: int) -> CoordinatorResult:
        """Begin to serve: every member gets its whole session time-out from now on."""
        turn = self._turn(now_ms)
        for group in self._classic.values():
            for member in group.members.values():
                rebalance.keep_session(group, member, turn)
            if len(group.members) > self._settings.group_max_size:
                rebalance.rebalance(group, turn, "freshly loaded group is over capacity")
        self._consumers.loaded(now_ms)
        self._shares.loaded(now_ms)
        self._timers.set(OFFSETS_KEY, now_ms + self._settings.offsets_retention_check_interval_ms)
        return self._effects(turn)

    @property
    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline in ms, or None."""
        groups = self._consumers.next_deadline_ms, self._shares.next_deadline_ms
        due = (self._timers.next_ms, *groups)
        return min((at_ms for at_ms in due if at_ms is not None), default=None)

    def expire(self, now_ms: int) -> CoordinatorResult:
        """Handle the deadlines that are due.

        After a full batch of expired offsets the next is in 1 ms.
        """
        turn, records = self._turn(now_ms), self._consumers.expire(now_ms)
        records += self._known.downgrade(self._consumers.all(), turn)
        records += self._shares.expire(now_ms)
        while (key := self._timers.pop_due(now_ms)) is not None:
            group_id, kind, member_id = key
            group = self._classic.get(group_id)
            if kind is TimerKind.OFFSETS:
                expired = self._known.expire_offsets(now_ms)
                records += expired
                more = len(expired) >= RECORDS_AT_ONCE
                wait_ms = 1 if more else self._settings.offsets_retention_check_interval_ms
                self._timers.set(OFFSETS_KEY, now_ms + wait_ms)
            elif group is None:
                continue
            elif kind is TimerKind.SESSION:
                rebalance.session_is_over(group, member_id, turn)
                self._known.forget_unused(group_id)
            elif kind is TimerKind.JOIN:
                rebalance.join_time_is_up(group, turn)
            else:
                rebalance.sync_time_is_up(group, turn)
        return self._effects(turn, records)

    # Members.

    def join(self, asked: JoinRequest, token: Token, now_ms: int) -> CoordinatorResult:
        """Handle a JoinGroup; the reply comes with the rebalance."""
        turn, settings = self._turn(now_ms), self._settings
        low, high = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
        group = self._classic.get(asked.group_id)
        if not asked.group_id:
            turn.answer(token, JoinResult(ErrorCode.invalid_group_id, asked.member_id))
        elif not low <= asked.session_timeout_ms <= high:
            turn.answer(token, JoinResult(ErrorCode.invalid_session_timeout, asked.member_id))
        elif self._shares.get(asked.group_id) is not None:
            turn.answer(token, JoinResult(ErrorCode.inconsistent_group_protocol, NO_MEMBER))
        elif self._known.stays_consumer(asked):
            return self._join_consumers(asked, token, turn)
        elif group is None and asked.member_id:
            turn.answer(token, JoinResult(ErrorCode.unknown_member_id, asked.member_id))
        else:
            records = self._known.delete_consumer(asked.group_id)
            group = self._known.made(asked.group_id, now_ms)
            requests.join(group, asked, token, turn)
            self._known.forget_unused(asked.group_id)
            return self._effects(turn, records)
        return self._effects(turn)

    def sync(self, asked: SyncRequest, token: Token, now_ms: int) -> CoordinatorResult:
        """Handle a SyncGroup: reply with the assignment, now or when the leader has sent it."""
        turn, group = self._turn(now_ms), self._classic.get(asked.group_id)
        if self._consumers.get(asked.group_id) is not None:
            self._consumers.take_topics(self._topics())
            turn.answer(token, self._consumers.classic_sync(asked))
        elif group is None:
            turn.answer(token, SyncResult(_unknown_member(asked.group_id)))
        else:
            requests.sync(group, asked, token, turn)
        return self._effects(turn)

    def heartbeat(self, asked: HeartbeatRequest, token: Token, now_ms: int) -> CoordinatorResult:
        """Handle a classic member's heartbeat."""
        group = self._classic.get(asked.group_id)
        if self._consumers.get(asked.group_id) is not None:
            error = self._consumers.classic_heartbeat(asked, now_ms)
        elif group is None:
            error = _unknown_member(asked.group_id)
        else:
            error = requests.heartbeat(group, asked, self._turn(now_ms))
        return CoordinatorResult(replies=((token, error),), at_once=True)

    def leave(self, asked: LeaveRequest, token: Token, now_ms: int) -> CoordinatorResult:
        """Handle a LeaveGroup: remove the members."""
        turn, group = self._turn(now_ms), self._classic.get(asked.group_id)
        if self._consumers.get(asked.group_id) is not None:
            self._consumers.take_topics(self._topics())
            left, records = self._consumers.classic_leave(asked, now_ms)
            turn.answer(token, left)
            return self._effects(turn, records)
        if group is None:
            turn.answer(token, LeaveResult(_unknown_member(asked.group_id)))
        else:
            turn.answer(token, requests.leave(group, asked, turn))
            self._known.forget_unused(asked.group_id)
        return self._effects(turn)

    def consumer_heartbeat(
        self, asked: ConsumerHeartbeat, topics: Topics, token: Token, now_ms: int
    ) -> CoordinatorResult:
        """Handle a consumer group heartbeat: a member joins, renews its session or leaves.

        Raises:
            GroupError, InvalidRequest: the heartbeat is rejected.
        """
        check(asked, self._settings.group_consumer_assignors)
        if self._shares.get(asked.group_id) is not None:
            raise GroupIdNotFound(f"Group {asked.group_id} is not a consumer group.")
        turn, classic = self._turn(now_ms), self._classic.get(asked.group_id)
        before: list[CoordinatorRecord] = []
        epoch = classic.generation if classic is not None else 0
        if classic is not None and classic.members:
            before = self._known.upgrade(classic, asked, topics, turn)
        answer, records = self._consumers.heartbeat(asked, topics, now_ms, first_epoch=epoch)
        if classic is not None:
            before = [*self._known.delete_group(classic), *before]
        turn.answer(token, answer)
        return self._effects(
            turn, [*before, *records, *self._known.downgrade_one(asked.group_id, turn)]
        )

    def share_heartbeat(
        self, asked: ShareHeartbeat, topics: Topics, token: Token, now_ms: int
    ) -> CoordinatorResult:
        """Handle a share group heartbeat: a member joins, renews its session or leaves.

        Raises:
            GroupError, InvalidRequest: the heartbeat is rejected.
        """
        check_share_heartbeat(asked)
        if self._classic.get(asked.group_id) or self._consumers.get(asked.group_id):
            raise GroupIdNotFound(f"Group {asked.group_id} is not a share group.")
        turn = self._turn(now_ms)
        answer, records = self._shares.heartbeat(asked, topics, now_ms)
        turn.answer(token, answer)
        return self._effects(turn, records)

    def share_initialized(
        self, done: InitializeShareState, topics: Topics, token: Token, now_ms: int
    ) -> CoordinatorResult:
        """Assign partitions whose states are initialized."""
        turn = self._turn(now_ms)
        parts = frozenset(done.parts)
        records = self._shares.initialized(done.group_id, parts, topics, now_ms)
        turn.answer(token, None)
        return self._effects(turn, records)

    # Offsets.

    def commit(self, asked: CommitRequest, token: Token, now_ms: int) -> CoordinatorResult:
        """Commit offsets, or store them until the end of a transaction."""
        group = self._classic.get(asked.group_id)
        consumers = self._consumers.get(asked.group_id)
        if self._shares.get(asked.group_id) is not None:
            error = ErrorCode.group_id_not_found
        elif consumers is not None:
            error = consumers.check_commit(asked)
        elif group is not None:
            in_transaction = asked.producer is not None
            error = group.check_commit(asked.member, asked.generation, transactional=in_transaction)
        elif asked.generation < 0:
            error = ErrorCode.none
        elif asked.knows_epochs:
            error = ErrorCode.group_id_not_found
        else:
            error = ErrorCode.illegal_generation
        if error is not ErrorCode.none:
            return _answer(token, (error,) * len(asked.offsets))
        if group is not None and asked.producer is None and asked.member.member_id in group.members:
            member = group.members[asked.member.member_id]
            rebalance.keep_session(group, member, self._turn(now_ms))
        codes, records = self._offsets.commit(asked, now_ms, self._position)
        self._position += len(records)
        if records:
            self._known.know(asked.group_id, now_ms)
        return CoordinatorResult(tuple(records), ((token, codes),), transactional=asked.producer)

    def fetch(self, asked: FetchRequest, token: Token, now_ms: int) -> CoordinatorResult:
        """Reply with committed offsets."""
        if self._shares.get(asked.group_id) is not None:
            return _answer(token, GroupOffsetsResult(ErrorCode.group_id_not_found))
        consumers = self._consumers.get(asked.group_id)
        if consumers is not None and (asked.member_id or asked.member_epoch >= 0):
            error = consumers.check_member(asked.member_id, asked.member_epoch)
            if error is not ErrorCode.none:
                return _answer(token, GroupOffsetsResult(error))
        return _answer(token, self._offsets.fetch(asked))

    def delete_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]], token: Token, now_ms: int
    ) -> CoordinatorResult:
        """Delete offsets of topics that no member reads."""
        group = self._classic.get(group_id) or self._consumers.get(group_id)
        if group is None:
            return _answer(token, DeletedOffsets(ErrorCode.group_id_not_found))
        if group.state is not GroupState.EMPTY and not group.is_consumer:
            return _answer(token, DeletedOffsets(ErrorCode.non_empty_group))
        codes, records = self._offsets.delete(group_id, partitions, group.subscribed())
        self._position += len(records)
        self._known.forget_unused(group_id)
        reply = DeletedOffsets(ErrorCode.none, tuple(codes))
        return CoordinatorResult(tuple(records), ((token, reply),))

    def forget_topics(self, topics: frozenset[str], token: Token, now_ms: int) -> CoordinatorResult:
        """Delete offsets of deleted topics; the reply is True if there may be more."""
        records = self._offsets.forget_topics(topics, RECORDS_AT_ONCE)
        self._position += len(records)
        return CoordinatorResult(tuple(records), ((token, len(records) >= RECORDS_AT_ONCE),))

    # Whole groups.

    def describe(self, group_ids: Iterable[str], token: Token, now_ms: int) -> CoordinatorResult:
        """Reply with descriptions of groups; one that does not exist is Dead."""
        found = tuple(
            unknown(group_id)
            if (group := self._classic.get(group_id)) is None
            else described(group)
            for group_id in group_ids
        )
        return _answer(token, found)

    def list_groups(self, token: Token, now_ms: int) -> CoordinatorResult:
        """Reply with all groups."""
        classic = [listed(group) for group in self._classic.values()]
        consumers = map(listed_consumer, self._consumers.all())
        return _answer(token, (*classic, *consumers, *map(listed_share, self._shares.all())))

    def describe_consumers(
        self, group_ids: Iterable[str], token: Token, now_ms: int
    ) -> CoordinatorResult:
        """Reply with descriptions of consumer groups; None for other ids."""
        found: list[ConsumerGroupDescription | None] = []
        for group_id in group_ids:
            group = self._consumers.get(group_id)
            found.append(None if group is None else group.described())
        return _answer(token, tuple(found))

    def describe_shares(
        self, group_ids: Iterable[str], token: Token, now_ms: int
    ) -> CoordinatorResult:
        """Reply with descriptions of share groups; None for other ids."""
        found: list[ShareGroupDescription | None] = []
        for group_id in group_ids:
            group = self._shares.get(group_id)
            found.append(None if group is None else group.described())
        return _answer(token, tuple(found))

    def share_partitions(self, group_id: str, token: Token, now_ms: int) -> CoordinatorResult:
        """Reply with the keys of the partitions of a share group that have a state.

        Raises:
            GroupIdNotFound: there is no such share group.
        """
        return _answer(token, self._shares.partitions(group_id))

    def change_share(
        self,
        group_id: str,
        alter: Callable[[ShareChange], object],
        topics: Topics,
        token: Token,
        now_ms: int,
        *,
        creates: bool = False,
    ) -> CoordinatorResult:
        """Change a share group, and reply with what `alter` returns. Raises as `ShareGroups`."""
        turn, other = self._turn(now_ms), self._classic.get(group_id)
        creates = creates and not (other or self._consumers.get(group_id))
        result, records = self._shares.change(group_id, alter, topics, now_ms, creates=creates)
        turn.answer(token, result)
        return self._effects(turn, records)

    def forget_share_topics(
        self, topic_ids: frozenset[UUID], token: Token, now_ms: int
    ) -> CoordinatorResult:
        """Forget the states of deleted topics in all share groups."""
        turn = self._turn(now_ms)
        turn.answer(token, None)
        return self._effects(turn, self._shares.forget_topics(topic_ids))

    def delete(
        self, group_id: str, token: Token, now_ms: int, *, states_deleted: bool = False
    ) -> CoordinatorResult:
        """Delete a group without members, with its offsets.

        On None the caller must call again, and on ShareStatesToDelete as well, with
        `states_deleted`.
        """
        if self._shares.get(group_id) is not None:
            turn = self._turn(now_ms)
            reply, written = self._shares.delete(
                group_id, self._topics(), now_ms, states_deleted=states_deleted
            )
            turn.answer(token, reply)
            return self._effects(turn, written)
        group, consumers = self._classic.get(group_id), self._consumers.get(group_id)
        found = group or consumers
        if found is None:
            return _answer(token, ErrorCode.group_id_not_found)
        if found.state != GroupState.EMPTY:
            return _answer(token, ErrorCode.non_empty_group)
        records = self._offsets.delete_all(group_id, RECORDS_AT_ONCE)
        if len(records) == RECORDS_AT_ONCE:
            self._position += len(records)
            return CoordinatorResult(tuple(records), ((token, None),))
        if group is not None:
            records += self._known.delete_group(group)
        else:
            records += self._known.delete_consumer(group_id)
        self._position += len(records)
        return CoordinatorResult(tuple(records), ((token, ErrorCode.none),))

    # Helpers.

    def _turn(self, now_ms: int) -> RebalanceStep:
        return RebalanceStep(now_ms, self._settings, self._timers)

    def _effects(
        self, turn: RebalanceStep, records: Iterable[CoordinatorRecord] = ()
    ) -> CoordinatorResult:
        written = (*map(stored, turn.changed.values()), *records)
        self._position += len(written)
        notes = (*turn.notes, *self._consumers.take_notes(), *self._shares.take_notes())
        errands = self._shares.take_errands()
        return CoordinatorResult(written, tuple(turn.replies), errands=errands, notes=notes)

    def _join_consumers(
        self, asked: JoinRequest, token: Token, turn: RebalanceStep
    ) -> CoordinatorResult:
        """Handle a classic member's join to a consumer group."""
        self._consumers.take_topics(self._topics())
        records: list[CoordinatorRecord] = []
        try:
            answer, records = self._consumers.classic_join(asked, turn.now_ms)
        except SparklogError as error:
            answer = JoinResult(ErrorCode(error.kafka_code), asked.member_id)
        turn.answer(token, answer)
        return self._effects(turn, [*records, *self._known.downgrade_one(asked.group_id, turn)])


def _answer(token: Token, reply: object) -> CoordinatorResult:
    return CoordinatorResult(replies=((token, reply),))


def _unknown_member(group_id: str) -> ErrorCode:
    return ErrorCode.unknown_member_id if group_id else ErrorCode.invalid_group_id
