"""Records of share groups: Kafka's bytes, and rejection of all others."""

from __future__ import annotations

from uuid import UUID

import pytest

from sparklog.coordinator.effects import CoordinatorRecord
from sparklog.coordinator.share.records import (
    ShareGroupEpoch,
    ShareMemberAssignment,
    ShareMemberRecord,
    ShareMemberTarget,
    ShareRecord,
    ShareTargetEpoch,
    StatefulPartitions,
    read_share_record,
    write_share_record,
)
from sparklog.core.errors import DataCorrupt

TOPIC = UUID("00112233-4455-6677-8899-aabbccddeeff")
OTHER = UUID("f0112233-4455-6677-8899-aabbccddeeff")
PARTS = frozenset({(TOPIC, 0), (TOPIC, 3)})
SPELLED_TOPIC = "00112233445566778899aabbccddeeff"
SPELLED_PARTS = f"02 {SPELLED_TOPIC} 03 00000000 00000003 00"
SPELLED_STATES = (
    f"02 {SPELLED_TOPIC} 0261 02 00000003 00 02 {SPELLED_TOPIC} 0261 02 00000000 00"
    " 02 f0112233445566778899aabbccddeeff 0262 00"
)
MEMBER = "000167 00016d"

GOLDEN: list[tuple[ShareRecord, str, str]] = [
    (
        ShareMemberRecord("g", "m", "r", "c", "/h", ("a", "b")),
        f"000a {MEMBER}",
        "0000 0272 0263 032f68 03 0261 0262 00",
    ),
    (
        ShareMemberRecord("g", "m", None, "c", "/h", ()),
        f"000a {MEMBER}",
        "0000 00 0263 032f68 01 00",
    ),
    (ShareGroupEpoch("g", 5, -2), "000b 000167", "0000 00000005 fffffffffffffffe 00"),
    (ShareTargetEpoch("g", 7), "000c 000167", "0000 00000007 00"),
    (
        ShareTargetEpoch("g", 7, 9),
        "000c 000167",
        "0000 00000007 01 00 08 0000000000000009",
    ),
    (ShareMemberTarget("g", "m", PARTS), f"000d {MEMBER}", f"0000 {SPELLED_PARTS} 00"),
    (
        ShareMemberAssignment("g", "m", 4, 3, PARTS),
        f"000e {MEMBER}",
        f"0000 00000004 00000003 00 {SPELLED_PARTS} 00",
    ),
    (
        StatefulPartitions(
            "g",
            initializing=frozenset({(TOPIC, 3)}),
            initialized=frozenset({(TOPIC, 0)}),
            deleting=frozenset({OTHER}),
            names={TOPIC: "a", OTHER: "b"},
        ),
        "000f 000167",
        f"0000 {SPELLED_STATES} 00",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_share_records_equal_kafkas_bytes(record: ShareRecord, key: str, value: str) -> None:
    stored = CoordinatorRecord(bytes.fromhex(key), bytes.fromhex(value))
    assert write_share_record(record) == stored
    assert read_share_record(stored) == record


@pytest.mark.parametrize(
    ("record", "key"),
    [
        (ShareMemberRecord("g", "m", gone=True), f"000a {MEMBER}"),
        (ShareGroupEpoch("g", None), "000b 000167"),
        (ShareTargetEpoch("g", None), "000c 000167"),
        (ShareMemberTarget("g", "m", None), f"000d {MEMBER}"),
        (ShareMemberAssignment("g", "m", gone=True), f"000e {MEMBER}"),
        (StatefulPartitions("g", gone=True), "000f 000167"),
    ],
)
def test_a_tombstone_has_only_a_key(record: ShareRecord, key: str) -> None:
    stored = CoordinatorRecord(bytes.fromhex(key), None)
    assert write_share_record(record) == stored
    assert read_share_record(stored) == record


def test_a_topic_without_a_name_has_kafkas_word_for_it() -> None:
    stored = write_share_record(StatefulPartitions("g", initialized=PARTS))
    found = read_share_record(stored)
    assert isinstance(found, StatefulPartitions)
    assert found.names == {TOPIC: "<UNKNOWN>"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("0003 000167", "0000 00000005 00"),
        ("000b 0001", "0000 00000005 0000000000000000 00"),
        ("000b 000167", "0001 00000005 0000000000000000 00"),
        ("000b 000167", "0000 00000005 0000000000000000 00 00"),
        (f"000e {MEMBER}", "0000 00000004 00000003 00 ff"),
        ("000f 000167", "0000 ffffffff0f"),
    ],
)
def test_other_bytes_are_no_record_of_a_share_group(key: str, value: str) -> None:
    with pytest.raises(DataCorrupt):
        read_share_record(CoordinatorRecord(bytes.fromhex(key), bytes.fromhex(value)))
