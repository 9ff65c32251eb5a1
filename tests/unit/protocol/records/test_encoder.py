"""Encoding of Arrow rows to batches: shapes of columns, limits, and splitting."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from sparklog.core.errors import DataCorrupt, InvalidRequest, RecordTooLarge
from sparklog.core.types import TimestampType
from sparklog.protocol.records.columns import HEADERS_TYPE, RECORDS_SCHEMA, TIMESTAMP_TYPE
from sparklog.protocol.records.header import HEADER_BYTES, parse_header
from sparklog.protocol.records.record_batch import (
    PLAIN,
    BatchSettings,
    Codec,
    DecodedBatch,
    decode,
    encode,
    encode_many,
)

T = 1_700_000_000_000
APPEND_TIME = replace(PLAIN, timestamp_type=TimestampType.LOG_APPEND_TIME)


def rows_of(*rows: dict[str, Any]) -> pa.RecordBatch:
    """Build a batch with the columns that the first row names."""
    schema = pa.schema([RECORDS_SCHEMA.field(name) for name in rows[0]])
    return pa.RecordBatch.from_pylist(list(rows), schema)


def numbered(count: int, value_bytes: int = 10) -> pa.RecordBatch:
    """Build `count` rows whose values have their row numbers."""
    return rows_of(
        *(
            {"timestamp": T + i, "key": b"%d" % i, "value": b"%d" % i * value_bytes}
            for i in range(count)
        )
    )


def values(batches: list[DecodedBatch]) -> list[bytes | None]:
    """Return the values of all batches in order."""
    return [value for one in batches for value in one.records.column("value").to_pylist()]


def timestamps(batch: DecodedBatch) -> list[int]:
    """Return a batch's timestamps in milliseconds."""
    return list(batch.records.column("timestamp").cast(pa.int64()).to_pylist())


def test_any_column_may_be_left_out() -> None:
    batch = decode(encode(rows_of({"value": b"a"}, {"value": b"b"}), base_offset=3))
    assert timestamps(batch) == [-1, -1]
    assert batch.records.drop_columns(["timestamp"]).to_pylist() == [
        {"offset": 3, "key": None, "value": b"a", "headers": None},
        {"offset": 4, "key": None, "value": b"b", "headers": None},
    ]


def test_columns_of_the_null_type_are_null() -> None:
    rows = pa.RecordBatch.from_arrays([pa.nulls(2)] * 4, ["timestamp", "key", "value", "headers"])
    found = decode(encode(rows, base_offset=0)).records
    assert [found.column(name).null_count for name in ("key", "value", "headers")] == [2, 2, 2]


def test_slices_with_nulls_are_encoded_from_their_first_row() -> None:
    headers = [None, [], [("h", b"1"), ("h", None)], None, [("", b"")], [("x", b"y" * 200)]] * 5
    rows = rows_of(
        *(
            {
                "timestamp": None if i % 7 == 3 else T + i,
                "key": None if i % 3 == 0 else b"k%d" % i,
                "value": None if i % 4 == 1 else b"v" * i,
                "headers": None if h is None else [{"key": k, "value": v} for k, v in h],
            }
            for i, h in enumerate(headers)
        )
    )
    whole = decode(encode(rows, base_offset=0)).records
    for start in range(0, 30, 5):
        for length in (1, 2, 9, 30 - start):
            part = rows.slice(start, length)
            found = decode(encode(part, base_offset=start)).records
            assert found == whole.slice(start, length)


