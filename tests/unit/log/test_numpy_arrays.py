"""Arrow arrays of NumPy arrays hold the same values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sparklog.log.numpy_arrays import binary_scalar, bool_array, int64_array, repeated_int32
from sparklog.sql.queryable_log import QueryableLog
from tests.harness.log_records import batch


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
    found = repeated_int32(-7, rows)
    found.validate(full=True)
    assert found == pa.array([-7] * rows, pa.int32())
    assert binary_scalar(bytes(rows)) == pa.scalar(bytes(rows), pa.binary())


def test_a_look_up_by_key_does_not_load_pandas(tmp_path: Path) -> None:
    with QueryableLog.open(str(tmp_path)) as log:
        log.create_topic("t", 1, {"sparklog.key.index": "bloom"})
        log.partition("t", 0).append([batch([b"v", b"w"], keys=[b"k", None])])
    code = (
        "import sys, sparklog\n"
        "with sparklog.open_log(sys.argv[1]) as log:\n"
        "    assert log.get('t', b'k') == b'v'\n"
        "sys.exit('pandas' in sys.modules)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    assert subprocess.run(command, check=False, timeout=60).returncode == 0
