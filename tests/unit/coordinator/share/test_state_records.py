"""Records of share groups' states: their bytes, which never change, and those that are refused."""

from __future__ import annotations

from uuid import UUID

import pytest

from sparklog.coordinator.effects import CoordinatorRecord
from sparklog.coordinator.share.delivery_state import (
    DeliveryState,
    SharePartitionKey,
    ShareState,
    StateBatch,
)
from sparklog.coordinator.share.state_records import (
    ShareSnapshot,
    ShareTombstone,
    ShareUpdate,
    decode,
    encode_snapshot,
    encode_update,
    tombstones,
)
from sparklog.core.errors import DataCorrupt

TOPIC = UUID("00112233-4455-6677-8899-aabbccddeeff")
KEY = SharePartitionKey("pay", TOPIC, 7)
KEY_BYTES = "0003 706179 00112233445566778899aabbccddeeff 00000007"
BATCHES = (
    StateBatch(10, 11, DeliveryState.ACKNOWLEDGED, 1),
    StateBatch(12, 20, DeliveryState.AVAILABLE, 2),
)
BATCH_BYTES = (
    "03 000000000000000a 000000000000000b 02 0001 00 000000000000000c 0000000000000014 00 0002 00"
)
SNAPSHOT = ShareSnapshot(KEY, 3, ShareState(4, 10, BATCHES, 5, 2), 1_000, 2_000)
SNAPSHOT_BYTES = (
    "0000 00000003 00000004 00000005 000000000000000a 00000000000003e8 00000000000007d0"
    f" {BATCH_BYTES} 01 00 04 00000002"
)
UPDATE = ShareUpdate(KEY, 3, 5, 10, BATCHES)
UPDATE_BYTES = f"0000 00000003 00000005 000000000000000a {BATCH_BYTES} 00"


def record(version: int, value: str | None) -> CoordinatorRecord:
    key = bytes.fromhex(f"{version:04x} {KEY_BYTES}")
    return CoordinatorRecord(key, None if value is None else bytes.fromhex(value))


def test_a_snapshot_has_kafkas_bytes() -> None:
    assert encode_snapshot(SNAPSHOT) == record(0, SNAPSHOT_BYTES)
    assert decode(record(0, SNAPSHOT_BYTES)) == SNAPSHOT


def test_an_update_has_kafkas_bytes() -> None:
    assert encode_update(UPDATE) == record(1, UPDATE_BYTES)
    assert decode(record(1, UPDATE_BYTES)) == UPDATE


def test_a_deleted_state_has_a_tombstone_for_each_key() -> None:
    assert tombstones(KEY) == (record(0, None), record(1, None))
    assert [decode(each) for each in tombstones(KEY)] == [
        ShareTombstone(KEY, 0),
        ShareTombstone(KEY, 1),
    ]


@pytest.mark.parametrize(
    ("version", "value"),
    [
        (0, "0001" + SNAPSHOT_BYTES[4:]),
        (0, SNAPSHOT_BYTES[:-2]),
        (1, UPDATE_BYTES + "00"),
        (1, UPDATE_BYTES.replace(" 02 0001 00", " 01 0001 00")),
        (1, UPDATE_BYTES.replace(" 02 0001 00", " 03 0001 00")),
        (1, UPDATE_BYTES.replace(" 02 0001 00", " 02 ffff 00")),
        (1, UPDATE_BYTES.replace("000000000000000b", "0000000000000009")),
        (1, UPDATE_BYTES.replace(BATCH_BYTES, "ffffffff0f")),
        (2, UPDATE_BYTES),
    ],
)
def test_a_value_that_is_no_state_is_refused(version: int, value: str) -> None:
    with pytest.raises(DataCorrupt, match="internal topic cannot be read"):
        decode(record(version, value))
