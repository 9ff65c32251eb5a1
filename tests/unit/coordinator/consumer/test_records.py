"""Records of consumer groups: Kafka's bytes, and rejection of all others."""

from __future__ import annotations

from uuid import UUID

import pytest

from sparklog.coordinator.consumer.messages import ClassicMember
from sparklog.coordinator.consumer.records import (
    ConsumerRecord,
    GroupEpoch,
    MemberAssignment,
    MemberRecord,
    MemberState,
    MemberTarget,
    OldRecord,
    ResolvedPattern,
    TargetEpoch,
    read_record,
    write_record,
)
from sparklog.coordinator.effects import CoordinatorRecord
from sparklog.core.errors import DataCorrupt

TOPIC = UUID("00112233-4455-6677-8899-aabbccddeeff")
PARTS = frozenset({(TOPIC, 0), (TOPIC, 3)})
SPELLED_TOPIC = "00112233445566778899aabbccddeeff 03 00000000 00000003"
SPELLED_PARTS = f"02 {SPELLED_TOPIC} 00"
MEMBER = "000167 00016d"

CLASSIC = "01 0000afc8 02 0672616e6765 0300ff 00 00"

GOLDEN: list[tuple[ConsumerRecord, str, str]] = [
    (GroupEpoch("g", 5), "0003 000167", "0000 00000005 00"),
    (GroupEpoch("g", 5, -2), "0003 000167", "0000 00000005 01 00 08 fffffffffffffffe"),
    (
        MemberRecord("g", "m", None, "r", "c", "/h", ("a", "b"), "a.*", 1000, "range"),
        f"0005 {MEMBER}",
        "0000 00 0272 0263 032f68 03 0261 0262 04612e2a 000003e8 0672616e6765 00",
    ),
    (
        MemberRecord(
            "g",
            "m",
            "i",
            None,
            "c",
            "/h",
            ("a",),
            classic=ClassicMember(45_000, (("range", bytes.fromhex("00ff")),)),
        ),
        f"0005 {MEMBER}",
        f"0000 0269 00 0263 032f68 02 0261 00 ffffffff 00 01 00 11 {CLASSIC}",
    ),
    (TargetEpoch("g", 7), "0006 000167", "0000 00000007 00"),
    (MemberTarget("g", "m", PARTS), f"0007 {MEMBER}", f"0000 {SPELLED_PARTS} 00"),
    (
        MemberAssignment(
            "g", "m", 4, 3, MemberState.UNRELEASED_PARTITIONS, PARTS, since={(TOPIC, 3): 2}
        ),
        f"0008 {MEMBER}",
        f"0000 00000004 00000003 02 02 {SPELLED_TOPIC} 01 00 09 03 00000004 00000002 01 00",
    ),
    (
        ResolvedPattern("g", "a.*", frozenset({"ab", "ac"}), 9, 8),
        "0010 000167 0003612e2a",
        "0000 03 036162 036163 0000000000000009 0000000000000008 00",
    ),
]


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN)
def test_consumer_records_equal_kafkas_bytes(record: ConsumerRecord, key: str, value: str) -> None:
    stored = CoordinatorRecord(bytes.fromhex(key), bytes.fromhex(value))
    assert write_record(record) == stored
    assert read_record(stored) == record


@pytest.mark.parametrize(
    "record",
    [
        GroupEpoch("g", None),
        MemberRecord("g", "m", gone=True),
        TargetEpoch("g", None),
        MemberTarget("g", "m", None),
        MemberAssignment("g", "m", gone=True),
        ResolvedPattern("g", "p", None),
    ],
)
def test_tombstones_round_trip(record: ConsumerRecord) -> None:
    stored = write_record(record)
    assert stored.value is None
    assert read_record(stored) == record


@pytest.mark.parametrize(
    ("epoch", "told", "since"),
    [
        (4, "00", 4),  # before Kafka 4.3
        (4, "01 00 01 00", 4),
        (-2, "00", 0),
        (4, "01 00 05 02 00000001", 4),
        (4, "02 00 09 03 00000001 00000001 07 01 ff", 1),
    ],
)
def test_missing_partition_epochs_default_to_the_member_epoch(
    epoch: int, told: str, since: int
) -> None:
    number = epoch.to_bytes(4, "big", signed=True).hex()
    value = f"0000 {number} 00000003 00 02 {SPELLED_TOPIC} {told} 01 00"
    found = read_record(CoordinatorRecord(bytes.fromhex(f"0008 {MEMBER}"), bytes.fromhex(value)))
    assert isinstance(found, MemberAssignment)
    assert found.since == dict.fromkeys(PARTS, since)


def test_records_before_kafka_4_are_skipped() -> None:
    old = CoordinatorRecord(bytes.fromhex("0004 000167"), b"?")
    assert read_record(old) == OldRecord("g")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("0003 000167", "0001 00000005 00"),
        ("0003 000167 00", "0000 00000005 00"),
        ("0003", "0000 00000005 00"),
        ("0009 000167", "0000 00000005 00"),
        (f"0007 {MEMBER}", "0000 ffffffff07"),
        (f"0008 {MEMBER}", "0000 00000004 00000003 63 01 01 00"),
    ],
)
def test_malformed_consumer_record_is_rejected(key: str, value: str) -> None:
    with pytest.raises(DataCorrupt):
        read_record(CoordinatorRecord(bytes.fromhex(key), bytes.fromhex(value)))
