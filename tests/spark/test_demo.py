"""The demo as a process: interrupted, and (among the soak tests) played to its end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.waiting import eventually

DEADLINE_S = 300


def _start(folder: Path, *words: str) -> subprocess.Popen[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "SPARK"))}
    return subprocess.Popen(
        [sys.executable, "-m", "sparklog.cli.commands.demo", "--folder", str(folder), *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _processes_of(folder: Path) -> list[str]:
    """Return the command lines of living processes that name the demo's folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has just ended
        if str(folder) in words:
            found.append(words)
    return found


@pytest.mark.parametrize(
    ("number", "code", "root"),
    [(signal.SIGINT, 130, ()), (signal.SIGTERM, 143, ("--root", "s3://demo-bucket/log"))],
    ids=["Ctrl-C", "SIGTERM with an S3 server"],
)
def test_the_demo_takes_its_processes_with_it(
    tmp_path: Path, number: signal.Signals, code: int, root: tuple[str, ...]
) -> None:
    folder = tmp_path / "demo"
    with _start(folder, *root) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if line.startswith("    $ spark-submit"):
                break
        # Producers and follower are there by now, or about to be.
        assert _processes_of(folder)
        demo.send_signal(number)
        _, said = demo.communicate(timeout=DEADLINE_S)
    assert demo.returncode == code, said
    assert "Traceback" not in said
    assert not (folder / "work").exists()
    eventually(lambda: not _processes_of(folder), "the end of all its processes", DEADLINE_S)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("root", [(), ("--root", "s3://demo-bucket/log")], ids=["folder", "S3"])
def test_every_total_of_the_demo_is_right(tmp_path: Path, root: tuple[str, ...]) -> None:
    with _start(tmp_path / "demo", *root) as demo:
        told, said = demo.communicate()
    assert demo.returncode == 0, told + said
    assert "WRONG" not in told
    assert "All 39 checks passed" in told
    assert not said
