"""Records of share groups (KIP-932) in `__consumer_offsets`, in Kafka's own formats.

- key 10, member: group id, member id. Value: its metadata and subscription.
- key 11, group: group id. Value: epoch, hash of the subscribed topics.
- key 12, target: group id. Value: epoch of the target assignment, and the time of its computation.
- key 13, target of a member: group id, member id. Value: its target assignment.
- key 14, assignment of a member: group id, member id. Value: its epoch and its partitions.
- key 15, states: group id. Value: partitions whose state is being initialized, those with a state,
  and topics whose states are being deleted.

Keys are plain, values flexible, all of version 0 behind the key's number; None is a tombstone.
Source: Kafka 4.4 `ShareGroup*Key.json`, `ShareGroup*Value.json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final
from uuid import UUID

from sparklog.coordinator.consumer.messages import NO_PARTS, Parts
from sparklog.coordinator.effects import CoordinatorRecord
from sparklog.coordinator.record_codec import RecordSchema, version_of
from sparklog.protocol.messages.schema import Int8, Int32, Int64, Tagged

STABLE: Final = 0
"""The only state of a member's assignment: members of share groups revoke nothing."""
SHARE_KEYS: Final = frozenset(range(10, 16))


@dataclass(frozen=True, slots=True)
class ShareMemberRecord:
    """Key 10: a member's metadata."""

    group_id: str
    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    names: tuple[str, ...] = ()
    gone: bool = False


@dataclass(frozen=True, slots=True)
class ShareGroupEpoch:
    """Key 11: the group and its epoch."""

    group_id: str
    epoch: int | None
    """None: the group is deleted."""
    topics_hash: int = 0


@dataclass(frozen=True, slots=True)
class ShareTargetEpoch:
    """Key 12: the group epoch of the target assignment."""

    group_id: str
    epoch: int | None
    computed_ms: int = 0


@dataclass(frozen=True, slots=True)
class ShareMemberTarget:
    """Key 13: the target assignment of a member."""

    group_id: str
    member_id: str
    parts: Parts | None


@dataclass(frozen=True, slots=True)
class ShareMemberAssignment:
    """Key 14: the current assignment of a member."""

    group_id: str
    member_id: str
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Parts = NO_PARTS
    gone: bool = False


@dataclass(frozen=True, slots=True)
class StatefulPartitions:
    """Key 15: the partitions of a group that have a state, or are about to get or lose one."""

    group_id: str
    initializing: Parts = NO_PARTS
    initialized: Parts = NO_PARTS
    deleting: frozenset[UUID] = frozenset()
    names: Mapping[UUID, str] = field(default_factory=dict)
    """Names of all these topics. They are for readers of the log only."""
    gone: bool = False

    def topic_ids(self) -> frozenset[UUID]:
        """Return the ids of all these topics."""
        return self.deleting.union(topic_id for topic_id, _ in self.initializing | self.initialized)


ShareRecord = (
    ShareMemberRecord
    | ShareGroupEpoch
    | ShareTargetEpoch
    | ShareMemberTarget
    | ShareMemberAssignment
    | StatefulPartitions
)


@dataclass(frozen=True, slots=True)
class _ShareGroupKey:
    group_id: str


@dataclass(frozen=True, slots=True)
class _ShareMemberKey:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class _ShareMember:
    rack_id: str | None
    client_id: str
    client_host: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _ShareGroup:
    epoch: Int32
    topics_hash: Int64


@dataclass(frozen=True, slots=True)
class _ShareTargetEpoch:
    epoch: Int32
    computed_ms: Annotated[Int64, Tagged(0)] = 0


@dataclass(frozen=True, slots=True)
class _ShareTopicParts:
    topic_id: UUID | None
    """None: an id of zeros."""
    numbers: tuple[Int32, ...]


@dataclass(frozen=True, slots=True)
class _ShareTarget:
    topics: tuple[_ShareTopicParts, ...]


@dataclass(frozen=True, slots=True)
class _ShareAssignment:
    epoch: Int32
    previous_epoch: Int32
    state: Int8
    assigned: tuple[_ShareTopicParts, ...]


@dataclass(frozen=True, slots=True)
class _ShareNamedParts:
    topic_id: UUID | None
    name: str
    numbers: tuple[Int32, ...]


@dataclass(frozen=True, slots=True)
class _ShareNamedTopic:
    topic_id: UUID | None
    name: str


@dataclass(frozen=True, slots=True)
class _ShareStates:
    initializing: tuple[_ShareNamedParts, ...]
    initialized: tuple[_ShareNamedParts, ...]
    deleting: tuple[_ShareNamedTopic, ...]


_NO_TOPIC_ID: Final = UUID(int=0)
_NO_NAME: Final = "<UNKNOWN>"
"""Kafka's name of a deleted topic."""
_KEY_OF_GROUP: Final = RecordSchema(_ShareGroupKey, "the key of a share group", (11, 12, 15))
_KEY_OF_MEMBER: Final = RecordSchema(_ShareMemberKey, "the key of its member", (10, 13, 14))
_MEMBER: Final = RecordSchema(_ShareMember, "a member of a share group", (0,), 0)
_GROUP: Final = RecordSchema(_ShareGroup, "a share group", (0,), 0)
_TARGET_EPOCH: Final = RecordSchema(
    _ShareTargetEpoch, "the epoch of a share group's target", (0,), 0
)
_TARGET: Final = RecordSchema(_ShareTarget, "the target of a share group's member", (0,), 0)
_ASSIGNMENT: Final = RecordSchema(
    _ShareAssignment, "the assignment of a share group's member", (0,), 0
)
_STATES: Final = RecordSchema(_ShareStates, "the partitions of a share group", (0,), 0)


