"""The kernel that looks up the schema of each record of a batch, for `schema_check`.

Importing it loads or compiles the kernel. The functions that read numbers are like those of
`decode_kernels`, as a kernel calls only functions of its own module (JIT-1 of `jit`).

SCHEMA-KERNELS-1: On any bytes, no byte outside `data` is read.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sparklog.protocol.arrays import Bytes, Int64s
from sparklog.protocol.jit import inlined, kernel

VALUES: Final = 1
KEYS: Final = 2
"""Bits of `sides`: which fields of a record need a schema."""

UNFRAMED: Final = 1
UNKNOWN: Final = 2
OF_KEY: Final = 2
"""Faults of a value are 1 and 2; those of a key are larger by this."""

UNKNOWN_COUNT: Final = 0
FIRST_KIND: Final = 1
FIRST_HIGH: Final = 2
FIRST_LOW: Final = 3
SUMMARY: Final = 4
"""Slots of the summary: the number of unknown schemas, and the first of them."""

NO_ID: Final = 0
ID: Final = 1
GUID: Final = 2

_PREFIX_BYTES: Final = 5
_GUID_BYTES: Final = 17
_ID_END: Final = 1 << 31
_INT_BYTES_MAX: Final = 5
_LONG_BYTES_MAX: Final = 10
_INT64_MASK: Final = 2**63 - 1
_VALUE_NAME: Final = np.frombuffer(b"__value_schema_id", np.uint8)
_KEY_NAME: Final = np.frombuffer(b"__key_schema_id", np.uint8)


@inlined
def _number(data: Bytes, position: int, end: int, bytes_max: int) -> tuple[int, int]:
    """Read a zigzag number; return it and the position after it, or -1 for the position."""
    raw = 0
    for index in range(bytes_max):
        if position >= end:
            break
        byte = int(np.int64(data[position]))
        position += 1
        raw |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return ((raw >> 1) & _INT64_MASK) ^ -(raw & 1), position
    return 0, -1


@inlined
def _bytes(data: Bytes, position: int, end: int) -> tuple[int, int]:
    """Read a length; return it and the start of its bytes, or -1 for the start."""
    if position < 0:
        return 0, -1
    length, start = _number(data, position, end, _INT_BYTES_MAX)
    if length > end - start:
        return 0, -1
    return length, start


@inlined
def _is_name(data: Bytes, start: int, length: int, name: Bytes) -> bool:
    if length != name.size:
        return False
    for index in range(length):  # noqa: SIM110 - a kernel has no generators
        if data[start + index] != name[index]:
            return False
    return True


@inlined
def _big_endian(data: Bytes, start: int, count: int) -> int:
    found = np.int64(0)
    for index in range(count):
        found = (found << np.int64(8)) | np.int64(data[start + index])
    return int(found)


@inlined
def _schema(data: Bytes, start: int, length: int, in_header: bool) -> tuple[int, int, int]:
    """Return the kind of the schema that some bytes name, and its id or the halves of its GUID."""
    if length >= _PREFIX_BYTES and data[start] == 0:
        found = _big_endian(data, start + 1, 4)
        if in_header or found < _ID_END:
            return ID, found, 0
    if in_header and length >= _GUID_BYTES and data[start] == 1:
        return GUID, _big_endian(data, start + 1, 8), _big_endian(data, start + 9, 8)
    return NO_ID, 0, 0


@inlined
def _is_known(kind: int, high: int, low: int, ids: Int64s, guids: Int64s) -> bool:
    """Look a schema up by bisection in the sorted ids, or in the sorted rows of GUIDs."""
    first = 0
    end = ids.size if kind == ID else guids.shape[0]
    while first < end:
        middle = (first + end) >> 1
        if kind == ID:
            at = ids[middle]
            rest = np.int64(0)
        else:
            at = guids[middle, 0]
            rest = guids[middle, 1]
        if at == high and (kind == ID or rest == low):
            return True
        if at < high or (at == high and rest < low):
            first = middle + 1
        else:
            end = middle
    return False


@inlined
def _fault(
    data: Bytes,
    field: tuple[int, int],
    header: tuple[int, int],
    ids: Int64s,
    guids: Int64s,
    summary: Int64s,
) -> int:
    """Return what is wrong with one key or value: 0, UNFRAMED or UNKNOWN."""
    if field[1] < 0:
        return 0
    kind, high, low = NO_ID, 0, 0
    if header[1] >= 0:
        kind, high, low = _schema(data, header[0], header[1], True)
    if kind == NO_ID:
        kind, high, low = _schema(data, field[0], field[1], False)
    if kind == NO_ID:
        return UNFRAMED
    if _is_known(kind, high, low, ids, guids):
        return 0
    if summary[UNKNOWN_COUNT] == 0:
        summary[FIRST_KIND] = kind
        summary[FIRST_HIGH] = high
        summary[FIRST_LOW] = low
    summary[UNKNOWN_COUNT] += 1
    return UNKNOWN


@inlined
def _naming_headers(
    data: Bytes, position: int, end: int
) -> tuple[tuple[int, int], tuple[int, int], int]:
    """Return start and length of the headers that name schemas, and the position or -1.

    The last header of a name counts; a length of -1 stands for none.
    """
    value, key = (0, -1), (0, -1)
    count, position = _number(data, position, end, _INT_BYTES_MAX)
    for _ in range(count):
        name_length, name_start = _bytes(data, position, end)
        if name_start < 0 or name_length < 0:
            return value, key, -1
        length, start = _bytes(data, name_start + name_length, end)
        if start < 0:
            return value, key, -1
        if _is_name(data, name_start, name_length, _VALUE_NAME):
            value = (start, length)
        elif _is_name(data, name_start, name_length, _KEY_NAME):
            key = (start, length)
        position = start + max(length, 0)
    return value, key, position


@inlined
def _record_fault(
    data: Bytes,
    position: int,
    record_end: int,
    sides: int,
    ids: Int64s,
    guids: Int64s,
    summary: Int64s,
) -> int:
    """Return the fault of one record behind its length, 0 for none, or -1 if it is malformed."""
    _, position = _number(data, position + 1, record_end, _LONG_BYTES_MAX)
    if position < 0:
        return -1
    _, position = _number(data, position, record_end, _INT_BYTES_MAX)
    key_length, key_start = _bytes(data, position, record_end)
    if key_start < 0:
        return -1
    value_length, value_start = _bytes(data, key_start + max(key_length, 0), record_end)
    if value_start < 0:
        return -1
    after = value_start + max(value_length, 0)
    value_header, key_header, position = _naming_headers(data, after, record_end)
    if position < 0:
        return -1
    fault = 0
    if sides & VALUES:
        value = (value_start, value_length)
        fault = _fault(data, value, value_header, ids, guids, summary)
    if fault == 0 and sides & KEYS:
        fault = _fault(data, (key_start, key_length), key_header, ids, guids, summary)
        if fault != 0:
            fault += OF_KEY
    return fault


@kernel(
    "int64(Array(uint8, 1, 'C', True), int64, int64, int64[::1], int64[:, ::1], "
    "uint8[::1], int64[::1])"
)
def find_schemas(
    data: Bytes,
    first_byte: int,
    sides: int,
    ids: Int64s,
    guids: Int64s,
    faults: Bytes,
    summary: Int64s,
) -> int:
    """Look up the schemas of a batch's records; return how many are at fault.

    Args:
        data: decompressed records that a survey found no fault in.
        first_byte: their start.
        sides: VALUES, KEYS or both.
        ids: the known ids, sorted.
        guids: the halves of the known GUIDs as signed numbers, sorted.
        faults: output: one for each record.
        summary: zeros; output: see the slots.
    """
    position = first_byte
    found = 0
    for record in range(faults.size):
        length, position = _number(data, position, data.size, _INT_BYTES_MAX)
        if position < 0 or length < 1 or length > data.size - position:
            return -1
        fault = _record_fault(data, position, position + length, sides, ids, guids, summary)
        if fault < 0:
            return -1
        faults[record] = fault
        if fault > 0:
            found += 1
        position += length
    return found
