"""Arrow arrays and scalars, made without loading pandas.

`pyarrow.array` and `pyarrow.scalar` import pandas, if it is installed, to look at a value. That
costs a command of the CLI, or the first look-up of a program, a third of a second and 40 MiB.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def int64_array(values: np.ndarray) -> pa.Array:
    """Return integers as an Arrow array of int64; int64 that lie side by side are not copied."""
    flat = np.ascontiguousarray(values, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(flat), [None, pa.py_buffer(flat)])


def repeated_int32(value: int, rows: int) -> pa.Array:
    """Return an array of int32 with one value in all rows."""
    flat = np.full(rows, value, np.int32)
    return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(flat)])


def binary_scalar(value: bytes) -> pa.Scalar:
    """Return a binary scalar."""
    ends = np.array([0, len(value)], np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(value)]
    return pa.Array.from_buffers(pa.binary(), 1, buffers)[0]


def bool_array(values: np.ndarray) -> pa.Array:
    """Return booleans as an Arrow array, of one bit each."""
    bits = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])
