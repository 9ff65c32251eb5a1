"""Records of consumer groups (KIP-848) in `__consumer_offsets`, in Kafka's own formats.

- key 3, group: group id. Value: epoch, hash of the subscribed topics.
- key 4, topics of a group: written before Kafka 4, ignored.
- key 5, member: group id, member id. Value: its metadata and subscription.
- key 6, target: group id. Value: epoch of the target assignment.
- key 7, target of a member: group id, member id. Value: its target assignment.
- key 8, assignment of a member: group id, member id. Value: its epoch, assigned and revoked
  partitions.
- key 16, pattern: group id, pattern. Value: the topics that it matched.

Keys are plain, values flexible, all of version 0 behind the key's number; None is a tombstone.
Source: Kafka 4.3 `ConsumerGroup*Key.json`, `ConsumerGroup*Value.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated, Final
from uuid import UUID

from sparklog.coordinator.consumer.messages import NO_PARTS, ClassicMember, Part, Parts
from sparklog.coordinator.effects import CoordinatorRecord
from sparklog.coordinator.record_codec import RecordSchema, corrupt, version_of
from sparklog.protocol.messages.schema import Int8, Int32, Int64, Tagged


class MemberState(IntEnum):
    """Progress of a member towards its target, with Kafka's numbers."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It must revoke partitions before it may go on."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members must revoke."""


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """Key 3: the group and its epoch."""

    group_id: str
    epoch: int | None
    """None: the group is deleted."""
    topics_hash: int = 0


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """Key 5: a member's metadata."""

    group_id: str
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    names: tuple[str, ...] = ()
    regex: str | None = None
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMember | None = None
    gone: bool = False


@dataclass(frozen=True, slots=True)
class TargetEpoch:
    """Key 6: the group epoch of the target assignment."""

    group_id: str
    epoch: int | None


@dataclass(frozen=True, slots=True)
class MemberTarget:
    """Key 7: the target assignment of a member."""

    group_id: str
    member_id: str
    parts: Parts | None


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """Key 8: the current assignment of a member."""

    group_id: str
    member_id: str
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Parts = NO_PARTS
    revoking: Parts = NO_PARTS
    gone: bool = False
    since: Mapping[Part, int] = field(default_factory=dict)
    """The epoch in which each held partition was assigned to the member (KIP-1251).

    Records before Kafka 4.3 have none: then it is the member epoch.
    """

    def __post_init__(self) -> None:
        """Complete `since`: an epoch for every held partition, and for no other."""
        said, own = self.since, max(self.epoch, 0)
        since = {part: said.get(part, own) for part in self.assigned | self.revoking}
        object.__setattr__(self, "since", since)


@dataclass(frozen=True, slots=True)
class ResolvedPattern:
    """Key 16: the topics that a pattern matches."""

    group_id: str
    pattern: str
    names: frozenset[str] | None
    version: int = 0
    resolved_ms: int = 0


@dataclass(frozen=True, slots=True)
class OldRecord:
    """Key 4, which is obsolete."""

    group_id: str


ConsumerRecord = (
    GroupEpoch | MemberRecord | TargetEpoch | MemberTarget | MemberAssignment | ResolvedPattern
)
CONSUMER_KEYS: Final = frozenset({3, 4, 5, 6, 7, 8, 16})


@dataclass(frozen=True, slots=True)
class _GroupKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class _MemberKey:
    """A group, and one of its members or patterns."""

    group_id: str
    name: str


@dataclass(frozen=True, slots=True)
class _Group:
    epoch: Int32
    topics_hash: Annotated[Int64, Tagged(0)] = 0


@dataclass(frozen=True, slots=True)
class _ClassicProtocol:
    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class _Classic:
    session_timeout_ms: Int32
    protocols: tuple[_ClassicProtocol, ...]


@dataclass(frozen=True, slots=True)
class _Member:
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    names: tuple[str, ...]
    regex: str | None
    rebalance_timeout_ms: Int32
    assignor: str | None
    classic: Annotated[_Classic | None, Tagged(0)] = None


@dataclass(frozen=True, slots=True)
class _TargetEpoch:
    epoch: Int32


@dataclass(frozen=True, slots=True)
class _TopicParts:
    topic_id: UUID | None
    """None: an id of zeros."""
    numbers: tuple[Int32, ...]


