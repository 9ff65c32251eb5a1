"""A server started through the guard never outlives the test that started it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.waiting import eventually

DEADLINE_S = 150
# Writes its process id where the test finds it, then waits for ever.
SERVER = "import os,signal,sys; open(sys.argv[1],'w').write(str(os.getpid())); signal.pause()"


def start(scratch: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Start a server under a guard; returns the guard and the server's process id."""
    scratch.mkdir()
    note = scratch / "pid"
    guard = subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.peers.guard", str(scratch)),
            *(sys.executable, "-c", SERVER, str(note)),
        ],
        stdin=subprocess.PIPE,
    )
    eventually(lambda: note.exists() and note.read_text() != "", "the server's process id")
    return guard, int(note.read_text())


def runs(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("order", [b"T", b"K"])
def test_an_order_ends_the_server_and_leaves_its_data(tmp_path: Path, order: bytes) -> None:
    guard, pid = start(tmp_path / "scratch")
    guard.communicate(order, timeout=DEADLINE_S)
    assert not runs(pid)
    assert (tmp_path / "scratch").exists()


def test_a_parent_that_goes_away_takes_server_and_data_with_it(tmp_path: Path) -> None:
    guard, pid = start(tmp_path / "scratch")
    guard.communicate(timeout=DEADLINE_S)  # closes the pipe without an order, as a crash does
    assert not runs(pid)
    assert not (tmp_path / "scratch").exists()


def test_a_guard_that_is_killed_takes_the_server_with_it(tmp_path: Path) -> None:
    guard, pid = start(tmp_path / "scratch")
    guard.kill()
    guard.communicate(timeout=DEADLINE_S)
    eventually(lambda: not runs(pid), "the server has ended")
