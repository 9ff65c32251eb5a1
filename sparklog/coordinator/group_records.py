"""Records of `__consumer_offsets`: committed offsets and classic groups, in Kafka's own formats.

Every key and every value begins with a version of 16 bits; a key's version is also its kind.

- key 0, 1, offset commit: group id, topic, partition. Value version 0-4.
- key 2, classic group: group id. Value version 0-4.

The coordinator writes values in the versions of Kafka 4, and reads all versions. Timestamps and
time-outs are ms.
Source: Kafka `OffsetCommitKey.json`, `OffsetCommitValue.json`, `GroupMetadataKey.json`,
`GroupMetadataValue.json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from sparklog.coordinator.record_codec import FieldReader, FieldWriter

OFFSET_KEYS: Final = (0, 1)
GROUP_KEY: Final = 2
NO_EPOCH: Final = -1
NEVER_MS: Final = -1
NO_TIMEOUT_MS: Final = -1

_PLAIN_OFFSET: Final = 3
_EXPIRING_OFFSET: Final = 1
_OFFSET_WITH_TOPIC_ID: Final = 4
_TOPIC_ID_TAG: Final = 0
_GROUP_VALUE: Final = 3
_FLEXIBLE: Final = 4
_VALUES: Final = range(5)
_UUID_BYTES: Final = 16


class OffsetKey(NamedTuple):
    """Key of a committed offset."""

    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class OffsetValue:
    """A committed offset."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = NEVER_MS
    """Set for clients before 2018, which send a retention time with a commit."""
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Key of a classic group."""

    group_id: str


@dataclass(frozen=True, slots=True)
class MemberValue:
    """One member of a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupValue:
    """A classic group in its newest generation that has an assignment, or has no members."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_since_ms: int
    members: tuple[MemberValue, ...]


def key_kind(key: bytes) -> int:
    """Return the kind of a record.

    Raises:
        DataCorrupt: the key is too short.
    """
    return FieldReader(key).version


def write_offset_key(key: OffsetKey) -> bytes:
    """Return a key's bytes."""
    out = FieldWriter(OFFSET_KEYS[-1])
    out.string(key.group_id)
    out.string(key.topic)
    out.int32(key.partition)
    return out.done()


def read_offset_key(data: bytes) -> OffsetKey:
    """Return the decoded key.

    Raises:
        DataCorrupt: it is not the key of an offset.
    """
    fields = FieldReader.of(data, "the key of an offset", OFFSET_KEYS)
    key = OffsetKey(fields.string(), fields.string(), fields.int32())
    fields.end()
    return key


def write_offset_value(value: OffsetValue) -> bytes:
    """Return a value's bytes, in the version that Kafka uses for it."""
    if value.expire_ms != NEVER_MS:
        version = _EXPIRING_OFFSET
    else:
        version = _PLAIN_OFFSET if value.topic_id is None else _OFFSET_WITH_TOPIC_ID
    out = FieldWriter(version, flexible=version >= _FLEXIBLE)
    out.int64(value.offset)
    if version >= 3:
        out.int32(value.leader_epoch)
    out.string(value.metadata)
    out.int64(value.commit_ms)
    if version == _EXPIRING_OFFSET:
        out.int64(value.expire_ms)
    out.tags({} if value.topic_id is None else {_TOPIC_ID_TAG: value.topic_id.bytes})
    return out.done()


def read_offset_value(data: bytes) -> OffsetValue:
    """Return the decoded value, of any version.

    Raises:
        DataCorrupt: it is not the value of an offset.
    """
    fields = FieldReader.of(data, "a committed offset", _VALUES, _FLEXIBLE)
    version = fields.version
    offset = fields.int64()
    epoch = fields.int32() if version >= 3 else NO_EPOCH
    metadata, commit_ms = fields.string(), fields.int64()
    expire_ms = fields.int64() if version == _EXPIRING_OFFSET else NEVER_MS
    tagged = fields.tags().get(_TOPIC_ID_TAG, b"")
    fields.end()
    topic_id = UUID(bytes=tagged) if len(tagged) == _UUID_BYTES else None
    return OffsetValue(offset, epoch, metadata, commit_ms, expire_ms, topic_id)


def write_group_key(key: GroupKey) -> bytes:
    """Return a key's bytes."""
    out = FieldWriter(GROUP_KEY)
    out.string(key.group_id)
    return out.done()


def read_group_key(data: bytes) -> GroupKey:
    """Return the decoded key.

    Raises:
        DataCorrupt: it is not the key of a group.
    """
    fields = FieldReader.of(data, "the key of a group", (GROUP_KEY,))
    key = GroupKey(fields.string())
    fields.end()
    return key


def write_group_value(value: GroupValue) -> bytes:
    """Return a value's bytes."""
    out = FieldWriter(_GROUP_VALUE)
    out.string(value.protocol_type)
    out.int32(value.generation)
    out.string(value.protocol)
    out.string(value.leader)
    out.int64(value.state_since_ms)
    out.count(len(value.members))
    for member in value.members:
        out.string(member.member_id)
        out.string(member.instance_id)
        out.string(member.client_id)
        out.string(member.client_host)
        out.int32(member.rebalance_timeout_ms)
        out.int32(member.session_timeout_ms)
        out.sized_bytes(member.subscription)
        out.sized_bytes(member.assignment)
    return out.done()


def read_group_value(data: bytes) -> GroupValue:
    """Return the decoded value, of any version.

    Raises:
        DataCorrupt: it is not the value of a group.
    """
    fields = FieldReader.of(data, "a group", _VALUES, _FLEXIBLE)
    version = fields.version
    value = GroupValue(
        protocol_type=fields.string(),
        generation=fields.int32(),
        protocol=fields.optional_string(),
        leader=fields.optional_string(),
        state_since_ms=fields.int64() if version >= 2 else NEVER_MS,
        members=fields.array(lambda: _read_member(fields)),
    )
    fields.tags()
    fields.end()
    return value


def _read_member(fields: FieldReader) -> MemberValue:
    member_id = fields.string()
    instance_id = fields.optional_string() if fields.version >= 3 else None
    client_id, client_host = fields.string(), fields.string()
    rebalance_ms = fields.int32() if fields.version >= 1 else NO_TIMEOUT_MS
    session_ms = fields.int32()
    member = MemberValue(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=session_ms if rebalance_ms == NO_TIMEOUT_MS else rebalance_ms,
        session_timeout_ms=session_ms,
        subscription=fields.sized_bytes(),
        assignment=fields.sized_bytes(),
    )
    fields.tags()
    return member
