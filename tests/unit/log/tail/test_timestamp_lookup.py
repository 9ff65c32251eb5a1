"""Records found by timestamp in one batch, with the values that decoding gives."""

from __future__ import annotations

import tracemalloc

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.core.types import TimestampType
from sparklog.log.tail.timestamp_lookup import first_since
from sparklog.protocol.records.columns import RECORDS_SCHEMA
from sparklog.protocol.records.header import HEADER_BYTES, parse_header, seal_header
from sparklog.protocol.records.record_batch import BatchSettings, Codec, decode, encode


def batch_of(timestamps: list[int], offsets: list[int], codec: Codec = Codec.NONE) -> bytes:
    rows = pa.RecordBatch.from_pydict(
        {
            "offset": offsets,
            "timestamp": pa.array(timestamps, pa.int64()).view(RECORDS_SCHEMA[1].type),
            "key": [None] * len(offsets),
            "value": [b"x" * 9] * len(offsets),
            "headers": [None] * len(offsets),
        },
        RECORDS_SCHEMA,
    )
    return bytes(encode(rows, BatchSettings(codec), base_offset=offsets[0]))


@given(
    st.lists(st.tuples(st.integers(-(2**62), 2**62), st.integers(1, 9)), min_size=1, max_size=20),
    st.integers(-(2**62), 2**62),
    st.sampled_from(list(Codec)),
)
def test_first_since_returns_the_record_that_decoding_gives(
    records: list[tuple[int, int]], wanted: int, codec: Codec
) -> None:
    offsets = [sum(step for _, step in records[: n + 1]) for n in range(len(records))]
    data = batch_of([ms for ms, _ in records], offsets, codec)
    rows = decode(data).records
    times = rows.column("timestamp").view(pa.int64()).to_pylist()
    pairs = zip(rows.column("offset").to_pylist(), times, strict=True)
    expected = next(((offset, ms) for offset, ms in pairs if ms >= wanted), None)
    found = first_since(data, wanted)
    assert (found and found[:2]) == expected


@given(st.binary(max_size=60), st.integers(0, 5), st.integers(-5, 5))
def test_first_since_returns_on_any_records(records: bytes, count: int, wanted: int) -> None:
    header = parse_header(batch_of([1, 2], [0, 1]))._replace(
        record_count=count, last_offset_delta=max(count - 1, 0)
    )
    data = seal_header(header, records) + records
    found = first_since(data, wanted)
    assert found is None or found.timestamp_ms >= wanted


def test_first_since_returns_the_append_time_of_a_batch_that_has_one() -> None:
    data = batch_of([1, 9], [5, 6])
    header = parse_header(data)
    attributes = header.attributes | 8
    records = data[HEADER_BYTES:]
    stamped = (
        seal_header(header._replace(attributes=attributes, max_timestamp=50), records) + records
    )
    assert parse_header(stamped).timestamp_type is TimestampType.LOG_APPEND_TIME
    found = first_since(stamped, 40)
    assert found is not None
    assert found[:2] == (5, 50)
    assert first_since(stamped, 51) is None


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.LZ4])
def test_first_since_keeps_no_columns_of_the_records(codec: Codec) -> None:
    rows = 200_000
    data = batch_of(list(range(rows)), list(range(rows)), codec)
    first_since(data, 0)  # loads the kernel
    tracemalloc.start()
    found = first_since(data, rows - 1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found is not None
    assert found.offset == rows - 1
    assert peak < 2 * 18 * rows, "the decompressed records alone"