def test_null_header_lists_are_encoded_without_hidden_values() -> None:
    """A null list may span entries of the child array; Arrow allows it; they are not encoded."""
    children = pa.array(
        [{"key": f"h{i}", "value": b"%d" % i} for i in range(4)], HEADERS_TYPE.value_type
    )
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 3, 4], pa.int32()),
        children,
        type=HEADERS_TYPE,
        mask=pa.array([False, True, False]),
    )
    rows = pa.RecordBatch.from_arrays([lists], ["headers"])
    found = decode(encode(rows, base_offset=0)).records.column("headers").to_pylist()
    assert found == [[{"key": "h0", "value": b"0"}], None, [{"key": "h3", "value": b"3"}]]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view(), pa.binary(2)]
)
def test_other_byte_types_are_encoded_alike(kind: pa.DataType) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([b"ab", None], pa.binary()).cast(kind)], ["value"])
    assert values([decode(encode(rows, base_offset=0))]) == [b"ab", None]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_timestamps_of_any_unit_are_encoded_in_milliseconds(unit: str, zone: str) -> None:
    array = pa.array([1, None, 3], pa.timestamp("s", zone)).cast(pa.timestamp(unit, zone))
    batch = decode(encode(pa.RecordBatch.from_arrays([array], ["timestamp"]), base_offset=0))
    assert timestamps(batch) == [1000, -1, 3000]
    assert batch.records.schema.field("timestamp").type == TIMESTAMP_TYPE


@pytest.mark.parametrize(
    ("name", "column", "reason"),
    [
        ("Value", [b"a"], r"need the columns offset, timestamp.*columns=\['Value'\]"),
        ("value", [1], r"value must be binary or string.*type=int64"),
        ("key", [["a"]], r"key must be binary or string"),
        ("timestamp", [5], r"timestamp must be a timestamp"),
        ("headers", ["a"], r"headers must be a list of structs"),
        ("headers", [["a"]], r"headers must be a list of structs"),
        ("headers", [[{"key": "a"}]], r"headers must be a list of structs"),
        ("headers", [[None, {"key": "a", "value": b""}]], r"null or has no key.*null_headers=1"),
        ("headers", [[{"key": None, "value": b""}]], r"null or has no key.*null_keys=1"),
        ("offset", [None], r"offset must be int64 without nulls"),
        ("offset", ["a"], r"offset must be int64 without nulls"),
    ],
)
def test_columns_outside_the_schema_are_rejected(name: str, column: list[Any], reason: str) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array(column)], [name])
    with pytest.raises(InvalidRequest, match=reason):
        encode(rows, base_offset=0)


def test_duplicate_column_is_rejected() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([b"a"])] * 2, ["value", "value"])
    with pytest.raises(InvalidRequest, match="at most once"):
        encode(rows, base_offset=0)


@pytest.mark.parametrize("column", ["key", "value"])
def test_arrow_offsets_outside_the_data_are_corrupt(column: str) -> None:
    for ends in ([0, 900, 4], [0, -5, 4], [3, 1, 4]):
        buffers = [None, pa.array(ends, pa.int32()).buffers()[1], pa.py_buffer(b"abcd")]
        bad = pa.Array.from_buffers(pa.binary(), 2, buffers)
        with pytest.raises(DataCorrupt, match="offsets lead outside its data"):
            encode(pa.RecordBatch.from_arrays([bad], [column]), base_offset=0)


def test_offset_gaps_are_kept_also_at_both_ends() -> None:
    rows = rows_of({"offset": 12, "value": b"a"}, {"offset": 40, "value": b"b"})
    data = encode(rows, base_offset=10, last_offset=45)
    header = parse_header(data)
    assert (header.base_offset, header.last_offset, header.record_count) == (10, 45, 2)
    assert decode(data).records.column("offset").to_pylist() == [12, 40]


@pytest.mark.parametrize("offsets", [[5, 5], [6, 5], [9, 8], [4, 6]])
def test_offsets_must_rise_from_the_base(offsets: list[int]) -> None:
    rows = rows_of(*({"offset": offset, "value": b""} for offset in offsets))
    with pytest.raises(InvalidRequest, match="offsets must rise"):
        encode(rows, base_offset=5)


