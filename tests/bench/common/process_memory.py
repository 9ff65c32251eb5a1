"""Highest memory of Spark's Python workers, seen from outside through /proc.

The kernel keeps each process's highest resident size; a thread looks often enough to see every
worker before it ends. Memory shared between processes counts in each of them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

INTERVAL_S = 0.05
KIB = 1024
WORKER_MODULES = ("pyspark.daemon", "pyspark.sql.worker", "pyspark.sql.streaming")


@dataclass
class Peaks:
    """The highest resident size of each process, in bytes."""

    workers: dict[int, int] = field(default_factory=dict)

    @property
    def highest(self) -> int:
        """Return the size of the largest worker."""
        return max(self.workers.values(), default=0)


@contextmanager
def watched_workers() -> Iterator[Peaks]:
    """Watch every Python worker below this process; the peaks are complete at the end."""
    peaks, over = Peaks(), threading.Event()

    def watch() -> None:
        while not over.wait(INTERVAL_S):
            _look(peaks)

    thread = threading.Thread(target=watch, name="memory", daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        over.set()
        thread.join()
        _look(peaks)


def _look(peaks: Peaks) -> None:
    for pid in descendants(os.getpid()):
        if is_running(pid, *WORKER_MODULES):
            peaks.workers[pid] = max(peaks.workers.get(pid, 0), _highest_resident(pid))


def children() -> dict[int, list[int]]:
    """Return the processes that there are, by who started them."""
    found: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            found.setdefault(_parent(folder), []).append(int(folder.name))
    return found


def descendants(ancestor: int) -> set[int]:
    """Return every process below this one."""
    started = children()
    found: set[int] = set()
    waiting = [ancestor]
    while waiting:
        below = started.get(waiting.pop(), [])
        found.update(below)
        waiting.extend(below)
    return found


def _parent(folder: Path) -> int:
    try:
        # The name in parentheses may hold anything; what follows it is numbers.
        return int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def is_running(pid: int, *programs: str) -> bool:
    """Return whether a process's command line has one of these words."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False
    return any(program in command for program in programs)


def _highest_resident(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * KIB
    return 0
