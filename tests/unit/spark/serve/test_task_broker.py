"""Modules that the driver and the tasks of brokers load, in processes of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

DRIVER = """
import sys
import sparklog.cli.commands.serve
loaded = {"sparklog.broker.main", "sparklog.cluster.log", "pyarrow"} & set(sys.modules)
assert not loaded, f"the driver loads {loaded} before Spark starts"
"""
TASK = """
import gc, sys
from sparklog.core.errors import SparklogError
from sparklog.spark.serve import task_broker
try:
    task_broker.run("file:///dev/null", {}, stop=lambda: True, ready=print, note=print)
except (SparklogError, OSError):
    pass
else:
    raise SystemExit("a broker started without a folder")
import pyarrow as pa
pa.array([1, 2])
assert "pandas" not in sys.modules, "a broker loads pandas"
assert gc.isenabled(), "garbage stays after a start that failed"
assert pa.table({"a": [1, 2]}).to_pandas()["a"].sum() == 3
"""


@pytest.mark.parametrize("process", [DRIVER, TASK], ids=["driver", "task"])
def test_driver_and_task_load_few_modules(process: str) -> None:
    done = subprocess.run([sys.executable, "-c", process], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