@pytest.mark.parametrize("last_offset", [6, -1, 5 + 2**31])
def test_impossible_last_offset_is_rejected(last_offset: int) -> None:
    with pytest.raises(InvalidRequest, match="last_offset is out of range"):
        encode(numbered(3), base_offset=5, last_offset=last_offset)


@pytest.mark.parametrize("base_offset", [-1, 2**63 - 3, 2**63])
def test_too_high_base_offset_is_rejected(base_offset: int) -> None:
    with pytest.raises(InvalidRequest, match="base_offset leaves no room"):
        encode(numbered(3), base_offset=base_offset)


def test_highest_offsets_are_encoded() -> None:
    found = decode(encode(numbered(3), base_offset=2**63 - 5)).records
    assert found.column("offset").to_pylist()[-1] == 2**63 - 3


def test_offsets_too_far_apart_are_split_into_two_batches() -> None:
    rows = rows_of(*({"offset": offset, "value": b""} for offset in (0, 2**31 - 1, 2**31)))
    with pytest.raises(InvalidRequest, match=r"too far apart for one batch.*row=2"):
        encode(rows, base_offset=0)
    headers = [parse_header(b) for b in encode_many(rows, base_offset=0, max_batch_bytes=1000)]
    assert [(h.base_offset, h.last_offset) for h in headers] == [(0, 2**31 - 1), (2**31, 2**31)]


def test_base_offset_moves_when_the_first_offset_is_too_far() -> None:
    rows = rows_of({"offset": 2**31 + 5, "value": b"a"}, {"offset": 2**31 + 9, "value": b"b"})
    with pytest.raises(InvalidRequest, match=r"too far apart for one batch.*row=0"):
        encode(rows, base_offset=5)
    settings = BatchSettings(producer_id=1, producer_epoch=0, base_sequence=0)
    (data,) = encode_many(rows, settings, base_offset=5, max_batch_bytes=1000)
    header = parse_header(data)
    assert (header.base_offset, header.last_offset) == (2**31 + 5, 2**31 + 9)
    assert header.base_sequence == 0  # 2**31 further on, sequence numbers have wrapped


def test_empty_batch_keeps_offsets_and_producer() -> None:
    settings = BatchSettings(producer_id=5, producer_epoch=1, base_sequence=44)
    nothing = numbered(1).slice(0, 0)
    data = encode(nothing, settings, base_offset=3_000, last_offset=3_009)
    header = parse_header(data)
    assert (len(data), header.record_count, header.last_offset) == (HEADER_BYTES, 0, 3_009)
    assert (header.producer_id, header.last_sequence) == (5, 53)
    assert decode(data).records.num_rows == 0
    with pytest.raises(InvalidRequest, match="needs a last_offset"):
        encode(nothing, settings, base_offset=3_000)
    assert list(encode_many(nothing, base_offset=0, max_batch_bytes=1000)) == []


