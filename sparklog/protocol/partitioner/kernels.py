"""Kernel that computes the partitions of a whole column of keys; `partitioner` has the rule.

Importing this module compiles (or loads) the kernel; see `jit`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np

from sparklog.protocol.arrays import Bytes, Int32s
from sparklog.protocol.jit import inlined, kernel
from sparklog.protocol.partitioner.murmur2 import murmur2

_murmur2 = inlined(cast("Callable[[Bytes, int, int], int]", murmur2))


@kernel(
    "int64(Array(uint8, 1, 'C', True), Array(int32, 1, 'C', True), Array(uint8, 1, 'C', True), "
    "int64, int64, int64, int32[::1])"
)
def assign_partitions(
    data: Bytes,
    ends: Int32s,
    valid: Bytes,
    first_bit: int,
    partitions: int,
    sticky: int,
    out: Int32s,
) -> int:
    """Fill `out` with the partition of each key; null keys get `sticky`.

    Returns -1, or the row whose Arrow offsets are outside the data.
    """
    for row in range(out.size):
        bit = first_bit + row
        if valid.size and not (np.int64(valid[bit >> 3]) >> (bit & 7)) & 1:
            out[row] = sticky
            continue
        start = int(np.int64(ends[row]))
        end = int(np.int64(ends[row + 1]))
        if start < 0 or end < start or end > data.size:
            return row
        out[row] = (_murmur2(data, start, end) & 0x7FFFFFFF) % partitions
    return -1
