"""Whether a thread makes way for others, as upkeep beside brokers does, and how it does at a disk.

The system gives such a thread (class idle, or as nice as can be) the processor that others leave.
Of disks it knows no such thing where no scheduler orders their requests, as on most virtual
machines: who reads ahead or writes megabytes there keeps a small write waiting behind them. So
these threads ask for little at a time, and rest in between. Units: seconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TypeVar

from sparklog.core.clock import Clock

Result = TypeVar("Result")
NICEST: Final = 19
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
    has_affinity = hasattr(os, "sched_getaffinity")
    processors = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return min(most, max(_THREADS_MIN, processors))


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
