"""Buffers that compression does not make smaller: stored as they are, read by any Arrow reader."""

from __future__ import annotations

import io
import random

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.core.errors import DataCorrupt
from sparklog.log.partition.partition_log import LogConfig
from sparklog.log.schema import HEADERS
from sparklog.log.segment.arrow_ipc import batch_message
from sparklog.log.segment.file import finish_file, finish_in_place, write_stream
from sparklog.store.memory import MemoryStore
from tests.harness.log_records import LAYOUT, batch, open_partition

CODECS = ("lz4", "zstd")
NOT_COMPRESSED = (-1).to_bytes(8, "little", signed=True)
ROWS = 500


def noise(size_bytes: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size_bytes)


def written(batches: list[pa.RecordBatch], codec: str) -> bytes:
    return finish_file(write_stream(batches[0].schema, batches, codec), {})


@pytest.mark.parametrize("codec", CODECS)
def test_noise_is_stored_raw_and_text_compressed(codec: str) -> None:
    values = pa.array([noise(100, i) for i in range(ROWS)], pa.binary())
    texts = pa.array([b"always the same " * 6] * ROWS, pa.binary())
    rows = pa.RecordBatch.from_arrays([values, texts], ["noise", "text"])
    part = write_stream(rows.schema, [rows], codec)
    view = memoryview(part.data).cast("B")
    message = batch_message(view, part.batches[0].position)
    stored = {}
    for name, index in (("noise", 2), ("text", 5)):
        position, length = message.buffers[index]
        stored[name] = bytes(view[message.body + position : message.body + position + length])
    assert stored["noise"] == NOT_COMPRESSED + values.buffers()[2].to_pybytes()
    assert not stored["text"].startswith(NOT_COMPRESSED)
    assert len(stored["text"]) < ROWS * 16


@pytest.mark.parametrize("codec", CODECS)
def test_other_readers_take_both(codec: str) -> None:
    values = [noise(100, i) if i % 3 else None for i in range(ROWS)]
    rows = pa.RecordBatch.from_pydict(
        {
            "noise": pa.array(values, pa.binary()),
            "text": pa.array(["always the same"] * ROWS),
            "number": pa.array(range(ROWS), pa.int64()),
        }
    )
    file = written([rows, rows.slice(7, 100)], codec)
    expected = pa.Table.from_batches([rows, rows.slice(7, 100)])
    assert pa.ipc.open_file(pa.py_buffer(file)).read_all().equals(expected)
    assert pl.read_ipc(io.BytesIO(file)).to_arrow().to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("codec", [*CODECS, "none"])
@pytest.mark.parametrize("about_bytes", [10, 1_000_000])
def test_file_finished_in_place_is_equal_and_fits_its_memory(codec: str, about_bytes: int) -> None:
    values = pa.array([noise(100, i) for i in range(ROWS)], pa.binary())
    rows = pa.RecordBatch.from_arrays([values], ["noise"])
    about = {"about": "x" * about_bytes}
    part = write_stream(rows.schema, [rows], codec)
    copied = finish_file(part, about)
    file = finish_in_place(part, about)
    assert file == copied
    is_copied = isinstance(file, bytes)
    assert is_copied == (about_bytes > ROWS * 100)
    assert is_copied or pa.py_buffer(file).address == part.data.address


def test_a_file_finished_in_place_cannot_be_written_to() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([b"a", b"b"], pa.binary())], ["value"])
    file = finish_in_place(write_stream(rows.schema, [rows], "lz4"), {})
    assert isinstance(file, memoryview)
    assert file.readonly


_RECORDS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=300),
        st.none() | st.binary(max_size=20) | st.just(b"k" * 200),
        st.none()
        | st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=9)), max_size=2),
    ),
    min_size=1,
    max_size=60,
)


@given(_RECORDS, st.sampled_from(CODECS), st.data())
def test_any_slice_comes_back(
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]],
    codec: str,
    data: st.DataObject,
) -> None:
    values, keys, headers = zip(*records, strict=True)
    rows = batch(values, keys=keys, headers=headers)
    assert rows.schema.field("headers").type == HEADERS
    low = data.draw(st.integers(0, len(records) - 1))
    count = data.draw(st.integers(1, len(records)))
    some = rows.slice(low, count)
    found = pa.ipc.open_file(pa.py_buffer(written([some], codec))).read_all()
    assert found.to_pylist() == some.to_pylist()


def test_a_flipped_bit_in_a_raw_buffer_is_found() -> None:
    store = MemoryStore("test")
    log = open_partition(store, LogConfig(codec="lz4"))
    values = [noise(100, i) for i in range(ROWS)]
    log.append([batch(values)])
    key = LAYOUT.key(LAYOUT.chain_name(0))
    whole = bytearray(store.get(key))
    whole[whole.index(values[250]) + 50] ^= 1
    store.put(key, bytes(whole))
    with pytest.raises(DataCorrupt, match="checksum"):
        list(open_partition(store).read(0, ROWS, ("value",)))
    with pytest.raises(DataCorrupt, match="checksum"):
        list(open_partition(store).read(0, ROWS, ("timestamp", "value")))
