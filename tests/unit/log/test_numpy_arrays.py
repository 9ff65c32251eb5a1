"""Arrow arrays of NumPy arrays hold the same values."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from sparklog.log.numpy_arrays import bool_array, int64_array


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 1000])
def test_values_come_back(rows: int) -> None:
    numbers = np.arange(rows, dtype=np.int64) * 3 - 2**62
    for given in (numbers, numbers[::2], numbers.astype(np.int32)):
        found = int64_array(given)
        found.validate(full=True)
        assert found.type == pa.int64()
        assert found.to_pylist() == given.tolist()
    choice = numbers % 2 == 0
    found = bool_array(choice)
    found.validate(full=True)
    assert found.to_pylist() == choice.tolist()


def test_pandas_is_not_loaded() -> None:
    code = (
        "import sys, numpy as np\n"
        "from sparklog.log.numpy_arrays import bool_array, int64_array\n"
        "int64_array(np.arange(3)), bool_array(np.ones(3, bool))\n"
        "sys.exit('pandas' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
