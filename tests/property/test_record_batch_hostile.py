"""Hostile bytes: the result is rows or DataCorrupt, no other error, no read beyond the buffer."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparklog.core.errors import DataCorrupt
from sparklog.core.types import TimestampType
from sparklog.protocol.records.compression import decompress
from sparklog.protocol.records.header import HEADER_BYTES, BatchHeader, parse_header, seal_header
from sparklog.protocol.records.memory_records import split_batches
from sparklog.protocol.records.record_batch import BatchSettings, Codec, decode, encode
from sparklog.protocol.records.record_survey import survey
from tests.harness.golden_batches import data_of, expected

SMALL = sorted(name for name in expected() if len(data_of(name)) < 2_000 and name != "several")
BOUND = 1 << 20
PROT_NONE = 0
small = st.sampled_from(SMALL)


def decode_or_refuse(data: bytes | memoryview, *, verify_crc: bool) -> bool:
    """Decode, and return True on success. Any error but DataCorrupt escapes and fails the test."""
    try:
        batch = decode(data, verify_crc=verify_crc, max_decompressed_bytes=BOUND)
    except DataCorrupt:
        return False
    batch.records.validate(full=True)
    assert batch.records.num_rows == batch.header.record_count
    return True


@contextmanager
def guarded(data: bytes) -> Iterator[memoryview]:
    """Put bytes right before memory that must not be read: reading on ends the process."""
    size = (len(data) // mmap.PAGESIZE + 1) * mmap.PAGESIZE
    area = mmap.mmap(-1, size + mmap.PAGESIZE)
    held = ctypes.c_char.from_buffer(area)
    guard = ctypes.c_void_p(ctypes.addressof(held) + size)
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    assert protect(guard, ctypes.c_size_t(mmap.PAGESIZE), PROT_NONE) == 0
    view = memoryview(area)[size - len(data) : size]
    try:
        view[:] = data
        yield view
    finally:
        protect(guard, ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ | mmap.PROT_WRITE)


def resized(data: bytes) -> bytes:
    """Make the length field right again, so that a change reaches what lies behind it."""
    return data[:8] + (len(data) - 12).to_bytes(4, "big") + data[12:]


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """Draw a real batch with some bytes changed, put in or taken out after the length field."""
    data = bytearray(data_of(draw(small)))
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(21, len(data)))
        kind = draw(st.sampled_from(["set", "insert", "delete"]))
        if kind == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=12))
        elif kind == "delete":
            del data[at : at + draw(st.integers(1, 12))]
        elif at < len(data):
            data[at] = draw(st.integers(0, 255) | st.sampled_from([0, 1, 2, 127, 128, 255]))
    return resized(bytes(data))


@given(mutations())
@settings(max_examples=400)
def test_batch_decodes_exactly_when_the_survey_passes_it(data: bytes) -> None:
    """A leader's check and the flush agree, or acknowledged records could not be read."""
    try:
        header = parse_header(data)
        plain = decompress(data[HEADER_BYTES:], header.codec, BOUND)
    except DataCorrupt:
        return
    is_dense = header.record_count == header.last_offset_delta + 1
    if header.size_bytes != len(data) or not is_dense or not header.record_count:
        return
    with guarded(bytes(plain)) as view:
        found = survey(header, view)
        del view
    assert (found.fault is None) == decode_or_refuse(data, verify_crc=False)
    if found.fault is None:
        stamps = decode(data, verify_crc=False).records.column("timestamp").cast(pa.int64())
        if header.timestamp_type is TimestampType.CREATE_TIME:
            assert found.newest_ms == max(-1, *stamps.to_pylist())


@given(st.binary(max_size=400), st.booleans())
def test_any_bytes_are_rows_or_corrupt(data: bytes, verify_crc: bool) -> None:
    decode_or_refuse(data, verify_crc=verify_crc)


@settings(max_examples=400)
@given(mutations())
def test_any_change_is_rows_or_corrupt_even_unchecked(data: bytes) -> None:
    decode_or_refuse(data, verify_crc=False)


