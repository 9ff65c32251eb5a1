"""Whether a thread makes way for others, as upkeep beside brokers does, and what it leaves them.

The system gives such a thread (class idle, or as nice as can be) the processor that others leave.
Of disks it knows no such thing where no scheduler orders their requests, as on most virtual
machines: who reads ahead or writes megabytes there keeps a small write waiting behind them. So
these threads ask for little at a time, and rest in between (`Turns`). And a processor that is never
idle slows its neighbours, by what they share and by what a host allows all of them: who makes way
leaves each idle most of the time (`ProcessorShare`). Units: seconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from threading import Lock
from typing import Final, TypeVar

from sparklog.core.clock import Clock, processor_s

Result = TypeVar("Result")
NICEST: Final = 19
SHARE: Final = 0.25
"""Of the time of its processors, for who makes way: with half of it clients beside a compaction
waited up to two fifths longer at the 99th percentile, on two processors and a disk."""
_THREADS_MIN: Final = 2
"""One reads while the other works on what was read."""


def makes_way(thread: int = 0) -> bool:
    """Return whether a thread has a priority that only upkeep asks for; 0 is who asks."""
    try:
        if hasattr(os, "SCHED_IDLE") and os.sched_getscheduler(thread) == os.SCHED_IDLE:
            return True
        return os.getpriority(os.PRIO_PROCESS, thread) >= NICEST
    except OSError:  # it has just ended, or a sandbox does not tell
        return False


def threads_of(most: int) -> int:
    """Return how many threads the caller may have at once: one per processor, if it makes way.

    More of them read a disk at the same time, and their rests no longer leave it to others. Two at
    least, if `most` allows it.
    """
    if not makes_way():
        return most
    return min(most, max(_THREADS_MIN, _processors()))


class ProcessorShare:
    """Makes those wait who would use the caller's processors more than `SHARE` of the time.

    Counts what the whole process uses: one for each task, which is so with Spark. Thread-safe.
    """

    def __init__(self, clock: Clock, used_s: Callable[[], float] = processor_s) -> None:
        """Look at the calling thread's processors. `used_s`: what the process has used of them."""
        self._clock = clock
        self._used_s = used_s
        self._each_takes = 1 / (SHARE * _processors())
        self._lock = Lock()
        self._seen_s = used_s()
        self._looked_s = self._free_s = clock.monotonic_s()
        """When we looked last, and when everything used until then was no more than the share."""

    def passed(self, size_bytes: int) -> None:
        """Wait for what was worked since the last call. Whoever calls meanwhile waits, too."""
        with self._lock:
            used_s, now_s = self._used_s(), self._clock.monotonic_s()
            due_s = self._each_takes * (used_s - self._seen_s)
            self._free_s = max(self._free_s, self._looked_s) + due_s
            self._seen_s, self._looked_s = used_s, now_s
            wait_s = self._free_s - now_s
        if wait_s > 0:
            self._clock.sleep_s(wait_s)


def _processors() -> int:
    has_affinity = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


class Turns:
    """A thread's use of a disk, of which half of the time is left to others, if it makes way."""

    def __init__(self, clock: Clock) -> None:
        """Look at the calling thread's priority. Cost: two system calls at most."""
        self._clock = clock
        self._took_s = 0.0
        self.gentle = makes_way()

    def take(self, work: Callable[[], Result]) -> Result:
        """Rest for as long as the part before this one took, and do this one."""
        if not self.gentle:
            return work()
        self._clock.sleep_s(self._took_s)
        began_s = self._clock.monotonic_s()
        done = work()
        self._took_s = self._clock.monotonic_s() - began_s
        return done
