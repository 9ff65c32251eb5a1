"""Buffers of a record batch: laid out as Arrow does, compressed where that pays, else raw."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.log.schema import HEADERS, TIMESTAMP
from sparklog.log.segment.arrow_ipc import batch_message
from sparklog.log.segment.file import (
    LZ4_WINDOW_BYTES,
    SAMPLED_BYTES_MIN,
    SPOT_BYTES,
    finish_file,
    packed_smaller,
    write_stream,
)

MIB = 1 << 20
LZ4 = pa.Codec("lz4")
TEXT = b"2026-01-01 INFO a line of a log that says much the same as the line before "


def noise(size_bytes: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size_bytes)


NOISE = noise(MIB)


def letters(size_bytes: int) -> bytes:
    return bytes(65 + byte % 26 for byte in noise(size_bytes))


def text(size_bytes: int) -> bytes:
    return (TEXT * (size_bytes // len(TEXT) + 1))[:size_bytes]


def stored_bytes(data: bytes, codec: pa.Codec) -> int:
    packed = packed_smaller(pa.py_buffer(data), codec)
    if packed is None:
        return len(data)
    assert codec.decompress(packed, len(data), asbytes=True) == data
    return int(packed.size)


_COLUMNS = st.fixed_dictionaries(
    {
        "offset": st.integers(0, 2**62),
        "timestamp": st.none() | st.integers(0, 2**40),
        "flag": st.none() | st.booleans(),
        "number": st.none() | st.integers(-(2**31), 2**31 - 1),
        "key": st.none() | st.binary(max_size=20),
        "text": st.none() | st.text(max_size=5) | st.just("again " * 40),
        "value": st.none() | st.binary(max_size=300) | st.just(TEXT),
        "headers": st.none()
        | st.lists(
            st.fixed_dictionaries(
                {"key": st.text(max_size=3), "value": st.none() | st.binary(max_size=9)}
            ),
            max_size=2,
        ),
    }
)
_SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", TIMESTAMP),
        pa.field("flag", pa.bool_()),
        pa.field("number", pa.int32()),
        pa.field("key", pa.binary()),
        pa.field("text", pa.string()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)


def without_spare_bits(data: bytes, rows: int) -> bytes:
    """Clear the bits behind the last row if `data` has a bitmap's length: Arrow may set them."""
    if len(data) != (rows + 7) // 8:
        return bytes(data)
    return bytes(data[:-1]) + bytes([data[-1] & 0xFF >> -rows % 8])


@given(
    st.lists(_COLUMNS, min_size=1, max_size=30), st.sampled_from(["none", "lz4", "zstd"]), st.data()
)
def test_arrow_reads_any_slices_as_if_it_had_written_them(
    records: list[dict[str, object]], codec: str, data: st.DataObject
) -> None:
    whole = pa.RecordBatch.from_pylist(records, _SCHEMA)
    cuts = data.draw(
        st.lists(st.tuples(st.integers(0, len(records) - 1), st.integers(1, 30)), max_size=4)
    )
    slices = [whole.slice(low, count) for low, count in cuts]
    part = write_stream(_SCHEMA, slices, codec)
    read = pa.ipc.open_file(pa.py_buffer(finish_file(part, {}))).read_all()
    read.validate(full=True)
    assert read.equals(pa.Table.from_batches(slices, _SCHEMA))
    view = memoryview(part.data).cast("B")
    for stored, rows in zip(part.batches, slices, strict=True):
        mine = batch_message(view, stored.position)
        message = memoryview(rows.serialize()).cast("B")
        theirs = batch_message(message, 0)
        assert mine.nodes == theirs.nodes
        for (at, size), (plain_at, plain_size) in zip(mine.buffers, theirs.buffers, strict=True):
            own = plain(view[mine.body + at :][:size], codec)
            assert size <= len(own) + 8
            arrows = message[theirs.body + plain_at :][:plain_size].tobytes()[: len(own)]
            assert without_spare_bits(own, len(rows)) == without_spare_bits(arrows, len(rows))


