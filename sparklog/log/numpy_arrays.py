"""Arrow arrays of NumPy arrays, made without loading pandas.

`pyarrow.array` imports pandas, if it is installed, to look at a NumPy array. That costs a command
of the CLI a third of a second and 40 MiB.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def int64_array(values: np.ndarray) -> pa.Array:
    """Return integers as an Arrow array of int64; int64 that lie side by side are not copied."""
    flat = np.ascontiguousarray(values, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(flat), [None, pa.py_buffer(flat)])


def bool_array(values: np.ndarray) -> pa.Array:
    """Return booleans as an Arrow array, of one bit each."""
    bits = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])
