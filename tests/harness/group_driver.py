"""GroupDriver: a shard of groups with its log, and clients that remember their responses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from kio.schema.errors import ErrorCode

from sparklog.coordinator.config import GroupSettings
from sparklog.coordinator.effects import (
    CoordinatorRecord,
    CoordinatorResult,
    ProducerIdentity,
    Token,
)
from sparklog.coordinator.group.description import DescribedGroup, ListedGroup
from sparklog.coordinator.group.shard import GroupShard
from sparklog.coordinator.group_records import GROUP_KEY, key_kind, read_group_value
from sparklog.coordinator.messages import (
    CommitRequest,
    DeletedOffsets,
    FetchRequest,
    GroupOffset,
    GroupOffsetsResult,
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    LeaveResult,
    MemberIdentity,
    OffsetToCommit,
    SyncRequest,
    SyncResult,
)
from tests.harness.coordinator_settings import group_settings

Kind = TypeVar("Kind")
GROUP = "group"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000
SETTINGS = group_settings(group_initial_rebalance_delay_ms=DELAY_MS)
READS_T = bytes.fromhex("000000000001000174ffffffff")
"""A consumer's subscription to the topic t."""
RANGE = (("range", READS_T),)


@dataclass
class Stored:
    """One record of the log, with its transaction."""

    record: CoordinatorRecord
    producer: ProducerIdentity | None
    timestamp_ms: int


