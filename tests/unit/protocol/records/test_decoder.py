"""Decoding of one batch to Arrow rows: rejected bytes, and accepted quirks of other clients."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sparklog.core.errors import DataCorrupt
from sparklog.protocol.records.columns import RECORDS_SCHEMA
from sparklog.protocol.records.header import HEADER_BYTES, BatchHeader, parse_header, seal_header
from sparklog.protocol.records.record_batch import BatchSettings, Codec, decode, encode
from tests.harness.golden_batches import data_of

ONE = bytes([12, 0, 0, 0, 1, 1, 0])
"""The shortest record: offset delta 0, key and value null."""


def batch_of(records: bytes, count: int, last_offset_delta: int | None = None) -> bytes:
    """Return a batch with a valid checksum around any bytes."""
    delta = max(0, count - 1) if last_offset_delta is None else last_offset_delta
    header = BatchHeader(100, 0, 0, 2, 0, 0, delta, 1_000, 1_000, -1, -1, -1, count)
    return seal_header(header, records) + records


def record(*fields: int | bytes) -> bytes:
    """Return a record of single-byte numbers (zigzag) and raw bytes, with its length."""
    body = b"\x00" + b"".join(
        one if isinstance(one, bytes) else bytes([2 * one if one >= 0 else -2 * one - 1])
        for one in fields
    )
    return bytes([len(body) << 1]) + body


def test_shortest_record_is_decoded() -> None:
    assert record(0, 0, -1, -1, 0) == ONE
    (row,) = decode(batch_of(ONE, 1)).records.drop_columns(["timestamp"]).to_pylist()
    assert row == {"offset": 100, "key": None, "value": None, "headers": None}


def test_decoded_columns_have_the_schemas_types() -> None:
    for name in ("mixed-none", "one-record", "empty"):
        assert decode(data_of(name)).records.schema == RECORDS_SCHEMA


@pytest.mark.parametrize(
    ("records", "count", "reason"),
    [
        (b"", 1, "fewer records than its header says"),
        (ONE, 2, "fewer records than its header says"),
        (ONE[:-1] + ONE, 2, "fewer records than its header says"),
        (ONE + b"\x00", 1, "bytes are left over"),
        (ONE, 0, "bytes are left over"),
        (b"\x80" * 7, 1, "a number is longer than its type"),
        (b"\x80" * 4 + b"\x01" + bytes(9), 1, "a record's length is not that of its fields"),
        (b"\x00" + ONE, 1, "a record's length is not that of its fields"),
        (b"\x01" + ONE, 1, "a record's length is not that of its fields"),
        (b"\x10" + ONE[1:], 1, "a record's length is not that of its fields"),
        (b"\x0e" + ONE[1:] + b"\x00", 1, "a record's length is not that of its fields"),
        (b"\x0a" + ONE[1:], 1, "a record runs past its end"),
        (record(0, 0, 5, b"abc", -1, 0), 1, "a record runs past its end"),
        (record(0, 0, -1, 60, b"abc", 0), 1, "a record runs past its end"),
        (record(b"\xff" * 10 + b"\x00", 0, -1, -1, 0), 1, "a number is longer than its type"),
        (record(0, b"\xff" * 5 + b"\x00", -1, -1, 0), 1, "a number is longer than its type"),
        (record(0, 0, -1, -1, -1), 1, "a header count cannot be right"),
        (record(0, 0, -1, -1, 1), 1, "a header count cannot be right"),
        (record(0, 0, -1, -1, 2, 0, 0, 0), 1, "a header count cannot be right"),
        (record(0, 0, -1, -1, 1, -1, -1), 1, "a header has no key"),
        (record(0, 0, -1, -1, 1, 3, b"ab"), 1, "a record runs past its end"),
        (record(0, 0, -1, -1, 1, 1, b"a", 3, b"ab"), 1, "a record runs past its end"),
        (record(0, 0, -1, -1, 1, 0, -1, 0), 1, "a record's length is not that of its fields"),
    ],
)
def test_malformed_records_are_rejected_with_a_reason(
    records: bytes, count: int, reason: str
) -> None:
    with pytest.raises(DataCorrupt, match=reason):
        decode(batch_of(records, count))


def with_a_gap(records: bytes, count: int) -> bytes:
    """Return a batch with one offset more than it has records, as compaction leaves it."""
    data = batch_of(records, count)
    header = parse_header(data)._replace(last_offset_delta=count)
    return seal_header(header, records) + records


@pytest.mark.parametrize(
    ("records", "count"),
    [
        (record(0, 2, -1, -1, 0), 1),
        (record(0, -1, -1, -1, 0), 1),
        (ONE + ONE, 2),
        (record(0, 1, -1, -1, 0) + ONE, 2),
    ],
)
def test_offset_deltas_must_rise_when_a_batch_has_gaps(records: bytes, count: int) -> None:
    with pytest.raises(DataCorrupt, match="an offset delta does not rise, or passes"):
        decode(with_a_gap(records, count))


def test_records_are_numbered_by_index_when_a_batch_has_no_gap() -> None:
    records = record(0, 1, -1, -1, 0) + record(0, 2, -1, -1, 0) + record(0, 3, -1, -1, 0)
    rows = decode(batch_of(records, 3)).records
    assert rows.column("offset").to_pylist() == [100, 101, 102]


def test_decode_error_names_the_record() -> None:
    records = ONE + record(0, 1, -1, -1, 0) + record(0, 1, -1, -1, 0)
    with pytest.raises(DataCorrupt, match="base_offset=100 record=2 record_count=3"):
        decode(with_a_gap(records, 3))


def test_huge_record_count_costs_no_memory() -> None:
    with pytest.raises(DataCorrupt, match=r"record_count=2147483647 bytes=7"):
        decode(batch_of(ONE, 2**31 - 1))


def test_negative_length_is_a_null_as_in_java() -> None:
    (row,) = decode(batch_of(record(0, 0, -2, -60, 0), 1)).records.to_pylist()
    assert (row["key"], row["value"]) == (None, None)


def test_header_keys_that_are_not_utf8_keep_their_bytes() -> None:
    records = record(0, 0, -1, -1, 2, 3, b"a\xffb", 1, b"x", 2, "é".encode(), -1)
    batch = decode(batch_of(records, 1)).records
    assert encode(batch, BatchSettings(), base_offset=100)[HEADER_BYTES:] == records
    batch.validate(full=True)
    assert batch.column("headers").to_pylist() == [
        [{"key": "\ufffdbase64:Yf9i", "value": b"x"}, {"key": "é", "value": None}]
    ]


def test_bytes_after_the_batch_are_rejected() -> None:
    with pytest.raises(DataCorrupt, match=r"bytes follow the record batch.*extra_bytes=1$"):
        decode(data_of("one-record") + b"x")


def test_wrong_checksum_is_rejected_unless_already_verified() -> None:
    changed = bytearray(data_of("one-record"))
    changed[17] ^= 1
    with pytest.raises(DataCorrupt, match="fails its CRC-32C"):
        decode(changed)
    assert decode(changed, verify_crc=False).records.num_rows == 1


def test_batch_is_rejected_when_it_decompresses_over_the_limit() -> None:
    data = data_of("blocks-zstd")
    assert decode(data, max_decompressed_bytes=303_045).records.num_rows == 3
    with pytest.raises(DataCorrupt, match="more than the bound"):
        decode(data, max_decompressed_bytes=303_044)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_records_of_another_codec_are_rejected(codec: Codec) -> None:
    header = parse_header(data_of("one-record"))._replace(attributes=int(codec))
    records = data_of("one-record")[HEADER_BYTES:]
    with pytest.raises(DataCorrupt, match=f"not valid {codec.name.lower()}"):
        decode(seal_header(header, records) + records)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, pa.py_buffer])
def test_any_buffer_type_is_decoded_and_arrays_outlive_it(kind: type) -> None:
    data = bytearray(data_of("mixed-none"))
    wanted = decode(bytes(data)).records.to_pylist()
    found = decode(kind(data)).records
    data[:] = bytes(len(data))
    assert found.to_pylist() == wanted