def test_empty_batch_may_have_a_codec() -> None:
    for codec in Codec:
        data = encode(
            numbered(1).slice(0, 0), BatchSettings(codec=codec), base_offset=0, last_offset=0
        )
        assert decode(data).records.num_rows == 0


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"producer_id": -2}, "producer_id is out of range"),
        ({"producer_epoch": 2**15}, "producer_epoch is out of range"),
        ({"base_sequence": 2**31}, "base_sequence is out of range"),
        ({"leader_epoch": 2**31}, "leader_epoch is out of range"),
        ({"is_transactional": True}, "needs a producer id"),
    ],
)
def test_settings_outside_the_headers_range_are_rejected(
    settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        BatchSettings(**settings)


def test_log_append_time_needs_rows_of_one_timestamp() -> None:
    rows = rows_of(*({"timestamp": t, "value": b""} for t in (5, 5, 6)))
    with pytest.raises(InvalidRequest, match=r"one timestamp.*row=2"):
        encode(rows, APPEND_TIME, base_offset=0)
    batches = [
        decode(b) for b in encode_many(rows, APPEND_TIME, base_offset=0, max_batch_bytes=999)
    ]
    assert [timestamps(one) for one in batches] == [[5, 5], [6]]
    assert [one.header.max_timestamp for one in batches] == [5, 6]


def test_max_timestamp_is_that_of_the_latest_record() -> None:
    rows = rows_of(*({"timestamp": t, "value": b""} for t in (T, T + 9, T - 9)))
    header = parse_header(encode(rows, base_offset=0))
    assert (header.base_timestamp, header.max_timestamp) == (T, T + 9)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("limit", [150, 1_000, 7_777, 10**6])
def test_splitting_keeps_every_record_and_the_limit(codec: Codec, limit: int) -> None:
    rows = numbered(500)
    settings = BatchSettings(codec, producer_id=3, producer_epoch=0, base_sequence=2**31 - 5)
    data = list(encode_many(rows, settings, base_offset=70, max_batch_bytes=limit))
    assert max(map(len, data)) <= limit
    batches = [decode(one) for one in data]
    assert values(batches) == rows.column("value").to_pylist()
    offset, sequence = 70, 2**31 - 5
    for one in batches:
        assert (one.header.base_offset, one.header.base_sequence) == (offset, sequence)
        offset = one.header.end_offset
        sequence = (sequence + one.header.record_count) % 2**31
    assert offset == 570


def test_splitting_is_greedy() -> None:
    rows = numbered(500)
    data = list(encode_many(rows, base_offset=0, max_batch_bytes=1_000))
    for one, following in pairwise(data):
        first = decode(following).records.slice(0, 1)
        longer = pa.Table.from_batches([decode(one).records, first]).combine_chunks()
        base_offset = parse_header(one).base_offset
        assert len(encode(longer.to_batches()[0], base_offset=base_offset)) > 1_000


def test_splitting_keeps_offset_gaps() -> None:
    rows = rows_of(*({"offset": 7 * i + 3, "value": bytes(50)} for i in range(100)))
    batches = [decode(b) for b in encode_many(rows, base_offset=0, max_batch_bytes=500)]
    assert len(batches) > 10
    found = [offset for one in batches for offset in one.records.column("offset").to_pylist()]
    assert found == [7 * i + 3 for i in range(100)]
    assert [one.header.base_offset for one in batches[1:]] == [
        one.records.column("offset")[0].as_py() for one in batches[1:]
    ]


def test_record_over_the_limit_is_rejected_by_row() -> None:
    rows = rows_of({"value": b"a"}, {"value": bytes(5_000)}, {"value": b"b"})
    with pytest.raises(RecordTooLarge, match=r"row=1 batch_bytes=50\d\d max.message.bytes=1000"):
        list(encode_many(rows, base_offset=0, max_batch_bytes=1_000))


def test_record_over_the_limit_is_encoded_when_it_compresses() -> None:
    rows = rows_of({"value": b"a"}, {"value": bytes(50_000)}, {"value": b"b"})
    settings = BatchSettings(Codec.ZSTD)
    data = list(encode_many(rows, settings, base_offset=0, max_batch_bytes=1_000))
    assert values([decode(one) for one in data]) == rows.column("value").to_pylist()
    assert max(map(len, data)) <= 1_000


def test_batch_is_uncompressed_when_compression_makes_it_larger() -> None:
    rows = rows_of({"value": bytes(range(256))})
    limit = len(encode(rows, base_offset=0))
    (data,) = encode_many(rows, BatchSettings(Codec.GZIP), base_offset=0, max_batch_bytes=limit)
    assert parse_header(data).codec is Codec.NONE


def test_deltas_count_from_the_delete_horizon() -> None:
    settings = BatchSettings(delete_horizon_ms=T + 86_400_000)
    batch = decode(encode(numbered(3), settings, base_offset=0))
    assert batch.header.delete_horizon_ms == T + 86_400_000
    assert timestamps(batch) == [T, T + 1, T + 2]
