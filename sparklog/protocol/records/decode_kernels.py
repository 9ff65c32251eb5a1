"""Kernels that decode the records of decompressed batches into columns.

A call costs as much as fifty records, so it takes any number of batches. `scan_records` checks
every length, fills offsets and timestamps, and locates keys, values and headers. `gather` and
`gather_headers` then copy the bytes into arrays of the measured sizes. Importing this module
compiles (or loads) the kernels; see `jit`.

- record: `length varint | attributes int8 | timestamp delta varlong | offset delta varint | key
  length varint, key | value length varint, value | header count varint, headers`
- header: `key length varint, key | value length varint, value`

DECODE-KERNELS-1: On any bytes, no byte outside `data` is read.
DECODE-KERNELS-2: Offset deltas rise from record to record and never exceed the header's last
    offset delta. In a batch with as many records as offsets, the record's index replaces its
    delta. Kafka accepts other deltas from producers, and clients read them.
DECODE-KERNELS-3: A negative length is a null, as in Java's reader; header keys and counts cannot
    be null.

Positions and sizes are bytes. Source: Kafka protocol guide, record; Java's DefaultRecord.readFrom.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import numpy as np

from sparklog.protocol.arrays import Bytes, Int32s, Int64s
from sparklog.protocol.jit import copy_bytes, inlined, kernel

RECORD_BYTES_MIN: Final = 7
"""Size of a record without key, value and headers: bounds the records of a batch."""


class DecodeFault(IntEnum):
    """Reasons why a scan stopped."""

    NONE = 0
    CUT_SHORT = 1
    VARINT = 2
    RECORD_LENGTH = 3
    OFFSET_DELTA = 4
    HEADER_COUNT = 5
    HEADER_KEY = 6
    LEFT_OVER = 7
    TOO_FEW = 8


# Numba freezes plain integers into the machine code, where an enumeration costs a lookup.
KEY: Final = 0
VALUE: Final = 1
HEADER_LIST: Final = 2
"""Rows of the two-dimensional arrays that a scan fills."""
NULLS: Final = 0
"""Slots 0, 1 and 2 of a scan's sums: the numbers of null keys, values and header lists."""
HEADERS: Final = 3
HEADER_KEY_BYTES: Final = 4
HEADER_VALUE_BYTES: Final = 5
HEADER_VALUE_NULLS: Final = 6
BAD_RECORD: Final = 7
"""Index of the faulty record in its batch."""
BAD_BATCH: Final = 8
"""Index of the faulty batch."""
SUMS: Final = 9

FIRST_BYTE: Final = 0
END_BYTE: Final = 1
RECORDS: Final = 2
BASE_OFFSET: Final = 3
LAST_OFFSET_DELTA: Final = 4
TIMESTAMP: Final = 5
"""Of every record if IS_APPEND_TIME is not 0, else the base of the deltas."""
IS_APPEND_TIME: Final = 6
PLACE: Final = 7
"""Columns of the table that describes each batch to a scan:

the position of its records, and header fields. The last is their number.
"""

OLDEST: Final = 0
"""Slots of a survey: the lowest timestamp of those that are not -1, LONG_MAX if there is none."""
NEWEST: Final = 1
"""The highest timestamp, -1 if there is no higher one, as Kafka computes it."""
NULL_KEYS: Final = 2
HEADERS_SEEN: Final = 3
IS_DENSE: Final = 4
"""1 if the offset deltas are 0, 1, 2, ..."""
AT_RECORD: Final = 5
"""Index of the faulty record."""
SURVEY: Final = 6

_INT_BYTES_MAX: Final = 5
_LONG_BYTES_MAX: Final = 10
_INT64_MASK: Final = 2**63 - 1
_HEADER_BYTES_MIN: Final = 2
_CUT_SHORT: Final = -int(DecodeFault.CUT_SHORT)
_BAD_VARINT: Final = -int(DecodeFault.VARINT)
_BAD_RECORD_LENGTH: Final = -int(DecodeFault.RECORD_LENGTH)
_BAD_OFFSET_DELTA: Final = -int(DecodeFault.OFFSET_DELTA)
_BAD_HEADER_COUNT: Final = -int(DecodeFault.HEADER_COUNT)
_BAD_HEADER_KEY: Final = -int(DecodeFault.HEADER_KEY)
_LEFT_OVER: Final = -int(DecodeFault.LEFT_OVER)
_TOO_FEW: Final = -int(DecodeFault.TOO_FEW)


