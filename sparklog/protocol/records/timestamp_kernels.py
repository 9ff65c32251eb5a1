"""Kernel that finds the first record of a batch by its timestamp, and keeps nothing else.

Importing this module compiles (or loads) the kernel; see `jit`. Its `_varint` is that of
`decode_kernels`, as a kernel calls only functions of its own module (JIT-1).

TIMESTAMP-KERNELS-1: On any bytes, no byte outside `data` is read.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sparklog.protocol.arrays import Bytes, Int64s
from sparklog.protocol.jit import inlined, kernel

RECORD: Final = 0
"""Slots of the result: the index of the record in its batch."""
OFFSET_DELTA: Final = 1
TIMESTAMP: Final = 2
FOUND: Final = 3

_INT_BYTES_MAX: Final = 5
_LONG_BYTES_MAX: Final = 10
_INT64_MASK: Final = 2**63 - 1


@inlined
def _varint(data: Bytes, position: int, end: int, bytes_max: int) -> tuple[int, int]:
    """Read a zigzag number; return it and the position after it, -1 for a fault."""
    raw = 0
    for index in range(bytes_max):
        if position >= end:
            return 0, -1
        byte = int(np.int64(data[position]))
        position += 1
        raw |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return ((raw >> 1) & _INT64_MASK) ^ -(raw & 1), position
    return 0, -1


@kernel("int64(Array(uint8, 1, 'C', True), int64, int64, int64, int64[::1])")
def first_since(
    data: Bytes, records: int, base_timestamp: int, timestamp: int, found: Int64s
) -> int:
    """Find the first record at or after a timestamp; return 1, 0 for none, -1 for a fault.

    Args:
        data: decompressed records.
        records: the header's count.
        base_timestamp: base of the timestamp deltas, in ms.
        timestamp: the lowest wanted, in ms.
        found: output: FOUND slots.
    """
    position = 0
    end = data.size
    for record in range(records):
        length, position = _varint(data, position, end, _INT_BYTES_MAX)
        if position < 0 or length < 1 or length > end - position:
            return -1
        record_end = position + length
        timestamp_delta, position = _varint(data, position + 1, record_end, _LONG_BYTES_MAX)
        if position < 0:
            return -1
        if base_timestamp + timestamp_delta >= timestamp:
            delta, position = _varint(data, position, record_end, _INT_BYTES_MAX)
            if position < 0:
                return -1
            found[RECORD] = record
            found[OFFSET_DELTA] = delta
            found[TIMESTAMP] = base_timestamp + timestamp_delta
            return 1
        position = record_end
    return 0
