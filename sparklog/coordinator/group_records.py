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

from dataclasses import dataclass, replace
from typing import Annotated, Final, NamedTuple
from uuid import UUID

from sparklog.coordinator.record_codec import RecordSchema, version_of
from sparklog.protocol.messages.schema import FieldVersions, Int32, Int64, Tagged

OFFSET_KEYS: Final = (0, 1)
GROUP_KEY: Final = 2
NO_EPOCH: Final = -1
NEVER_MS: Final = -1
NO_TIMEOUT_MS: Final = -1

_PLAIN_OFFSET: Final = 3
_EXPIRING_OFFSET: Final = 1
_OFFSET_WITH_TOPIC_ID: Final = 4
_GROUP_VALUE: Final = 3
_FLEXIBLE: Final = 4
_VALUES: Final = range(5)


class OffsetKey(NamedTuple):
    """Key of a committed offset."""

    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class OffsetValue:
    """A committed offset."""

    offset: Int64
    leader_epoch: Annotated[Int32, FieldVersions(3, absent=NO_EPOCH)]
    metadata: str
    commit_ms: Int64
    expire_ms: Annotated[Int64, FieldVersions(1, 1, absent=NEVER_MS)] = NEVER_MS
    """Set for clients before 2018, which send a retention time with a commit."""
    topic_id: Annotated[UUID | None, Tagged(0, since=4)] = None


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Key of a classic group."""

    group_id: str


@dataclass(frozen=True, slots=True)
class MemberValue:
    """One member of a classic group."""

    member_id: str
    instance_id: Annotated[str | None, FieldVersions(3)]
    client_id: str
    client_host: str
    rebalance_timeout_ms: Annotated[Int32, FieldVersions(1, absent=NO_TIMEOUT_MS)]
    session_timeout_ms: Int32
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupValue:
    """A classic group in its newest generation that has an assignment, or has no members."""

    protocol_type: str
    generation: Int32
    protocol: str | None
    leader: str | None
    state_since_ms: Annotated[Int64, FieldVersions(2, absent=NEVER_MS)]
    members: tuple[MemberValue, ...]


@dataclass(frozen=True, slots=True)
class _OffsetKeyFields:
    """`OffsetKey` as a dataclass."""

    group_id: str
    topic: str
    partition: Int32


_OFFSET_KEY: Final = RecordSchema(_OffsetKeyFields, "the key of an offset", OFFSET_KEYS)
_OFFSET: Final = RecordSchema(OffsetValue, "a committed offset", _VALUES, _FLEXIBLE)
_KEY_OF_GROUP: Final = RecordSchema(GroupKey, "the key of a group", (GROUP_KEY,))
_GROUP: Final = RecordSchema(GroupValue, "a group", _VALUES, _FLEXIBLE)


def key_kind(key: bytes) -> int:
    """Return the kind of a record.

    Raises:
        DataCorrupt: the key is too short.
    """
    return version_of(key)


def write_offset_key(key: OffsetKey) -> bytes:
    """Return a key's bytes."""
    return _OFFSET_KEY.encode(_OffsetKeyFields(*key), OFFSET_KEYS[-1])


def read_offset_key(data: bytes) -> OffsetKey:
    """Return the decoded key.

    Raises:
        DataCorrupt: it is not the key of an offset.
    """
    key = _OFFSET_KEY.decode(data)
    return OffsetKey(key.group_id, key.topic, key.partition)


def write_offset_value(value: OffsetValue) -> bytes:
    """Return a value's bytes, in the version that Kafka uses for it."""
    if value.expire_ms != NEVER_MS:
        return _OFFSET.encode(value, _EXPIRING_OFFSET)
    version = _PLAIN_OFFSET if value.topic_id is None else _OFFSET_WITH_TOPIC_ID
    return _OFFSET.encode(value, version)


def read_offset_value(data: bytes) -> OffsetValue:
    """Return the decoded value, of any version.

    Raises:
        DataCorrupt: it is not the value of an offset.
    """
    return _OFFSET.decode(data)


def write_group_key(key: GroupKey) -> bytes:
    """Return a key's bytes."""
    return _KEY_OF_GROUP.encode(key, GROUP_KEY)


def read_group_key(data: bytes) -> GroupKey:
    """Return the decoded key.

    Raises:
        DataCorrupt: it is not the key of a group.
    """
    return _KEY_OF_GROUP.decode(data)


def write_group_value(value: GroupValue) -> bytes:
    """Return a value's bytes."""
    return _GROUP.encode(value, _GROUP_VALUE)


def read_group_value(data: bytes) -> GroupValue:
    """Return the decoded value, of any version.

    Raises:
        DataCorrupt: it is not the value of a group.
    """
    value = _GROUP.decode(data)
    return replace(value, members=tuple(map(_with_timeout, value.members)))


def _with_timeout(member: MemberValue) -> MemberValue:
    """Return a member whose rebalance time-out, if it has none, is its session time-out."""
    if member.rebalance_timeout_ms != NO_TIMEOUT_MS:
        return member
    return replace(member, rebalance_timeout_ms=member.session_timeout_ms)
