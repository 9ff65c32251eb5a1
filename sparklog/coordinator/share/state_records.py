"""Records of share groups' states in `__share_group_state`, in Kafka's own formats.

- key version 0, snapshot: `group id string | topic id uuid | partition int32`. Value version 0,
  flexible: `snapshot epoch int32 | state epoch int32 | leader epoch int32 | start offset int64 |
  created int64 | written int64 | batches`, tag 0 `finished records int32`.
- key version 1, update: the same key. Value version 0, flexible: `snapshot epoch int32 | leader
  epoch int32 | start offset int64 | batches`, tag 0 `finished records int32`.

A batch is `first offset int64 | last offset int64 | state int8 | delivery count int16`. A record
without a value is a tombstone. An update holds all changes since the snapshot of its epoch, and the
next update replaces it. So the newest record of each key is the whole state (decision 96). Times
are ms.

Source: KIP-932, KIP-1226; Kafka's ShareSnapshotKey.json, ShareSnapshotValue.json,
ShareUpdateKey.json and ShareUpdateValue.json.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple
from uuid import UUID

from sparklog.coordinator.effects import CoordinatorRecord
from sparklog.coordinator.record_codec import RecordSchema, corrupt, version_of
from sparklog.coordinator.share.delivery_state import (
    NO_COUNT,
    DeliveryState,
    SharePartitionKey,
    ShareState,
    StateBatch,
)
from sparklog.protocol.messages.schema import Int8, Int16, Int32, Int64, Tagged

SNAPSHOT_KEY: Final = 0
UPDATE_KEY: Final = 1
VALUE_VERSION: Final = 0
STORED_STATES: Final = frozenset(DeliveryState) - {DeliveryState.ACQUIRED}
_BY_NUMBER: Final = {int(state): state for state in STORED_STATES}


class ShareSnapshot(NamedTuple):
    """Key version 0: the whole state of a share group in one partition."""

    key: SharePartitionKey
    snapshot_epoch: int
    """Increases with each snapshot of the key."""
    state: ShareState
    created_ms: int
    """When the state was initialized."""
    written_ms: int


class ShareUpdate(NamedTuple):
    """Key version 1: all changes since the snapshot of an epoch."""

    key: SharePartitionKey
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    batches: tuple[StateBatch, ...]
    delivery_complete_count: int = NO_COUNT


class ShareTombstone(NamedTuple):
    """Either key without a value: the state is deleted."""

    key: SharePartitionKey
    key_version: int


@dataclass(frozen=True, slots=True)
class _StateKey:
    group_id: str
    topic_id: UUID
    partition: Int32


@dataclass(frozen=True, slots=True)
class _StoredBatch:
    first_offset: Int64
    last_offset: Int64
    state: Int8
    delivery_count: Int16


@dataclass(frozen=True, slots=True)
class _StoredSnapshot:
    snapshot_epoch: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    created_ms: Int64
    written_ms: Int64
    batches: tuple[_StoredBatch, ...]
    delivery_complete_count: Annotated[Int32, Tagged(0)] = NO_COUNT


@dataclass(frozen=True, slots=True)
class _StoredUpdate:
    snapshot_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    batches: tuple[_StoredBatch, ...]
    delivery_complete_count: Annotated[Int32, Tagged(0)] = NO_COUNT


_KEY: Final = RecordSchema(
    _StateKey, "the key of a share group's state", (SNAPSHOT_KEY, UPDATE_KEY)
)
_SNAPSHOT: Final = RecordSchema(
    _StoredSnapshot, "the snapshot of a share group's state", (VALUE_VERSION,), VALUE_VERSION
)
_UPDATE: Final = RecordSchema(
    _StoredUpdate, "an update of a share group's state", (VALUE_VERSION,), VALUE_VERSION
)


def encode_snapshot(snapshot: ShareSnapshot) -> CoordinatorRecord:
    """Return the record of a snapshot."""
    state = snapshot.state
    value = _StoredSnapshot(
        snapshot.snapshot_epoch,
        state.state_epoch,
        state.leader_epoch,
        state.start_offset,
        snapshot.created_ms,
        snapshot.written_ms,
        tuple(_StoredBatch(*batch) for batch in state.batches),
        state.delivery_complete_count,
    )
    key = _KEY.encode(_StateKey(*snapshot.key), SNAPSHOT_KEY)
    return CoordinatorRecord(key, _SNAPSHOT.encode(value, VALUE_VERSION))


def encode_update(update: ShareUpdate) -> CoordinatorRecord:
    """Return the record of an update."""
    value = _StoredUpdate(
        update.snapshot_epoch,
        update.leader_epoch,
        update.start_offset,
        tuple(_StoredBatch(*batch) for batch in update.batches),
        update.delivery_complete_count,
    )
    key = _KEY.encode(_StateKey(*update.key), UPDATE_KEY)
    return CoordinatorRecord(key, _UPDATE.encode(value, VALUE_VERSION))


def tombstones(key: SharePartitionKey) -> tuple[CoordinatorRecord, ...]:
    """Return the records that delete a state."""
    encoded = _StateKey(*key)
    return tuple(
        CoordinatorRecord(_KEY.encode(encoded, version), None)
        for version in (SNAPSHOT_KEY, UPDATE_KEY)
    )


def decode(record: CoordinatorRecord) -> ShareSnapshot | ShareUpdate | ShareTombstone:
    """Return the content of a record.

    Raises:
        DataCorrupt: it is not a record of this topic.
    """
    found = _KEY.decode(record.key)
    key = SharePartitionKey(found.group_id, found.topic_id, found.partition)
    version = version_of(record.key)
    if record.value is None:
        return ShareTombstone(key, version)
    if version == UPDATE_KEY:
        update = _UPDATE.decode(record.value)
        return ShareUpdate(
            key,
            update.snapshot_epoch,
            update.leader_epoch,
            update.start_offset,
            _batches(update.batches, record.value),
            update.delivery_complete_count,
        )
    value = _SNAPSHOT.decode(record.value)
    state = ShareState(
        value.state_epoch,
        value.start_offset,
        _batches(value.batches, record.value),
        value.leader_epoch,
        value.delivery_complete_count,
    )
    return ShareSnapshot(key, value.snapshot_epoch, state, value.created_ms, value.written_ms)


def _batches(batches: tuple[_StoredBatch, ...], value: bytes) -> tuple[StateBatch, ...]:
    """Return decoded batches; each must have a stored state and ascending offsets."""
    found = []
    for batch in batches:
        first, last, count = batch.first_offset, batch.last_offset, batch.delivery_count
        state = _BY_NUMBER.get(batch.state)
        if state is None or not 0 <= first <= last or count < 0:
            why = f"a batch is impossible: offsets {first}-{last} state {batch.state} count {count}"
            raise corrupt("a share group's state", why, value)
        found.append(StateBatch(first, last, state, count))
    return tuple(found)