@inlined
def _varint(data: Bytes, position: int, end: int, bytes_max: int) -> tuple[int, int]:
    """Read a zigzag number; return it and the position after it, or a negated fault."""
    raw = 0
    for index in range(bytes_max):
        if position >= end:
            return 0, _CUT_SHORT
        byte = int(np.int64(data[position]))
        position += 1
        raw |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return ((raw >> 1) & _INT64_MASK) ^ -(raw & 1), position
    return 0, _BAD_VARINT


@inlined
def _field(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """Read a length; return it and the start of its bytes, which are all there, or a fault."""
    length, start = _varint(data, position, end, _INT_BYTES_MAX)
    if start >= 0 and length > end - start:
        return 0, _CUT_SHORT
    return length, start


@inlined
def _header(data: Bytes, position: int, end: int) -> tuple[int, int, int, int]:
    """Read one header; return the starts and lengths of key and value, or a fault first."""
    key_length, key_start = _field(data, position, end)
    if key_start < 0:
        return key_start, 0, 0, 0
    if key_length < 0:
        return _BAD_HEADER_KEY, 0, 0, 0
    value_length, value_start = _field(data, key_start + key_length, end)
    if value_start < 0:
        return value_start, 0, 0, 0
    return key_start, key_length, value_start, value_length


@inlined
def _scan_headers(data: Bytes, position: int, end: int, count: int, sums: Int64s) -> int:
    """Check and add up `count` headers; return the position after them, or a fault."""
    for _ in range(count):
        key_start, key_length, value_start, value_length = _header(data, position, end)
        if key_start < 0:
            return key_start
        if value_length < 0:
            sums[HEADER_VALUE_NULLS] += 1
            value_length = 0
        sums[HEADER_KEY_BYTES] += key_length
        sums[HEADER_VALUE_BYTES] += value_length
        position = value_start + value_length
    sums[HEADERS] += count
    return position


@inlined
def _scan_field(
    data: Bytes,
    position: int,
    end: int,
    column: int,
    row: int,
    starts: Int32s,
    ends: Int32s,
    valid: Bytes,
    sums: Int64s,
) -> int:
    """Locate a key or value; return the position after it, or a fault."""
    length, start = _field(data, position, end)
    if start < 0:
        return start
    starts[column, row] = start
    if length < 0:
        sums[NULLS + column] += 1
        length = 0
    else:
        valid[column, row >> 3] |= np.uint8(1 << (row & 7))
    ends[column, row + 1] = ends[column, row] + length
    return start + length


@inlined
def _scan_header_list(
    data: Bytes,
    position: int,
    end: int,
    row: int,
    starts: Int32s,
    ends: Int32s,
    valid: Bytes,
    sums: Int64s,
) -> int:
    """Locate the headers of a record; return the position after them, or a fault."""
    count, position = _varint(data, position, end, _INT_BYTES_MAX)
    if position < 0:
        return position
    if count < 0 or count > (end - position) // _HEADER_BYTES_MIN:
        return _BAD_HEADER_COUNT
    starts[HEADER_LIST, row] = position
    ends[HEADER_LIST, row + 1] = ends[HEADER_LIST, row] + count
    if count == 0:
        sums[NULLS + HEADER_LIST] += 1
        return position
    valid[HEADER_LIST, row >> 3] |= np.uint8(1 << (row & 7))
    return _scan_headers(data, position, end, count, sums)


@inlined
def _scan_record(
    data: Bytes,
    position: int,
    row: int,
    places: Int64s,
    batch: int,
    longs: Int64s,
    starts: Int32s,
    ends: Int32s,
    valid: Bytes,
    sums: Int64s,
) -> int:
    """Check, measure and locate one record; return the position after it, or a fault."""
    end = int(places[batch, END_BYTE])
    length, position = _varint(data, position, end, _INT_BYTES_MAX)
    if position < 0:
        return position
    if length < 1 or length > end - position:
        return _BAD_RECORD_LENGTH
    record_end = position + length
    timestamp_delta, position = _varint(data, position + 1, record_end, _LONG_BYTES_MAX)
    if position < 0:
        return position
    delta, position = _varint(data, position, record_end, _INT_BYTES_MAX)
    if position < 0:
        return position
    if places[batch, RECORDS] == places[batch, LAST_OFFSET_DELTA] + 1:
        delta = sums[BAD_RECORD]
    offset = places[batch, BASE_OFFSET] + delta
    if delta < 0 or delta > places[batch, LAST_OFFSET_DELTA]:
        return _BAD_OFFSET_DELTA
    # The previous row is of the same batch, except for a batch's first record.
    if sums[BAD_RECORD] > 0 and offset <= longs[0, row - 1]:
        return _BAD_OFFSET_DELTA
    longs[0, row] = offset
    longs[1, row] = places[batch, TIMESTAMP]
    if places[batch, IS_APPEND_TIME] == 0:
        longs[1, row] += timestamp_delta
    position = _scan_field(data, position, record_end, KEY, row, starts, ends, valid, sums)
    if position >= 0:
        position = _scan_field(data, position, record_end, VALUE, row, starts, ends, valid, sums)
    if position >= 0:
        position = _scan_header_list(data, position, record_end, row, starts, ends, valid, sums)
    if position >= 0 and position != record_end:
        return _BAD_RECORD_LENGTH
    return position


@kernel(
    "int64(Array(uint8, 1, 'C', True), int64[:, ::1], "
    "int64[:, ::1], int32[:, ::1], int32[:, ::1], uint8[:, ::1], int64[::1])"
)
def scan_records(
    data: Bytes,
    places: Int64s,
    longs: Int64s,
    starts: Int32s,
    ends: Int32s,
    valid: Bytes,
    sums: Int64s,
) -> int:
    """Check, measure and locate all records of some batches; return a `DecodeFault`.

    Args:
        data: decompressed records.
        places: one row per batch; see PLACE.
        longs: output: offsets (row 0) and timestamps (row 1), one column a record.

        starts: output: positions in `data` of KEY, VALUE and HEADER_LIST of each record.

        ends: zeros; output: Arrow's list offsets of those three, one more than records.

        valid: zeros; output: Arrow's validity bits of those three.
        sums: zeros; output: see the slots.
    """
    row = 0
    for batch in range(places.shape[0]):
        sums[BAD_BATCH] = batch
        sums[BAD_RECORD] = 0
        position = int(places[batch, FIRST_BYTE])
        end = int(places[batch, END_BYTE])
        records = int(places[batch, RECORDS])
        if position < 0 or end > data.size or records > longs.shape[1] - row:
            return -_CUT_SHORT
        if records > (end - position) // RECORD_BYTES_MIN:
            return -_TOO_FEW
        for record in range(records):
            sums[BAD_RECORD] = record
            position = _scan_record(
                data, position, row, places, batch, longs, starts, ends, valid, sums
            )
            if position < 0:
                return -position
            row += 1
        if position != end:
            return -_LEFT_OVER
    return 0


@inlined
def _skip_headers(data: Bytes, position: int, end: int, found: Int64s) -> int:
    """Check the headers of a record; return the position after them, or a fault."""
    count, position = _varint(data, position, end, _INT_BYTES_MAX)
    if position < 0:
        return position
    if count < 0 or count > (end - position) // _HEADER_BYTES_MIN:
        return _BAD_HEADER_COUNT
    found[HEADERS_SEEN] += count
    for _ in range(count):
        key_start, _, value_start, value_length = _header(data, position, end)
        if key_start < 0:
            return key_start
        position = value_start + max(value_length, 0)
    return position


@inlined
def _survey_record(
    data: Bytes, position: int, end: int, record: int, base_timestamp: int, found: Int64s
) -> int:
    """Check one record and update the survey; return the position after it, or a fault."""
    length, position = _varint(data, position, end, _INT_BYTES_MAX)
    if position < 0:
        return position
    if length < 1 or length > end - position:
        return _BAD_RECORD_LENGTH
    record_end = position + length
    timestamp_delta, position = _varint(data, position + 1, record_end, _LONG_BYTES_MAX)
    if position < 0:
        return position
    delta, position = _varint(data, position, record_end, _INT_BYTES_MAX)
    if position < 0:
        return position
    if delta != record:
        found[IS_DENSE] = 0
    timestamp = base_timestamp + timestamp_delta
    found[NEWEST] = max(found[NEWEST], timestamp)
    if timestamp != -1:
        found[OLDEST] = min(found[OLDEST], timestamp)
    length, position = _field(data, position, record_end)
    if position < 0:
        return position
    if length < 0:
        found[NULL_KEYS] += 1
    length, position = _field(data, position + max(length, 0), record_end)
    if position < 0:
        return position
    position = _skip_headers(data, position + max(length, 0), record_end, found)
    if position >= 0 and position != record_end:
        return _BAD_RECORD_LENGTH
    return position


@kernel("int64(Array(uint8, 1, 'C', True), int64, int64, int64, int64[::1])")
def survey_records(
    data: Bytes, first_byte: int, records: int, base_timestamp: int, found: Int64s
) -> int:
    """Check all records of one batch and survey them; return a `DecodeFault`.

    It checks lengths, numbers, headers and counts as `scan_records` does. An offset delta that is
    not the record's index clears IS_DENSE; it is not a fault here.

    Args:
        data: decompressed records up to the end.
        first_byte: their start.
        records: the header's count.
        base_timestamp: base of the timestamp deltas.
        found: output: SURVEY slots.
    """
    found[OLDEST] = _INT64_MASK
    found[NEWEST] = -1
    found[NULL_KEYS] = 0
    found[HEADERS_SEEN] = 0
    found[IS_DENSE] = 1
    found[AT_RECORD] = 0
    position = first_byte
    end = data.size
    if position < 0 or position > end:
        return -_CUT_SHORT
    if records > (end - position) // RECORD_BYTES_MIN:
        return -_TOO_FEW
    for record in range(records):
        found[AT_RECORD] = record
        position = _survey_record(data, position, end, record, base_timestamp, found)
        if position < 0:
            return -position
    if position != end:
        return -_LEFT_OVER
    return 0


@kernel("void(Array(uint8, 1, 'C', True), int32[::1], int32[::1], uint8[::1])")
def gather(data: Bytes, starts: Int32s, ends: Int32s, into: Bytes) -> None:
    """Copy one column's bytes together: `starts` and `ends` as a scan without fault left them.

    Bytes outside `data` or `into` are not copied, in case the arrays are not a scan's.
    """
    for row in range(starts.size):
        start = int(np.int64(starts[row]))
        target = int(np.int64(ends[row]))
        count = int(np.int64(ends[row + 1])) - target
        inside = start >= 0 and target >= 0 and count > 0
        if inside and count <= data.size - start and count <= into.size - target:
            copy_bytes(into, target, data, start, count)


@kernel(
    "int64(Array(uint8, 1, 'C', True), int32[::1], int32[::1], "
    "int32[::1], uint8[::1], int32[::1], uint8[::1], uint8[::1])"
)
def gather_headers(
    data: Bytes,
    starts: Int32s,
    ends: Int32s,
    key_ends: Int32s,
    keys: Bytes,
    value_ends: Int32s,
    values: Bytes,
    value_valid: Bytes,
) -> int:
    """Copy all headers together; return a `DecodeFault`, only for changed bytes.

    Args:
        data: decompressed records.
        starts: start of each record's headers, from the scan.

        ends: Arrow's list offsets of the header lists, from the scan.

        key_ends: output: Arrow's offsets of the keys, one more than headers.
        keys: output: bytes of the keys.

        value_ends: output: Arrow's offsets of the values, one more than headers.
        values: output: bytes of the values.

        value_valid: zeros; output: validity bits of the values.
    """
    header = 0
    key_end = 0
    value_end = 0
    key_ends[0] = 0
    value_ends[0] = 0
    for row in range(starts.size):
        position = int(np.int64(starts[row]))
        for _ in range(int(np.int64(ends[row + 1])) - int(np.int64(ends[row]))):
            key_start, key_length, value_start, value_length = _header(data, position, data.size)
            if key_start < 0:
                return -key_start
            if value_length >= 0:
                value_valid[header >> 3] |= np.uint8(1 << (header & 7))
            else:
                value_length = 0
            if key_length > keys.size - key_end or value_length > values.size - value_end:
                return -_CUT_SHORT
            copy_bytes(keys, key_end, data, key_start, key_length)
            copy_bytes(values, value_end, data, value_start, value_length)
            position = value_start + value_length
            key_end += key_length
            value_end += value_length
            header += 1
            key_ends[header] = key_end
            value_ends[header] = value_end
    return 0
