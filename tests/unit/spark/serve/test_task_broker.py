"""Modules that the driver of brokers loads, in a process of its own."""

from __future__ import annotations

import subprocess
import sys

DRIVER = """
import sys
import sparklog.spark.serve.task_broker
assert "sparklog.broker.main" not in sys.modules, "the driver loads the broker"
"""


def test_the_driver_does_not_load_the_broker() -> None:
    done = subprocess.run([sys.executable, "-c", DRIVER], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