@settings(max_examples=400)
@given(st.binary(max_size=300), st.integers(0, 50), st.integers(0, 60), st.booleans())
@example(b"\x0c\x00\x00\x00\x01\x01\x00", 1, 0, False)
def test_any_records_are_scanned_within_their_bounds(
    records: bytes, count: int, delta: int, is_append_time: bool
) -> None:
    attributes = 8 * is_append_time
    header = BatchHeader(0, 0, 0, 2, 0, attributes, delta + count, 0, 0, -1, -1, -1, count)
    with guarded(seal_header(header, records) + records) as data:
        decode_or_refuse(data, verify_crc=True)


@given(mutations())
def test_changed_batches_are_scanned_within_their_bounds(data: bytes) -> None:
    with guarded(data) as view:
        decode_or_refuse(view, verify_crc=False)


@given(small, st.data())
def test_any_flipped_bit_that_the_checksum_covers_is_found(name: str, draw: st.DataObject) -> None:
    data = bytearray(data_of(name))
    bit = draw.draw(st.integers(8 * 16, 8 * len(data) - 1))
    data[bit // 8] ^= 1 << bit % 8
    assert not decode_or_refuse(bytes(data), verify_crc=True)


@given(small, st.data())
def test_a_batch_cut_anywhere_is_corrupt(name: str, draw: st.DataObject) -> None:
    data = data_of(name)
    cut = draw.draw(st.integers(0, len(data) - 1))
    assert not decode_or_refuse(data[:cut], verify_crc=True)
    assert not decode_or_refuse(resized(data[: max(12, cut)]), verify_crc=True)


@given(st.lists(small, max_size=4), st.data())
def test_a_log_cut_anywhere_splits_into_the_batches_before(
    names: list[str], draw: st.DataObject
) -> None:
    batches = [data_of(name) for name in names]
    log = b"".join(batches)
    cut = draw.draw(st.integers(0, len(log)))
    found = [bytes(one.data) for one in split_batches(log[:cut], allow_cut_tail=True)]
    assert found == batches[: len(found)]
    whole = b"".join(found)
    assert len(found) == len(batches) or cut < len(whole) + len(batches[len(found)])
    if cut > len(whole):
        with pytest.raises(DataCorrupt):
            list(split_batches(log[:cut]))


@given(st.binary(max_size=400), st.booleans())
def test_any_buffer_splits_or_is_corrupt(data: bytes, allow_cut_tail: bool) -> None:
    try:
        found = list(split_batches(data, allow_cut_tail=allow_cut_tail))
    except DataCorrupt:
        return
    assert b"".join(one.data for one in found) == data[: sum(len(one.data) for one in found)]


@given(st.sampled_from([codec for codec in Codec if codec]), st.binary(max_size=300))
def test_any_bytes_decompress_or_are_corrupt(codec: Codec, data: bytes) -> None:
    try:
        plain = decompress(data, codec, BOUND)
    except DataCorrupt:
        return
    assert len(plain) <= BOUND


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), st.sampled_from(list(Codec)))
def test_any_count_in_a_header_is_checked_against_the_records(
    count: int, delta: int, codec: Codec
) -> None:
    data = data_of("mixed-none")
    header = parse_header(data)
    changed = header._replace(record_count=count, last_offset_delta=delta, base_offset=0)
    valid = count == header.record_count and delta >= header.last_offset_delta
    sealed = seal_header(changed, data[HEADER_BYTES:]) + data[HEADER_BYTES:]
    assert decode_or_refuse(sealed, verify_crc=True) == valid


@given(
    st.lists(st.integers(-5, 40) | st.integers(-(2**31), 2**31 - 1), min_size=2, max_size=9),
    st.binary(max_size=30),
    st.binary(max_size=2),
)
def test_arrow_arrays_with_any_offsets_are_written_or_corrupt(
    ends: list[int], data: bytes, validity: bytes
) -> None:
    rows = len(ends) - 1
    bitmap = pa.py_buffer(validity) if len(validity) * 8 >= rows else None
    buffers = [bitmap, pa.py_buffer(np.array(ends, np.int32)), pa.py_buffer(data)]
    try:
        array = pa.Array.from_buffers(pa.binary(), rows, buffers)
    except pa.ArrowInvalid:
        return
    records = pa.RecordBatch.from_arrays([array, array], ["key", "value"])
    try:
        written = encode(records, BatchSettings(Codec.NONE), base_offset=0)
    except DataCorrupt:
        return
    assert decode(written).records.column("key").to_pylist() == array.to_pylist()
