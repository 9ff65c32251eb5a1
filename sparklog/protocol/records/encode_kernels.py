"""Kernels that encode Arrow columns as the records of one batch.

`measure_records` checks the columns and finds how many rows fit one batch, then `write_records`
writes exactly those. `columns.Columns` groups the columns. Importing this module compiles (or
loads) the kernels; see `jit`.

ENCODE-KERNELS-1: Nothing is written outside `out`, and nothing read outside the columns' own
    buffers.
ENCODE-KERNELS-2: Offsets rise from row to row; a batch ends where an offset delta would exceed 31
    bits.
ENCODE-KERNELS-3: The measured size is the written size.

Positions and sizes are bytes. Source: Kafka protocol guide, record.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeAlias

import numpy as np

from sparklog.protocol.arrays import Bytes, Int32s, Int64s
from sparklog.protocol.jit import copy_bytes, inlined, kernel

Longs: TypeAlias = tuple[Int64s, Int64s]
Ends: TypeAlias = tuple[Int32s, Int32s, Int32s, Int32s, Int32s]
Data: TypeAlias = tuple[Bytes, Bytes, Bytes, Bytes, Bytes, Bytes, Bytes]
Columns: TypeAlias = tuple[Longs, Ends, Data, Int64s]
"""The buffers of `columns.Columns`."""


class EncodeFault(IntEnum):
    """Reasons why columns cannot be written."""

    NONE = 0
    OFFSET_ORDER = 1
    ARROW = 2
    WRITE = 3


# Slots of a measurement.
END_ROW: Final = 0
RECORDS_BYTES: Final = 1
MAX_TIMESTAMP: Final = 2
LAST_OFFSET: Final = 3
FOUND: Final = 4

# Numba freezes plain integers into the machine code, where an enumeration costs a lookup.
_KEY: Final = 0
_VALUE: Final = 1
_LIST_ENDS: Final = 2
_HEADER_KEY_ENDS: Final = 3
_HEADER_VALUE_ENDS: Final = 4
_HEADER_KEY: Final = 2
_HEADER_VALUE: Final = 3
_KEY_VALID: Final = 4
_VALUE_VALID: Final = 5
_HEADER_VALUE_VALID: Final = 6
_HEADER_VALUE_BIT: Final = 2
_OFFSET_ORDER: Final = int(EncodeFault.OFFSET_ORDER)
_ARROW: Final = int(EncodeFault.ARROW)
_WRITE: Final = int(EncodeFault.WRITE)
_INT32_MAX: Final = 2**31 - 1
_REST_OF_INT64: Final = 2**57 - 1
_NULL: Final = -1
_OUTSIDE: Final = -2

_COLUMNS = (
    "Tuple((UniTuple(Array(int64, 1, 'C', True), 2), UniTuple(Array(int32, 1, 'C', True), 5), "
    "UniTuple(Array(uint8, 1, 'C', True), 7), Array(int64, 1, 'C', True)))"
)


@inlined
def _varint_bytes(value: int) -> int:
    """Return the number of bytes that `_put_varint` writes."""
    raw = (value << 1) ^ (value >> 63)
    count = 1
    while raw & ~0x7F:
        raw = (raw >> 7) & _REST_OF_INT64
        count += 1
    return count


@inlined
def _put_varint(out: Bytes, position: int, value: int) -> int:
    """Write a zigzag number; return the position after it."""
    raw = (value << 1) ^ (value >> 63)
    while raw & ~0x7F:
        out[position] = np.uint8((raw & 0x7F) | 0x80)
        position += 1
        raw = (raw >> 7) & _REST_OF_INT64
    out[position] = np.uint8(raw)
    return position + 1


@inlined
def _span(row: int, ends: Int32s, data: Bytes) -> int:
    """Return a value's length, or -2 if Arrow's offsets are outside the data."""
    start = int(np.int64(ends[row]))
    end = int(np.int64(ends[row + 1]))
    if start < 0 or end < start or end > data.size:
        return _OUTSIDE
    return end - start


@inlined
def _length(row: int, ends: Int32s, data: Bytes, valid: Bytes, first_bit: int) -> int:
    """Return a value's length, -1 for null, or -2 as `_span` does."""
    bit = first_bit + row
    if valid.size and not (np.int64(valid[bit >> 3]) >> (bit & 7)) & 1:
        return _NULL
    return _span(row, ends, data)


@inlined
def _field_bytes(length: int) -> int:
    return _varint_bytes(length) + max(0, length)


@inlined
def _put_field(out: Bytes, position: int, length: int, ends: Int32s, row: int, data: Bytes) -> int:
    """Write a length and its bytes; return the position after them."""
    position = _put_varint(out, position, length)
    if length <= 0:
        return position
    copy_bytes(out, position, data, int(np.int64(ends[row])), length)
    return position + length


@inlined
def _headers_bytes(row: int, ends: Ends, data: Data, first_bits: Int64s) -> int:
    """Return the bytes of a record's headers with their count, or -2 as `_span` does."""
    if ends[_LIST_ENDS].size == 0:
        return 1
    first = int(np.int64(ends[_LIST_ENDS][row]))
    end = int(np.int64(ends[_LIST_ENDS][row + 1]))
    total = _varint_bytes(end - first)
    for header in range(first, end):
        key = _span(header, ends[_HEADER_KEY_ENDS], data[_HEADER_KEY])
        value = _length(
            header,
            ends[_HEADER_VALUE_ENDS],
            data[_HEADER_VALUE],
            data[_HEADER_VALUE_VALID],
            first_bits[_HEADER_VALUE_BIT],
        )
        if min(key, value) == _OUTSIDE:
            return _OUTSIDE
        total += _field_bytes(key) + _field_bytes(value)
    return total