@dataclass
class Driver:
    """Sends events and keeps their replies. The log has the committed records."""

    settings: GroupSettings = SETTINGS
    now_ms: int = 1_000_000
    log: list[Stored | tuple[ProducerIdentity, bool]] = field(default_factory=list)
    replies: dict[Token, object] = field(default_factory=dict)
    asked: int = 0
    notes: list[str] = field(default_factory=list)
    """Log lines of the broker."""

    def __post_init__(self) -> None:
        self.shard = GroupShard(self.settings)
        self._take(self.shard.loaded(self.now_ms))

    # Time and faults.

    def wait(self, span_ms: int) -> None:
        """Let time pass; every deadline is handled when it is due."""
        until_ms = self.now_ms + span_ms
        while (due_ms := self.shard.next_deadline_ms) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self._take(self.shard.expire(self.now_ms))
            left_ms = self.shard.next_deadline_ms
            assert left_ms is None or left_ms > self.now_ms, "what was due is still due"
        self.now_ms = until_ms

    def fail_over(self) -> set[Token]:
        """Let a new leader replay the log; return the tokens that get no reply."""
        lost = set(range(1, self.asked + 1)) - self.replies.keys()
        for token in lost:
            self.replies[token] = None
        self.shard = GroupShard(self.settings)
        for offset, entry in enumerate(self.log):
            if isinstance(entry, Stored):
                producer = entry.producer or ProducerIdentity(-1, -1)
                self.shard.replay(
                    entry.record,
                    offset=offset,
                    timestamp_ms=entry.timestamp_ms,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    transactional=entry.producer is not None,
                )
            else:
                self.shard.replay_marker(*entry[0], commit=entry[1])
        self._take(self.shard.loaded(self.now_ms))
        return lost

    def generation(self) -> int:
        """Return the newest generation in the log."""
        found = 0
        for entry in self.log:
            if isinstance(entry, Stored) and key_kind(entry.record.key) == GROUP_KEY:
                value = entry.record.value
                found = 0 if value is None else read_group_value(value).generation
        return found

    # Members.

    def join(
        self, member_id: str = "", *, new: str = "new", instance: str | None = None, **more: object
    ) -> Token:
        """Join; return the token of the reply."""
        base = JoinRequest(
            group_id=GROUP,
            member_id=member_id,
            new_member_id=new,
            instance_id=instance,
            client_id="client",
            client_host="/127.0.0.1",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=RANGE,
        )
        asked = replace(base, **more)  # type: ignore[arg-type]
        return self.submit(lambda s, t, n: s.join(asked, t, n))

    def member(self, name: str, **more: object) -> Token:
        """Let a new dynamic member join as clients do, in two steps."""
        told = self.reply(self.join(new=name, **more), JoinResult)  # type: ignore[arg-type]
        assert told.error is ErrorCode.member_id_required, told
        return self.join(told.member_id, **more)  # type: ignore[arg-type]

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        **more: object,
    ) -> Token:
        base = SyncRequest(
            GROUP,
            MemberIdentity(member_id),
            generation,
            "consumer",
            "range",
            tuple((assignments or {}).items()),
        )
        asked = replace(base, **more)  # type: ignore[arg-type]
        return self.submit(lambda s, t, n: s.sync(asked, t, n))

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> ErrorCode:
        asked = HeartbeatRequest(GROUP, MemberIdentity(member_id, instance), generation)
        return self.reply(self.submit(lambda s, t, n: s.heartbeat(asked, t, n)), ErrorCode)

    def leave(self, *who: MemberIdentity) -> LeaveResult:
        asked = LeaveRequest(GROUP, who)
        return self.reply(self.submit(lambda s, t, n: s.leave(asked, t, n)), LeaveResult)

    def stable(
        self, *names: str, share: Callable[[str], bytes] = lambda name: f"share of {name}".encode()
    ) -> int:
        """Let members form a group whose first one leads; return the generation."""
        tokens = [self.member(name) for name in names]
        self.wait(2 * DELAY_MS)
        joined = [self.reply(token, JoinResult) for token in tokens]
        assert all(j.error is ErrorCode.none for j in joined), joined
        generation = joined[0].generation
        shares = {name: share(name) for name in names}
        for name in names:
            self.sync(name, generation, shares if name == joined[0].leader else None)
        return generation

    # Offsets.

    def commit(
        self,
        *offsets: OffsetToCommit,
        member: MemberIdentity | None = None,
        generation: int = -1,
        **more: object,
    ) -> tuple[ErrorCode, ...]:
        base = CommitRequest(GROUP, member or MemberIdentity(""), generation, offsets)
        asked = replace(base, **more)  # type: ignore[arg-type]
        return self.reply(self.submit(lambda s, t, n: s.commit(asked, t, n)), tuple)

    def end_transaction(self, producer: ProducerIdentity, *, commit: bool) -> None:
        self.log.append((producer, commit))
        self.shard.replay_marker(*producer, commit=commit)

    def offset(self, topic: str, partition: int = 0, *, stable: bool = False) -> GroupOffset:
        asked = FetchRequest(GROUP, ((topic, partition),), stable)
        token = self.submit(lambda s, t, n: s.fetch(asked, t, n))
        return self.reply(token, GroupOffsetsResult).offsets[0]

    def delete_offsets(self, *partitions: tuple[str, int]) -> DeletedOffsets:
        token = self.submit(lambda s, t, n: s.delete_offsets(GROUP, partitions, t, n))
        return self.reply(token, DeletedOffsets)

    # Whole groups.

    def describe(self) -> DescribedGroup:
        found = self.reply(self.submit(lambda s, t, n: s.describe((GROUP,), t, n)), tuple)
        described = found[0]
        assert isinstance(described, DescribedGroup)
        return described

    def listed(self) -> tuple[ListedGroup, ...]:
        return self.reply(self.submit(lambda s, t, n: s.list_groups(t, n)), tuple)

    def delete(self) -> ErrorCode:
        code = None
        while code is None:
            code = self.replies[self.submit(lambda s, t, n: s.delete(GROUP, t, n))]
        assert isinstance(code, ErrorCode)
        return code

    # Helpers.

    def submit(self, event: Callable[[GroupShard, Token, int], CoordinatorResult]) -> Token:
        self.asked += 1
        self._take(event(self.shard, self.asked, self.now_ms))
        return self.asked

    def reply(self, token: Token, kind: type[Kind]) -> Kind:
        """Return the reply for a token, which must exist."""
        assert token in self.replies, "no answer yet"
        reply = self.replies[token]
        assert isinstance(reply, kind), reply
        return reply

    def _take(self, effects: CoordinatorResult) -> None:
        self.notes += effects.notes
        for record in effects.records:
            self.log.append(Stored(record, effects.transactional, self.now_ms))
        for token, reply in effects.replies:
            assert token not in self.replies, "answered twice"
            self.replies[token] = reply


def offset_of(topic: str, offset: int, partition: int = 0, metadata: str = "") -> OffsetToCommit:
    """Return an offset to commit."""
    return OffsetToCommit(topic, partition, offset, 3, metadata)


__all__ = ["DELAY_MS", "GROUP", "REBALANCE_MS", "SESSION_MS", "Driver", "SyncResult", "offset_of"]
