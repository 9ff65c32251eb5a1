"""Modules that the task of a broker loads, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

TASK = """
import sys
import pyarrow as pa
import sparklog.spark.serve.task_broker as task_broker
assert "sparklog.broker.main" not in sys.modules, "the driver loads the broker"
with task_broker.arrow_without_pandas():
    import sparklog.broker.main
    sparklog.broker.main.warm_up()
    loaded = {"pandas", "hypothesis"} & sys.modules.keys()
    assert not loaded, loaded
import pandas
column = pa.array(pandas.Series([1.5, None]), from_pandas=True)
assert column.null_count == 1, "pyarrow knows pandas no longer"
"""


@pytest.mark.parametrize("first", ["", "import pandas\n"])
def test_a_broker_loads_no_pandas_and_arrow_knows_it_after(first: str) -> None:
    task = TASK if not first else first + TASK.replace('{"pandas", "hypothesis"}', "set()")
    done = subprocess.run([sys.executable, "-c", task], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
