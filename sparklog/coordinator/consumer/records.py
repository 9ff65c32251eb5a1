"""Records of consumer groups (KIP-848) in `__consumer_offsets`, in Kafka's own formats.

- key 3, group: group id. Value: epoch, hash of the subscribed topics.
- key 4, topics of a group: written before Kafka 4, ignored.
- key 5, member: group id, member id. Value: its metadata and subscription.
- key 6, target: group id. Value: epoch of the target assignment.
- key 7, target of a member: group id, member id. Value: its target assignment.
- key 8, assignment of a member: group id, member id. Value: its epoch, assigned and revoked
  partitions.
- key 16, pattern: group id, pattern. Value: the topics that it matched.

`consumer_record_bytes` encodes and decodes them.

The bytes of consumer groups' records, in Kafka's own formats.

Keys are plain, values flexible, all of version 0 behind the key's number; None is a tombstone.
Source: Kafka 4.3 `ConsumerGroup*Key.json`, `ConsumerGroup*Value.json`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final
from uuid import UUID

from sparklog.coordinator.consumer.messages import NO_PARTS, ClassicMember, Part, Parts
from sparklog.coordinator.effects import CoordinatorRecord
from sparklog.coordinator.record_codec import FieldReader, FieldWriter


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


_HASH_TAG: Final = 0
_CLASSIC_TAG: Final = 0
_EPOCHS_TAG: Final = 0
_INT64_BYTES: Final = 8
_VERSION_BYTES: Final = 2
_THERE: Final = 1


def write_record(record: ConsumerRecord) -> CoordinatorRecord:
    """Return the key and the value of a record."""
    match record:
        case GroupEpoch():
            return CoordinatorRecord(_key(3, record.group_id), _group_value(record))
        case MemberRecord():
            return CoordinatorRecord(_key(5, record.group_id, record.member_id), _member(record))
        case TargetEpoch():
            value = None
            if record.epoch is not None:
                out = FieldWriter(0, flexible=True)
                out.int32(record.epoch)
                out.tags()
                value = out.done()
            return CoordinatorRecord(_key(6, record.group_id), value)
        case MemberTarget():
            value = None
            if record.parts is not None:
                out = FieldWriter(0, flexible=True)
                _put_parts(out, record.parts)
                out.tags()
                value = out.done()
            return CoordinatorRecord(_key(7, record.group_id, record.member_id), value)
        case MemberAssignment():
            key = _key(8, record.group_id, record.member_id)
            return CoordinatorRecord(key, _assignment(record))
        case ResolvedPattern():
            return CoordinatorRecord(_key(16, record.group_id, record.pattern), _pattern(record))


def read_record(record: CoordinatorRecord) -> ConsumerRecord | OldRecord:
    """Return the decoded record.

    Raises:
        DataCorrupt: it is not a record of a consumer group, or cannot be read.
    """
    key = FieldReader(record.key)
    if key.version == 4:
        return OldRecord(key.string())
    reader = _READERS.get(key.version)
    if reader is None:
        raise key.unsupported("the key of a consumer group's record")
    fields = None
    if record.value is not None:
        fields = FieldReader.of(record.value, "a consumer group's record", (0,), flexible_since=0)
    found = reader(key, fields)
    key.end()
    return found


def _read_group(key: FieldReader, value: FieldReader | None) -> GroupEpoch:
    group_id = key.string()
    if value is None:
        return GroupEpoch(group_id, None)
    epoch, tags = value.int32(), value.tags()
    return GroupEpoch(group_id, epoch, int.from_bytes(tags.get(_HASH_TAG, b""), "big", signed=True))


def _read_member(key: FieldReader, value: FieldReader | None) -> MemberRecord:
    group_id, member_id = key.string(), key.string()
    if value is None:
        return MemberRecord(group_id, member_id, gone=True)
    found = MemberRecord(
        group_id,
        member_id,
        value.optional_string(),
        value.optional_string(),
        value.string(),
        value.string(),
        value.array(value.string),
        value.optional_string() or None,
        value.int32(),
        value.optional_string(),
    )
    classic = value.tags().get(_CLASSIC_TAG)
    return found if classic is None else replace(found, classic=_take_classic(classic))


def _read_target_epoch(key: FieldReader, value: FieldReader | None) -> TargetEpoch:
    group_id = key.string()
    if value is None:
        return TargetEpoch(group_id, None)
    epoch = value.int32()
    value.tags()
    return TargetEpoch(group_id, epoch)


def _read_target(key: FieldReader, value: FieldReader | None) -> MemberTarget:
    group_id, member_id = key.string(), key.string()
    if value is None:
        return MemberTarget(group_id, member_id, None)
    parts = _take_parts(value)
    value.tags()
    return MemberTarget(group_id, member_id, parts)


def _read_assignment(key: FieldReader, value: FieldReader | None) -> MemberAssignment:
    group_id, member_id = key.string(), key.string()
    if value is None:
        return MemberAssignment(group_id, member_id, gone=True)
    epoch, previous_epoch, number = value.int32(), value.int32(), value.int8()
    if number not in list(MemberState):
        raise value.unsupported("the state of a member")
    since: dict[Part, int] = {}
    assigned, revoking = _take_parts(value, since), _take_parts(value, since)
    value.tags()
    return MemberAssignment(
        group_id,
        member_id,
        epoch,
        previous_epoch,
        MemberState(number),
        assigned,
        revoking,
        since=since,
    )


def _read_pattern(key: FieldReader, value: FieldReader | None) -> ResolvedPattern:
    group_id, pattern = key.string(), key.string()
    if value is None:
        return ResolvedPattern(group_id, pattern, None)
    names, version, resolved_ms = frozenset(value.array(value.string)), value.int64(), value.int64()
    value.tags()
    return ResolvedPattern(group_id, pattern, names, version, resolved_ms)


_READERS: Final[dict[int, Callable[[FieldReader, FieldReader | None], ConsumerRecord]]] = {
    3: _read_group,
    5: _read_member,
    6: _read_target_epoch,
    7: _read_target,
    8: _read_assignment,
    16: _read_pattern,
}


def _key(kind: int, *words: str) -> bytes:
    out = FieldWriter(kind)
    for word in words:
        out.string(word)
    return out.done()


def _group_value(record: GroupEpoch) -> bytes | None:
    if record.epoch is None:
        return None
    out = FieldWriter(0, flexible=True)
    out.int32(record.epoch)
    topics_hash = record.topics_hash.to_bytes(_INT64_BYTES, "big", signed=True)
    out.tags({_HASH_TAG: topics_hash} if record.topics_hash else {})
    return out.done()


def _member(record: MemberRecord) -> bytes | None:
    if record.gone:
        return None
    out = FieldWriter(0, flexible=True)
    out.string(record.instance_id)
    out.string(record.rack_id)
    out.string(record.client_id)
    out.string(record.client_host)
    out.count(len(record.names))
    for name in record.names:
        out.string(name)
    out.string(record.regex)
    out.int32(record.rebalance_timeout_ms)
    out.string(record.assignor)
    classic = record.classic
    out.tags({} if classic is None else {_CLASSIC_TAG: _spelled_classic(classic)})
    return out.done()


def _spelled_classic(classic: ClassicMember) -> bytes:
    """Return a nullable structure, so it begins with the byte that marks it as present."""
    out = FieldWriter(0, flexible=True)
    out.int8(_THERE)
    out.int32(classic.session_timeout_ms)
    out.count(len(classic.protocols))
    for name, metadata in classic.protocols:
        out.string(name)
        out.sized_bytes(metadata)
        out.tags()
    out.tags()
    return _inner_of(out)


def _take_classic(data: bytes) -> ClassicMember:
    value = _inner(data)
    if value.int8() != _THERE:
        raise value.unsupported("what a classic member supports")

    def protocol() -> tuple[str, bytes]:
        found = value.string(), value.sized_bytes()
        value.tags()
        return found

    return ClassicMember(value.int32(), value.array(protocol))


def _assignment(record: MemberAssignment) -> bytes | None:
    if record.gone:
        return None
    out = FieldWriter(0, flexible=True)
    out.int32(record.epoch)
    out.int32(record.previous_epoch)
    out.int8(record.state)
    _put_parts(out, record.assigned, record.since)
    _put_parts(out, record.revoking, record.since)
    out.tags()
    return out.done()


def _pattern(record: ResolvedPattern) -> bytes | None:
    if record.names is None:
        return None
    out = FieldWriter(0, flexible=True)
    out.count(len(record.names))
    for name in sorted(record.names):
        out.string(name)
    out.int64(record.version)
    out.int64(record.resolved_ms)
    out.tags()
    return out.done()


def _put_parts(out: FieldWriter, parts: Parts, since: Mapping[Part, int] | None = None) -> None:
    """Append partitions; with `since` also the epochs in which they were assigned."""
    topics: dict[UUID, list[int]] = {}
    for topic, number in sorted(parts):
        topics.setdefault(topic, []).append(number)
    out.count(len(topics))
    for topic, numbers in topics.items():
        out.uuid(topic)
        _put_numbers(out, numbers)
        if since is None:
            out.tags()
        else:
            epochs = FieldWriter(0, flexible=True)
            _put_numbers(epochs, [since[topic, number] for number in numbers])
            out.tags({_EPOCHS_TAG: _inner_of(epochs)})


def _put_numbers(out: FieldWriter, numbers: list[int]) -> None:
    out.count(len(numbers))
    for number in numbers:
        out.int32(number)


def _take_parts(value: FieldReader, since: dict[Part, int] | None = None) -> Parts:
    """Read partitions; put the epochs in which they were assigned into `since`."""

    def topic() -> list[Part]:
        topic_id = UUID(bytes=value.raw(16))
        parts = [(topic_id, number) for number in value.array(value.int32)]
        epochs = value.tags().get(_EPOCHS_TAG)
        if since is not None and epochs is not None:
            since.update(_epochs_of(parts, epochs))
        return parts

    return frozenset(part for parts in value.array(topic) for part in parts)


def _epochs_of(parts: list[Part], data: bytes) -> dict[Part, int]:
    """Return the epochs of partitions; as in Kafka none, unless each has one."""
    value = _inner(data)
    epochs = value.optional_array(value.int32) or ()
    return dict(zip(parts, epochs, strict=True)) if len(epochs) == len(parts) else {}


def _inner_of(written: FieldWriter) -> bytes:
    """Return a structure for a tagged field, without the version that `FieldWriter` puts first."""
    return written.done()[_VERSION_BYTES:]


def _inner(data: bytes) -> FieldReader:
    """Return a reader for a structure inside a tagged field, which is flexible."""
    value = FieldReader(bytes(_VERSION_BYTES) + data)
    value.flexible = True
    return value
