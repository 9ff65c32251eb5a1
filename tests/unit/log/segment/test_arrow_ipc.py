"""Columns from their own bytes: as Arrow's reader makes them, and never from nonsense."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.log.schema import COLUMN_TYPES
from sparklog.log.segment.arrow_ipc import batch_message, read_columns
from sparklog.log.segment.file import StreamPart, write_stream
from tests.harness.log_records import batch

CODECS = ("none", "lz4", "zstd")
STORED = ("timestamp", "key", "value", "headers")
SCHEMA = pa.schema([pa.field(name, COLUMN_TYPES[name]) for name in STORED])
REFUSED = (ValueError, OSError, pa.ArrowException)

ROWS = batch(
    [b"one", None, b"", b"four" * 90],
    keys=[None, b"k", b"", b"kk"],
    timestamps_ms=[1, 2, 3, 4],
    headers=[[("h", b"1"), ("i", None)], None, [], [("j", b"22")]],
).select(STORED)


def encoded(rows: pa.RecordBatch, codec: str) -> StreamPart:
    return write_stream(rows.schema, [rows], codec)


def bytes_in(body: memoryview) -> Callable[[int, int], memoryview]:
    def bytes_of(position: int, length: int) -> memoryview:
        if not 0 <= position <= position + length <= len(body):
            raise ValueError("outside")
        return body[position : position + length]

    return bytes_of


def read(part: StreamPart, schema: pa.Schema, wanted: Sequence[str]) -> pa.RecordBatch:
    view = memoryview(part.data).cast("B")
    (stored,) = part.batches
    body = stored.position + stored.meta.length
    return read_columns(view[stored.position : body], bytes_in(view[body:]), schema, wanted)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("wanted", [STORED, ("headers",), ("key", "value"), ("timestamp",), ()])
@pytest.mark.parametrize("rows", [ROWS, ROWS.slice(1, 2), ROWS.slice(3)])
def test_columns_come_back(codec: str, wanted: tuple[str, ...], rows: pa.RecordBatch) -> None:
    found = read(encoded(rows, codec), SCHEMA, wanted)
    assert found.schema.names == list(wanted)
    assert [c.to_pylist() for c in found.columns] == [rows.column(n).to_pylist() for n in wanted]
    found.validate(full=True)


def test_uncompressed_buffers_are_not_copied() -> None:
    part = encoded(ROWS, "none")
    (value,) = read(part, SCHEMA, ("value",)).columns
    address = value.buffers()[2].address
    assert part.data.address < address < part.data.address + part.data.size


def test_another_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="another schema"):
        read(encoded(ROWS.select(["key", "value"]), "lz4"), SCHEMA, ("value",))


@given(
    st.sampled_from(CODECS),
    st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=8),
    st.booleans(),
)
def test_nonsense_is_refused(codec: str, changes: list[tuple[int, int]], in_body: bool) -> None:
    part = encoded(ROWS, codec)
    whole = bytearray(part.data)
    (stored,) = part.batches
    body = stored.position + stored.meta.length
    low, high = (body, len(whole)) if in_body else (stored.position, body)
    for place, byte in changes:
        whole[low + place % (high - low)] = byte
    view = memoryview(bytes(whole))
    meta = view[stored.position : body]
    try:
        found = read_columns(meta, bytes_in(view[body:]), SCHEMA, STORED)
    except REFUSED:
        return
    found.validate()


def with_claims(part: StreamPart, claimed: int) -> StreamPart:
    """Return the part with another plain length before each compressed buffer."""
    whole = bytearray(part.data)
    (stored,) = part.batches
    body = stored.position + stored.meta.length
    message = batch_message(memoryview(part.data).cast("B")[stored.position : body], 0)
    for position, length in message.buffers:
        if length:
            struct.pack_into("<q", whole, body + position, claimed)
    return replace(part, data=pa.py_buffer(bytes(whole)))


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("claimed", [-2, -(1 << 63), 1 << 31, 1 << 40, (1 << 63) - 1])
def test_read_columns_rejects_a_claimed_length_before_it_allocates(
    codec: str, claimed: int
) -> None:
    part = with_claims(encoded(ROWS, codec), claimed)
    with pytest.raises(ValueError, match="buffer's length is out of range"):
        read(part, SCHEMA, STORED)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_read_columns_returns_a_column_of_one_repeated_byte(codec: str) -> None:
    rows = batch([b"a" * (8 << 20)], keys=[None], timestamps_ms=[1], headers=[None]).select(STORED)
    assert read(encoded(rows, codec), SCHEMA, ("value",)).equals(rows.select(["value"]))


@given(st.binary(max_size=200))
def test_noise_is_no_message(noise: bytes) -> None:
    with pytest.raises(REFUSED):
        read_columns(memoryview(noise), bytes_in(memoryview(noise)), SCHEMA, STORED)