@dataclass(frozen=True, slots=True)
class _Target:
    topics: tuple[_TopicParts, ...]


@dataclass(frozen=True, slots=True)
class _HeldParts:
    topic_id: UUID | None
    numbers: tuple[Int32, ...]
    epochs: Annotated[tuple[Int32, ...] | None, Tagged(0)] = None
    """One for each number; as in Kafka any other count stands for none."""


@dataclass(frozen=True, slots=True)
class _Assignment:
    epoch: Int32
    previous_epoch: Int32
    state: Int8
    assigned: tuple[_HeldParts, ...]
    revoking: tuple[_HeldParts, ...]


@dataclass(frozen=True, slots=True)
class _Pattern:
    names: tuple[str, ...]
    version: Int64
    resolved_ms: Int64


_NO_TOPIC_ID: Final = UUID(int=0)
_KEY_OF_GROUP: Final = RecordSchema(_GroupKey, "the key of a consumer group", (3, 4, 6))
_KEY_OF_MEMBER: Final = RecordSchema(_MemberKey, "the key of a member", (5, 7, 8, 16))
_GROUP: Final = RecordSchema(_Group, "a consumer group", (0,), 0)
_MEMBER: Final = RecordSchema(_Member, "a member", (0,), 0)
_TARGET_EPOCH: Final = RecordSchema(_TargetEpoch, "the epoch of a target", (0,), 0)
_TARGET: Final = RecordSchema(_Target, "the target of a member", (0,), 0)
_ASSIGNMENT: Final = RecordSchema(_Assignment, "the assignment of a member", (0,), 0)
_PATTERN: Final = RecordSchema(_Pattern, "a pattern", (0,), 0)


def write_record(record: ConsumerRecord) -> CoordinatorRecord:
    """Return the key and the value of a record."""
    match record:
        case GroupEpoch(group_id, epoch, topics_hash):
            value = None if epoch is None else _GROUP.encode(_Group(epoch, topics_hash), 0)
            return CoordinatorRecord(_group_key(3, group_id), value)
        case MemberRecord(group_id, member_id):
            value = None if record.gone else _MEMBER.encode(_member_fields(record), 0)
            return CoordinatorRecord(_member_key(5, group_id, member_id), value)
        case TargetEpoch(group_id, epoch):
            value = None if epoch is None else _TARGET_EPOCH.encode(_TargetEpoch(epoch), 0)
            return CoordinatorRecord(_group_key(6, group_id), value)
        case MemberTarget(group_id, member_id, parts):
            value = None if parts is None else _TARGET.encode(_target_fields(parts), 0)
            return CoordinatorRecord(_member_key(7, group_id, member_id), value)
        case MemberAssignment(group_id, member_id):
            value = None if record.gone else _ASSIGNMENT.encode(_assignment_fields(record), 0)
            return CoordinatorRecord(_member_key(8, group_id, member_id), value)
        case ResolvedPattern(group_id, pattern, names, version, resolved_ms):
            value = None
            if names is not None:
                value = _PATTERN.encode(_Pattern(tuple(sorted(names)), version, resolved_ms), 0)
            return CoordinatorRecord(_member_key(16, group_id, pattern), value)


def read_record(record: CoordinatorRecord) -> ConsumerRecord | OldRecord:
    """Return the decoded record.

    Raises:
        DataCorrupt: it is not a record of a consumer group, or cannot be read.
    """
    kind, value = version_of(record.key), record.value
    if kind in _KEY_OF_GROUP.versions:
        group_id = _KEY_OF_GROUP.decode(record.key).group_id
        if kind == 4:
            return OldRecord(group_id)
        if kind == 6:
            epoch = None if value is None else _TARGET_EPOCH.decode(value).epoch
            return TargetEpoch(group_id, epoch)
        if value is None:
            return GroupEpoch(group_id, None)
        group = _GROUP.decode(value)
        return GroupEpoch(group_id, group.epoch, group.topics_hash)
    key = _KEY_OF_MEMBER.decode(record.key)
    return _READERS[kind](key.group_id, key.name, value)


