"""A store that is asked for no more than so many bytes a second, as Kafka's log cleaner is.

Reads and writes count alike. Whoever would be faster waits, so a burst is at most what is read at
once by each thread, or one part of what is written. Work that makes way for others waits in the
same places, for the processors that it used in between. Units: bytes, seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock
from typing import TypeVar

from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.store.base import Data, ObjectInfo, ObjectStore, PutOutcome
from sparklog.store.making_way import ProcessorShare, makes_way
from sparklog.store.pacing import Passed, paced

Result = TypeVar("Result")


def making_way_by(store: ObjectStore, clock: Clock) -> ObjectStore:
    """Return the store for who makes way: it is waited for, so that processors are idle, too."""
    return ThrottledStore(store, ProcessorShare(clock).passed) if makes_way() else store


class Throttle:
    """Makes those wait who pass more than `bytes_per_s`. Thread-safe."""

    def __init__(self, bytes_per_s: float, clock: Clock = SYSTEM_CLOCK) -> None:
        """Let `bytes_per_s` pass, all threads together."""
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._lock = Lock()
        self._free_s = clock.monotonic_s()
        """When everything that has passed has had its time."""

    def passed(self, size_bytes: int) -> None:
        """Count bytes that have passed, and wait as long as they should have taken."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            self._free_s = max(self._free_s, now_s) + size_bytes / self._bytes_per_s
            wait_s = self._free_s - now_s
        if wait_s > 0:
            self._clock.sleep_s(wait_s)


class ThrottledStore(ObjectStore):
    """Passes everything on, no faster than a throttle lets it."""

    def __init__(self, store: ObjectStore, passed: Passed) -> None:
        """Read and write through `store`; it stays whose it is, and open. `passed` is told."""
        self.url = store.url
        self._store = store
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

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`."""
        return self._store.list(prefix, start_after)

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        self._store.delete(key)

    def retire(self, key: str) -> None:
        """See `ObjectStore.retire`."""
        self._store.retire(key)

    def tidy(self, prefix: str) -> None:
        """See `ObjectStore.tidy`."""
        self._store.tidy(prefix)

    def head(self, key: str) -> ObjectInfo:
        """See `ObjectStore.head`."""
        return self._store.head(key)

    def _slowly(self, data: Data, put: Callable[[], Result]) -> Result:
        """Put `data`; what the store did not say in parts is waited for afterwards."""
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