@inlined
def _put_headers(
    out: Bytes, position: int, row: int, ends: Ends, data: Data, first_bits: Int64s
) -> int:
    """Write a record's headers with their count; return the position after them."""
    if ends[_LIST_ENDS].size == 0:
        return _put_varint(out, position, 0)
    first = int(np.int64(ends[_LIST_ENDS][row]))
    end = int(np.int64(ends[_LIST_ENDS][row + 1]))
    position = _put_varint(out, position, end - first)
    for header in range(first, end):
        keys, key_ends = data[_HEADER_KEY], ends[_HEADER_KEY_ENDS]
        values, value_ends = data[_HEADER_VALUE], ends[_HEADER_VALUE_ENDS]
        valid, first_bit = data[_HEADER_VALUE_VALID], first_bits[_HEADER_VALUE_BIT]
        length = _span(header, key_ends, keys)
        position = _put_field(out, position, length, key_ends, header, keys)
        length = _length(header, value_ends, values, valid, first_bit)
        position = _put_field(out, position, length, value_ends, header, values)
    return position


@kernel(f"int64(int64, int64, int64, int64, int64, boolean, {_COLUMNS}, int32[::1], int64[::1])")
def measure_records(
    first_row: int,
    end_row: int,
    base_offset: int,
    base_timestamp: int,
    bytes_max: int,
    is_one_timestamp: bool,
    columns: Columns,
    sizes: Int32s,
    found: Int64s,
) -> int:
    """Find the rows from `first_row` on that fit one batch; return a `EncodeFault`.

    Args:
        first_row: first row of the batch.
        end_row: limit for its end.
        base_offset: the batch's; with dense offsets also the first row's.

        base_timestamp: base of the timestamp deltas.
        bytes_max: limit for the size of the records.
        is_one_timestamp: True ends the batch before the timestamp changes.

        columns: the rows.
        sizes: output: the size of each record without its length prefix.
        found: output: see the slots.
    """
    longs, ends, data, first_bits = columns
    offsets, timestamps = longs
    found[END_ROW] = first_row
    found[RECORDS_BYTES] = 0
    found[MAX_TIMESTAMP] = -1
    found[LAST_OFFSET] = base_offset - 1
    for row in range(first_row, end_row):
        offset = base_offset + row - first_row
        if offsets.size:
            offset = int(offsets[row])
        if offset <= found[LAST_OFFSET]:
            return _OFFSET_ORDER
        timestamp = int(timestamps[row])
        if offset - base_offset > _INT32_MAX:
            break
        if is_one_timestamp and timestamp != timestamps[first_row]:
            break
        key = _length(row, ends[_KEY], data[_KEY], data[_KEY_VALID], first_bits[_KEY])
        value = _length(row, ends[_VALUE], data[_VALUE], data[_VALUE_VALID], first_bits[_VALUE])
        headers = _headers_bytes(row, ends, data, first_bits)
        if min(key, value, headers) == _OUTSIDE:
            return _ARROW
        size = 1 + _varint_bytes(timestamp - base_timestamp) + _varint_bytes(offset - base_offset)
        size += _field_bytes(key) + _field_bytes(value) + headers
        total = int(found[RECORDS_BYTES]) + _varint_bytes(size) + size
        if total > bytes_max:
            break
        sizes[row] = size
        found[END_ROW] = row + 1
        found[RECORDS_BYTES] = total
        found[MAX_TIMESTAMP] = max(found[MAX_TIMESTAMP], timestamp)
        found[LAST_OFFSET] = offset
    return 0


@kernel(f"int64(int64, int64, int64, int64, {_COLUMNS}, int32[::1], uint8[::1])")
def write_records(
    first_row: int,
    end_row: int,
    base_offset: int,
    base_timestamp: int,
    columns: Columns,
    sizes: Int32s,
    out: Bytes,
) -> int:
    """Write rows [first_row, end_row) as `measure_records` measured them; return a `EncodeFault`.

    `out` has exactly the measured size.
    """
    longs, ends, data, first_bits = columns
    offsets, timestamps = longs
    position = 0
    for row in range(first_row, end_row):
        size = int(np.int64(sizes[row]))
        if size > out.size - position - _varint_bytes(size):
            return _WRITE
        position = _put_varint(out, position, size)
        record_end = position + size
        offset = base_offset + row - first_row
        if offsets.size:
            offset = int(offsets[row])
        out[position] = 0
        position = _put_varint(out, position + 1, int(timestamps[row]) - base_timestamp)
        position = _put_varint(out, position, offset - base_offset)
        length = _length(row, ends[_KEY], data[_KEY], data[_KEY_VALID], first_bits[_KEY])
        position = _put_field(out, position, length, ends[_KEY], row, data[_KEY])
        length = _length(row, ends[_VALUE], data[_VALUE], data[_VALUE_VALID], first_bits[_VALUE])
        position = _put_field(out, position, length, ends[_VALUE], row, data[_VALUE])
        position = _put_headers(out, position, row, ends, data, first_bits)
        if position != record_end:
            return _WRITE
    return 0 if position == out.size else _WRITE