def _read_member(group_id: str, member_id: str, value: bytes | None) -> MemberRecord:
    if value is None:
        return MemberRecord(group_id, member_id, gone=True)
    found, classic = _MEMBER.decode(value), None
    if found.classic is not None:
        protocols = tuple((each.name, each.metadata) for each in found.classic.protocols)
        classic = ClassicMember(found.classic.session_timeout_ms, protocols)
    return MemberRecord(
        group_id,
        member_id,
        found.instance_id,
        found.rack_id,
        found.client_id,
        found.client_host,
        found.names,
        found.regex or None,
        found.rebalance_timeout_ms,
        found.assignor,
        classic,
    )


def _read_target(group_id: str, member_id: str, value: bytes | None) -> MemberTarget:
    if value is None:
        return MemberTarget(group_id, member_id, None)
    return MemberTarget(group_id, member_id, _parts(_TARGET.decode(value).topics))


def _read_assignment(group_id: str, member_id: str, value: bytes | None) -> MemberAssignment:
    if value is None:
        return MemberAssignment(group_id, member_id, gone=True)
    found = _ASSIGNMENT.decode(value)
    if found.state not in list(MemberState):
        raise corrupt("the assignment of a member", f"state {found.state} is unknown", value)
    since: dict[Part, int] = {}
    for held in (*found.assigned, *found.revoking):
        if held.epochs is not None and len(held.epochs) == len(held.numbers):
            topic_id = held.topic_id or _NO_TOPIC_ID
            parts = [(topic_id, number) for number in held.numbers]
            since.update(zip(parts, held.epochs, strict=True))
    return MemberAssignment(
        group_id,
        member_id,
        found.epoch,
        found.previous_epoch,
        MemberState(found.state),
        _parts(found.assigned),
        _parts(found.revoking),
        since=since,
    )


def _read_pattern(group_id: str, pattern: str, value: bytes | None) -> ResolvedPattern:
    if value is None:
        return ResolvedPattern(group_id, pattern, None)
    found = _PATTERN.decode(value)
    return ResolvedPattern(
        group_id, pattern, frozenset(found.names), found.version, found.resolved_ms
    )


_READERS: Final[dict[int, Callable[[str, str, bytes | None], ConsumerRecord]]] = {
    5: _read_member,
    7: _read_target,
    8: _read_assignment,
    16: _read_pattern,
}


def _group_key(kind: int, group_id: str) -> bytes:
    return _KEY_OF_GROUP.encode(_GroupKey(group_id), kind)


def _member_key(kind: int, group_id: str, name: str) -> bytes:
    return _KEY_OF_MEMBER.encode(_MemberKey(group_id, name), kind)


def _member_fields(record: MemberRecord) -> _Member:
    classic = None
    if record.classic is not None:
        protocols = tuple(_ClassicProtocol(*protocol) for protocol in record.classic.protocols)
        classic = _Classic(record.classic.session_timeout_ms, protocols)
    return _Member(
        record.instance_id,
        record.rack_id,
        record.client_id,
        record.client_host,
        record.names,
        record.regex,
        record.rebalance_timeout_ms,
        record.assignor,
        classic,
    )


def _target_fields(parts: Parts) -> _Target:
    topics = _by_topic(parts).items()
    return _Target(tuple(_TopicParts(topic_id, tuple(numbers)) for topic_id, numbers in topics))


def _assignment_fields(record: MemberAssignment) -> _Assignment:
    return _Assignment(
        record.epoch,
        record.previous_epoch,
        record.state,
        _held(record.assigned, record.since),
        _held(record.revoking, record.since),
    )


def _held(parts: Parts, since: Mapping[Part, int]) -> tuple[_HeldParts, ...]:
    """Return partitions with the epochs in which they were assigned."""
    return tuple(
        _HeldParts(topic_id, tuple(numbers), tuple(since[topic_id, each] for each in numbers))
        for topic_id, numbers in _by_topic(parts).items()
    )


def _by_topic(parts: Parts) -> dict[UUID, list[int]]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, number in sorted(parts):
        topics.setdefault(topic_id, []).append(number)
    return topics


def _parts(topics: Iterable[_TopicParts | _HeldParts]) -> Parts:
    return frozenset(
        (topic.topic_id or _NO_TOPIC_ID, number) for topic in topics for number in topic.numbers
    )
