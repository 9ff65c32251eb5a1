"""A process tree is found through /proc, whoever is in it."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from tests.bench.common.process_memory import descendants, watched_workers

DEADLINE_S = 30
GROW = "import sys; held = bytearray(b'x') * (64 << 20); print(flush=True); sys.stdin.read()"


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
        wait_until_seen(peaks.workers, worker.pid)
        other.communicate()
        worker.communicate()
    # A Spark session of other tests may have workers of its own beside ours.
    assert other.pid not in peaks.workers
    assert peaks.highest >= peaks.workers[worker.pid] > 64 << 20


def wait_until_seen(workers: dict[int, int], pid: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while workers.get(pid, 0) <= 64 << 20:
        assert time.monotonic() < deadline, "the worker was not seen"
        os.sched_yield()