def write_share_record(record: ShareRecord) -> CoordinatorRecord:
    """Return the key and the value of a record."""
    value: bytes | None = None
    match record:
        case ShareMemberRecord(group_id, member_id):
            if not record.gone:
                about = record.rack_id, record.client_id, record.client_host, record.names
                value = _MEMBER.encode(_ShareMember(*about), 0)
            return CoordinatorRecord(_member_key(10, group_id, member_id), value)
        case ShareGroupEpoch(group_id, epoch, topics_hash):
            value = None if epoch is None else _GROUP.encode(_ShareGroup(epoch, topics_hash), 0)
            return CoordinatorRecord(_group_key(11, group_id), value)
        case ShareTargetEpoch(group_id, epoch, computed_ms):
            if epoch is not None:
                value = _TARGET_EPOCH.encode(_ShareTargetEpoch(epoch, computed_ms), 0)
            return CoordinatorRecord(_group_key(12, group_id), value)
        case ShareMemberTarget(group_id, member_id, parts):
            value = None if parts is None else _TARGET.encode(_ShareTarget(_topics(parts)), 0)
            return CoordinatorRecord(_member_key(13, group_id, member_id), value)
        case ShareMemberAssignment(group_id, member_id, epoch, previous, assigned):
            if not record.gone:
                has = _ShareAssignment(epoch, previous, STABLE, _topics(assigned))
                value = _ASSIGNMENT.encode(has, 0)
            return CoordinatorRecord(_member_key(14, group_id, member_id), value)
        case StatefulPartitions(group_id):
            value = None if record.gone else _STATES.encode(_states(record), 0)
            return CoordinatorRecord(_group_key(15, group_id), value)


def read_share_record(record: CoordinatorRecord) -> ShareRecord:
    """Return the decoded record.

    Raises:
        DataCorrupt: it is not a record of a share group, or cannot be read.
    """
    kind, value = version_of(record.key), record.value
    if kind in _KEY_OF_GROUP.versions:
        return _read_of_group(kind, _KEY_OF_GROUP.decode(record.key).group_id, value)
    key = _KEY_OF_MEMBER.decode(record.key)
    return _read_of_member(kind, key.group_id, key.member_id, value)


def _read_of_group(kind: int, group_id: str, value: bytes | None) -> ShareRecord:
    if kind == 11:
        if value is None:
            return ShareGroupEpoch(group_id, None)
        group = _GROUP.decode(value)
        return ShareGroupEpoch(group_id, group.epoch, group.topics_hash)
    if kind == 12:
        if value is None:
            return ShareTargetEpoch(group_id, None)
        target = _TARGET_EPOCH.decode(value)
        return ShareTargetEpoch(group_id, target.epoch, target.computed_ms)
    if value is None:
        return StatefulPartitions(group_id, gone=True)
    found = _STATES.decode(value)
    named: tuple[_ShareNamedParts | _ShareNamedTopic, ...] = (
        *found.initializing,
        *found.initialized,
        *found.deleting,
    )
    return StatefulPartitions(
        group_id,
        _parts(found.initializing),
        _parts(found.initialized),
        frozenset(topic.topic_id or _NO_TOPIC_ID for topic in found.deleting),
        {topic.topic_id or _NO_TOPIC_ID: topic.name for topic in named},
    )


def _read_of_member(kind: int, group_id: str, member_id: str, value: bytes | None) -> ShareRecord:
    if kind == 10:
        if value is None:
            return ShareMemberRecord(group_id, member_id, gone=True)
        about = _MEMBER.decode(value)
        return ShareMemberRecord(
            group_id, member_id, about.rack_id, about.client_id, about.client_host, about.names
        )
    if kind == 13:
        parts = None if value is None else _parts(_TARGET.decode(value).topics)
        return ShareMemberTarget(group_id, member_id, parts)
    if value is None:
        return ShareMemberAssignment(group_id, member_id, gone=True)
    found = _ASSIGNMENT.decode(value)
    return ShareMemberAssignment(
        group_id, member_id, found.epoch, found.previous_epoch, _parts(found.assigned)
    )


def _group_key(kind: int, group_id: str) -> bytes:
    return _KEY_OF_GROUP.encode(_ShareGroupKey(group_id), kind)


def _member_key(kind: int, group_id: str, member_id: str) -> bytes:
    return _KEY_OF_MEMBER.encode(_ShareMemberKey(group_id, member_id), kind)


def _states(record: StatefulPartitions) -> _ShareStates:
    def named(parts: Parts) -> tuple[_ShareNamedParts, ...]:
        return tuple(
            _ShareNamedParts(topic_id, record.names.get(topic_id, _NO_NAME), numbers)
            for topic_id, numbers in _by_topic(parts).items()
        )

    return _ShareStates(
        named(record.initializing),
        named(record.initialized),
        tuple(
            _ShareNamedTopic(topic_id, record.names.get(topic_id, _NO_NAME))
            for topic_id in sorted(record.deleting)
        ),
    )


def _topics(parts: Parts) -> tuple[_ShareTopicParts, ...]:
    return tuple(
        _ShareTopicParts(topic_id, numbers) for topic_id, numbers in _by_topic(parts).items()
    )


def _by_topic(parts: Parts) -> dict[UUID, tuple[int, ...]]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, number in sorted(parts):
        topics.setdefault(topic_id, []).append(number)
    return {topic_id: tuple(numbers) for topic_id, numbers in topics.items()}


def _parts(topics: Iterable[_ShareTopicParts | _ShareNamedParts]) -> Parts:
    return frozenset(
        (topic.topic_id or _NO_TOPIC_ID, number) for topic in topics for number in topic.numbers
    )
