"""A broker's process ends when its parent or its parent's parent does, also by SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.spark.serve.broker_task import parent_of
from tests.harness.waiting import eventually

TIMEOUT_S = 50
STAY = "signal.alarm(60); signal.pause()"
"""Until it is killed: if the test fails to, it goes by itself."""
WATCHED = f"""
import os, signal
from sparklog.spark.serve.broker_task import die_with_parents
die_with_parents()
print(os.getpid(), flush=True)
{STAY}
"""
PARENT = f"""
import os, signal, subprocess, sys
print(os.getpid(), flush=True)
subprocess.Popen([sys.executable, "-c", {WATCHED!r}])
{STAY}
"""
GRANDPARENT = f"""
import signal, subprocess, sys
subprocess.Popen([sys.executable, "-c", {PARENT!r}])
{STAY}
"""


def runs(pid: int) -> bool:
    """Return whether a process runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("victim", ["parent", "grandparent"])
def test_broker_process_dies_with_its_parent_or_grandparent(victim: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", GRANDPARENT], stdout=subprocess.PIPE, text=True
    ) as grandparent:
        assert grandparent.stdout is not None
        parent, watched = (int(grandparent.stdout.readline()) for _ in range(2))
        try:
            assert parent_of(watched) == parent
            assert parent_of(parent) == grandparent.pid
            os.kill(parent if victim == "parent" else grandparent.pid, signal.SIGKILL)
            eventually(lambda: not runs(watched), "the end of an orphan", TIMEOUT_S)
        finally:
            for pid in (grandparent.pid, parent, watched):
                if runs(pid):
                    os.kill(pid, signal.SIGKILL)


def test_a_process_that_is_gone_has_no_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        child.wait()
    assert parent_of(child.pid) is None