@pytest.mark.parametrize("rows", range(1, 9))
def test_stream_holds_no_bits_of_rows_after_a_slice(rows: int) -> None:
    schema = pa.schema([pa.field("value", pa.binary())])
    nulls_first = pa.RecordBatch.from_pylist([{"value": None}] * 9 + [{"value": b""}] * 9, schema)
    part = write_stream(schema, [nulls_first.slice(8, rows)], "lz4")
    view = memoryview(part.data).cast("B")
    found = batch_message(view, part.batches[0].position)
    at, size = found.buffers[0]
    bits = plain(view[found.body + at :][:size], "lz4")
    assert int.from_bytes(bits, "little") == (1 << rows) - 2


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("columns", [["offset"], _SCHEMA.names])
def test_a_batch_without_rows_is_read(codec: str, columns: list[str]) -> None:
    rows = pa.RecordBatch.from_pylist([], _SCHEMA).select(columns)
    file = finish_file(write_stream(rows.schema, [rows], codec), {})
    read = pa.ipc.open_file(pa.py_buffer(file)).read_all()
    read.validate(full=True)
    assert read.equals(pa.Table.from_batches([rows]))


def plain(stored: memoryview, codec: str) -> bytes:
    """Return the bytes of a stored buffer."""
    if codec == "none" or not stored:
        return stored.tobytes()
    size = int.from_bytes(stored[:8], "little", signed=True)
    if size == -1:
        return stored[8:].tobytes()
    return bytes(pa.Codec(codec).decompress(stored[8:], size, asbytes=True))


@dataclass
class Counting:
    """LZ4 that counts what it is given."""

    name: str = "lz4"
    given: int = 0

    def compress(self, data: pa.Buffer | bytes, *, asbytes: bool) -> pa.Buffer:
        self.given += len(data)
        return LZ4.compress(data, asbytes=asbytes)


@pytest.mark.parametrize("make", [noise, letters])
@pytest.mark.parametrize("size_bytes", [SAMPLED_BYTES_MIN, MIB - 1, MIB, 5 * MIB])
def test_incompressible_data_is_compressed_only_in_samples(
    make: Callable[[int], bytes], size_bytes: int
) -> None:
    codec = Counting()
    assert packed_smaller(pa.py_buffer(make(size_bytes)), codec) is None
    assert codec.given <= max(size_bytes // 6, SAMPLED_BYTES_MIN * 17 // 32)


def test_batches_turn_from_noise_to_text_and_back() -> None:
    values = [noise(MIB, 1), noise(MIB, 2), text(MIB), text(MIB), noise(MIB, 3), noise(MIB, 4)]
    schema = pa.schema([pa.field("value", pa.binary())])
    batches = [pa.RecordBatch.from_arrays([pa.array([v])], schema=schema) for v in values]
    part = write_stream(schema, batches, "lz4")
    sizes = [stored.body_length for stored in part.batches]
    assert [size < MIB // 10 for size in sizes] == [value == text(MIB) for value in values]
    assert max(sizes) < MIB + 100
    read = pa.ipc.open_file(pa.py_buffer(finish_file(part, {}))).read_all()
    assert read.column("value").to_pylist() == values


@given(st.integers(0, MIB), st.integers(1, 20))
def test_a_stretch_of_text_in_noise_is_seen_wherever_it_lies(at: int, mark: int) -> None:
    stretch = text(LZ4_WINDOW_BYTES + SPOT_BYTES)
    data = NOISE[:at] + stretch + NOISE[at:]
    data = data[mark:]
    assert stored_bytes(data, LZ4) < len(data) - len(stretch) * 3 // 4


@given(st.integers(1, 56 << 10), st.integers(SAMPLED_BYTES_MIN, 2 * MIB))
def test_noise_repeated_within_the_window_is_compressed(every_bytes: int, size_bytes: int) -> None:
    data = (NOISE[:every_bytes] * (size_bytes // every_bytes + 1))[:size_bytes]
    assert stored_bytes(data, LZ4) == LZ4.compress(data, asbytes=False).size


@given(st.integers(100, 3_000), st.integers(1, 10))
def test_text_records_among_noise_are_compressed(record_bytes: int, one_in: int) -> None:
    line = text(record_bytes)
    data = b"".join(
        NOISE[at : at + record_bytes] if at // record_bytes % one_in else line
        for at in range(0, MIB // 2, record_bytes)
    )
    assert stored_bytes(data, LZ4) == LZ4.compress(data, asbytes=False).size < len(data)


def test_zstd_compresses_repetition_that_no_sample_shows() -> None:
    data = noise(300_000) * 3
    assert stored_bytes(data, pa.Codec("zstd")) < 310_000
