"""Background I/O: threads of upkeep beside brokers leave processors and disks to other threads.

The system gives such a thread (class idle, or as nice as can be) the processor that others leave.
Disks have no such class where no scheduler orders their requests, as on most virtual machines. A
thread that reads ahead or writes megabytes there keeps a small write waiting behind them. So these
threads ask for little at a time, and rest in between (`IoTurns`). And a processor that is never
idle slows its neighbours, by what they share and by what a host allows all of them. So a
background thread leaves each idle most of the time (`CpuShare`). Units: seconds.

A put that goes on in parts waits between them, if its caller is to go slowly.

A store that writes an object in parts says so (`part_written`), in the thread that asked. Other
stores do not call it; the pacing store counts what is left. Units: bytes.

A throttled store limits bytes per second, as Kafka's log cleaner does.

Reads and writes count alike. A faster thread waits, so a burst is at most what each thread reads
at once, or one part of what it writes. Background work waits in the same places, for the
processors that it used in between. Units: bytes, seconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Final, TypeVar

from sparklog.core.clock import SYSTEM_CLOCK, Clock, processor_s
from sparklog.core.quotas import TokenBucket
from sparklog.store.base import Data, ObjectStore, PutOutcome
from sparklog.store.delegating_store import DelegatingStore

Result = TypeVar("Result")
NICEST: Final = 19
SHARE: Final = 0.25
"""Share of its processors' time that a low-priority process uses. At 0.5, a compaction raised the
clients' 99th percentile by up to two fifths, on two processors and a disk."""
_THREADS_MIN: Final = 2
"""One reads while the other works on what was read."""


def makes_way(thread: int = 0) -> bool:
    """Return whether a thread has the low priority of upkeep jobs; 0 is the calling thread."""
    try:
        if hasattr(os, "SCHED_IDLE") and os.sched_getscheduler(thread) == os.SCHED_IDLE:
            return True
        return os.getpriority(os.PRIO_PROCESS, thread) >= NICEST
    except OSError:  # the thread has ended, or a sandbox denies the call
        return False


def threads_of(most: int) -> int:
    """Return how many threads a caller may start: `most`, or one per processor at low priority.

    More threads would read the disk during each other's pauses. The result is at least two, if
    `most` allows it.
    """
    if not makes_way():
        return most
    return min(most, max(_THREADS_MIN, _processors()))


class CpuShare:
    """Delays threads so that the process uses at most `SHARE` of its processors' time.

    Counts the CPU time of the whole process; Spark runs one Python process per task. Thread-safe.
    """

    def __init__(self, clock: Clock, used_s: Callable[[], float] = processor_s) -> None:
        """Count the calling thread's processors. `used_s` returns the process's CPU time."""
        self._clock = clock
        self._used_s = used_s
        self._lock = Lock()
        self._seen_s = used_s()
        self._looked_s = clock.monotonic_s()
        """Time of the last call."""
        self._bucket = TokenBucket(SHARE * _processors(), 0.0, self._looked_s)

    def passed(self, size_bytes: int) -> None:
        """Wait for the CPU time used since the last call; concurrent callers wait, too."""
        with self._lock:
            used_s, now_s = self._used_s(), self._clock.monotonic_s()
            # Used since the last call, so it counts from then on.
            due_s = self._bucket.spend(used_s - self._seen_s, self._looked_s)
            wait_s = due_s - (now_s - self._looked_s)
            self._seen_s, self._looked_s = used_s, now_s
        if wait_s > 0:
            self._clock.sleep_s(wait_s)


def _processors() -> int:
    has_affinity = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


class IoTurns:
    """Paces a low-priority thread's disk access: it pauses half of the time."""

    def __init__(self, clock: Clock) -> None:
        """Look at the calling thread's priority. Cost: two system calls at most."""
        self._clock = clock
        self._took_s = 0.0
        self.gentle = makes_way()

    def take(self, work: Callable[[], Result]) -> Result:
        """Pause for as long as the previous part took, then run `work`."""
        if not self.gentle:
            return work()
        self._clock.sleep_s(self._took_s)
        began_s = self._clock.monotonic_s()
        done = work()
        self._took_s = self._clock.monotonic_s() - began_s
        return done


Passed = Callable[[int], None]
"""Counts the given number of bytes, and waits for the time they take at the limited rate."""

_passed: ContextVar[Passed | None] = ContextVar("passed", default=None)


@contextmanager
def paced(passed: Passed) -> Iterator[None]:
    """Call `passed` after each part of this thread's puts, then that of an outer `paced`."""
    outer = _passed.get()

    def both(size_bytes: int) -> None:
        passed(size_bytes)
        if outer is not None:
            outer(size_bytes)

    token = _passed.set(both)
    try:
        yield
    finally:
        _passed.reset(token)


def is_paced() -> bool:
    """Return whether this thread's puts wait between their parts."""
    return _passed.get() is not None


def part_written(size_bytes: int) -> None:
    """Wait as the put's caller set with `paced`."""
    passed = _passed.get()
    if passed is not None:
        passed(size_bytes)


def throttled_by_priority(store: ObjectStore, clock: Clock) -> ObjectStore:
    """Return `store`, for a low-priority caller with waits that keep its processors mostly idle."""
    return ThrottledStore(store, CpuShare(clock).passed) if makes_way() else store


class IoThrottle:
    """Limits the rate of all threads together to `bytes_per_s`. Thread-safe."""

    def __init__(self, bytes_per_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        """Let `bytes_per_s` pass, all threads together."""
        self._clock = clock
        self._lock = Lock()
        self._bucket = TokenBucket(bytes_per_s, 0.0, clock.monotonic_s())

    def passed(self, size_bytes: int) -> None:
        """Count bytes that have passed, and wait as long as they should have taken."""
        with self._lock:
            wait_s = self._bucket.spend(size_bytes, self._clock.monotonic_s())
        if wait_s > 0:
            self._clock.sleep_s(wait_s)


class ThrottledStore(DelegatingStore):
    """Passes everything on, no faster than a throttle lets it."""

    def __init__(self, store: ObjectStore, passed: Passed) -> None:
        """Forward to `store`, which stays open; `passed` gets the bytes of each read or part."""
        super().__init__(store)
        self._passed = passed

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """See `ObjectStore.get`."""
        data = self._store.get(key, start, end)
        self._passed(len(data))
        return data

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        """See `ObjectStore.put_if_absent`."""
        return self._slowly(data, lambda: self._store.put_if_absent(key, data))

    def put(self, key: str, data: bytes) -> None:
        """See `ObjectStore.put`."""
        self._slowly(data, lambda: self._store.put(key, data))

    def close(self) -> None:
        """Leave the store open, which is its opener's to close."""

    def _slowly(self, data: Data, put: Callable[[], Result]) -> Result:
        """Put `data`, then wait for the bytes that the store did not report in parts."""
        left_bytes = len(data)

        def passed(size_bytes: int) -> None:
            nonlocal left_bytes
            left_bytes -= size_bytes
            self._passed(size_bytes)

        with paced(passed):
            done = put()
        if left_bytes > 0:
            self._passed(left_bytes)
        return done
