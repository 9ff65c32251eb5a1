"""Memory of a process tree: /proc shows all of its processes."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.bench.common.process_memory import descendants, watched_workers
from tests.harness.waiting import eventually

HELD_BYTES = 64 << 20
GROW = f"import sys; held = bytearray(b'x') * ({HELD_BYTES}); print(flush=True); sys.stdin.read()"


def start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", GROW, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def test_a_child_is_a_descendant_until_it_ends() -> None:
    child = start()
    assert child.pid in descendants(os.getpid())
    child.communicate()
    assert child.pid not in descendants(os.getpid())


def test_the_peak_of_a_worker_is_seen_and_other_processes_are_not() -> None:
    with watched_workers() as peaks:
        worker, other = start("pyspark.daemon"), start("something")
        assert worker.stdout is not None
        assert other.stdout is not None
        worker.stdout.readline()
        other.stdout.readline()
        eventually(lambda: peaks.workers.get(worker.pid, 0) > HELD_BYTES, "the worker's peak")
        other.communicate()
        worker.communicate()
    # A Spark session of other tests may have workers of its own beside ours.
    assert other.pid not in peaks.workers
    assert peaks.highest >= peaks.workers[worker.pid] > HELD_BYTES
