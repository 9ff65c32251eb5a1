"""The header of a record batch: decoding and rejecting."""

from __future__ import annotations

import struct

import pytest

from sparklog.core.errors import DataCorrupt
from sparklog.core.types import TimestampType
from sparklog.protocol.records.header import (
    BatchHeader,
    Codec,
    check_crc,
    increment_sequence,
    parse_header,
    whole_batch,
)
from tests.harness.golden_batches import data_of

DATA = data_of("mixed-none")


def with_field(position: int, layout: str, value: int) -> bytes:
    changed = bytearray(DATA)
    struct.pack_into(">" + layout, changed, position, value)
    return bytes(changed)


@pytest.mark.parametrize(
    ("position", "layout", "value", "reason"),
    [
        (0, "q", -1, "base offset is negative"),
        (0, "q", 2**63 - 3, "leads past the last offset"),
        (8, "i", 48, "length=48 is below the header"),
        (8, "i", -1, "length=-1 is below the header"),
        (8, "i", 2**31 - 1, "over the limit of a batch"),
        (16, "b", 1, "message set of magic 1 refused"),
        (16, "b", 3, "magic 3 is unknown"),
        (16, "b", -1, "magic -1 is unknown"),
        (21, "h", 5, "attributes=5: no codec"),
        (23, "i", -1, "last_offset_delta=-1 is negative"),
        (23, "i", 6, "record_count=8 exceeds last_offset_delta=6"),
        (43, "q", -2, "producer_id=-2"),
        (51, "h", -2, "producer_epoch=-2"),
        (53, "i", -2, "base_sequence=-2"),
        (57, "i", -1, "record_count=-1 is negative"),
        (57, "i", 9, "record_count=9 exceeds last_offset_delta=7"),
    ],
)
def test_inconsistent_header_is_rejected_with_a_reason(
    position: int, layout: str, value: int, reason: str
) -> None:
    with pytest.raises(DataCorrupt, match=reason):
        parse_header(with_field(position, layout, value))


@pytest.mark.parametrize("size", [0, 1, 16, 17, 60])
def test_truncated_header_is_rejected(size: int) -> None:
    with pytest.raises(DataCorrupt, match=f"cut short inside its header.*bytes={size} "):
        parse_header(DATA[:size])


def test_truncated_batch_is_rejected() -> None:
    header = parse_header(DATA)
    with pytest.raises(DataCorrupt, match="cut short"):
        whole_batch(DATA[:-1], header)
    with pytest.raises(DataCorrupt, match="cut short"):
        check_crc(DATA[:-1], header)


def test_checksum_detects_a_changed_byte() -> None:
    changed = bytearray(DATA)
    changed[-1] ^= 1
    with pytest.raises(DataCorrupt, match="fails its CRC-32C"):
        check_crc(changed, parse_header(changed))


def test_attribute_bits_are_decoded_one_by_one() -> None:
    plain = parse_header(DATA)
    for bits, field in ((0x10, "is_transactional"), (0x20, "is_control")):
        assert getattr(plain._replace(attributes=bits), field)
        assert not getattr(plain._replace(attributes=0xFF & ~bits), field)
    assert plain._replace(attributes=0x08).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert plain._replace(attributes=0xF7).timestamp_type is TimestampType.CREATE_TIME
    assert plain._replace(attributes=0x40).delete_horizon_ms == plain.base_timestamp
    assert plain._replace(attributes=0xBF).delete_horizon_ms is None
    assert [plain._replace(attributes=0x78 | codec).codec for codec in Codec] == list(Codec)


def test_unused_attribute_bits_are_kept() -> None:
    header = parse_header(with_field(21, "h", 0x4000))
    assert BatchHeader._make(header).to_bytes()[21:23] == b"\x40\x00"


def test_sequence_number_wraps_to_zero() -> None:
    assert increment_sequence(2**31 - 1, 1) == 0
    assert increment_sequence(2**31 - 2, 7) == 5
    assert increment_sequence(3, 4) == 7
    assert parse_header(DATA).last_sequence == -1
