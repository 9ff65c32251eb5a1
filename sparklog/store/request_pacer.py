"""Sends fewer requests at a time while a store says that it gets too many.

S3 answers 503 SlowDown while it splits a busy prefix, for seconds to minutes. Retries alone keep
the number of concurrent requests, so the store refuses most of them again. Here a refusal halves
the number, at most once per round of requests, and each second without one adds `GROWTH_PER_S`.
No request fails for that: it waits for a place. Durations are seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from threading import Condition
from typing import Final

from sparklog.core.clock import Clock
from sparklog.core.counters import RequestCounters
from sparklog.core.per_process import PerProcess
from sparklog.store.base import Data, ObjectInfo, ObjectStore, PutOutcome, StoreBusy
from sparklog.store.delegating_store import DelegatingStore
from sparklog.store.metered import LIST_PAGE_KEYS

LEAST: Final = 2
"""Concurrent requests that are always allowed."""
GROWTH_PER_S: Final = 4.0
"""From 2 to 64 in 16 s, which is how long S3 takes to add capacity, and retries last."""
HALVED_EVERY_S: Final = 0.1
"""Requests that were sent together are refused together; that counts once."""
LOOK_S: Final = 0.05
"""A waiting thread looks so often whether the limit has grown."""


class Pace:
    """The number of concurrent requests that a store takes. Thread-safe; of one process only."""

    def __init__(self, most: int, clock: Clock) -> None:
        """Allow `most` requests at a time until the store refuses one."""
        self._most = float(most)
        self._clock = clock
        self._free = Condition()
        self._under_way = 0
        self._cut_to = self._most
        self._cut_at_s = clock.monotonic_s()

    @property
    def limit(self) -> int:
        """Return how many requests may be under way now."""
        grown = (self._clock.monotonic_s() - self._cut_at_s) * GROWTH_PER_S
        return int(min(self._most, self._cut_to + grown))

    @contextmanager
    def place(self) -> Iterator[None]:
        """Wait for a place, and keep it; a `StoreBusy` of the request lowers the limit."""
        with self._free:
            while self._under_way >= self.limit:
                self._free.wait(LOOK_S)
            self._under_way += 1
        try:
            yield
        except StoreBusy:
            self._slow_down()
            raise
        finally:
            with self._free:
                self._under_way -= 1
                self._free.notify()

    def _slow_down(self) -> None:
        with self._free:
            now_s = self._clock.monotonic_s()
            if now_s - self._cut_at_s >= HALVED_EVERY_S or self._cut_to == self._most:
                self._cut_to = max(LEAST, min(self.limit, self._under_way) / 2)
                self._cut_at_s = now_s


class PacingStore(DelegatingStore):
    """Passes everything on, as many requests at a time as the store takes. Safe after a fork."""

    def __init__(
        self, store: ObjectStore, most: int, counters: RequestCounters, clock: Clock
    ) -> None:
        """Pass at most `most` requests at a time to `store`; `counters` show the limit."""
        super().__init__(store)
        self._pace = PerProcess(lambda: Pace(most, clock))
        counters.concurrency_limit = lambda: self._pace.get().limit

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """See `ObjectStore.get`."""
        with self._pace.get().place():
            return self._store.get(key, start, end)

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        """See `ObjectStore.put_if_absent`."""
        with self._pace.get().place():
            return self._store.put_if_absent(key, data)

    def put(self, key: str, data: bytes) -> None:
        """See `ObjectStore.put`."""
        with self._pace.get().place():
            self._store.put(key, data)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`. Each page takes a place, but not while its keys are used."""
        listing = iter(self._store.list(prefix, start_after))
        while True:
            with self._pace.get().place():
                first = next(listing, None)
            if first is None:
                return
            yield first
            yield from islice(listing, LIST_PAGE_KEYS - 1)

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        with self._pace.get().place():
            self._store.delete(key)

    def delete_if(self, key: str, data: bytes) -> bool:
        """See `ObjectStore.delete_if`."""
        with self._pace.get().place():
            return self._store.delete_if(key, data)

    def retire(self, key: str) -> None:
        """See `ObjectStore.retire`."""
        with self._pace.get().place():
            self._store.retire(key)

    def head(self, key: str) -> ObjectInfo:
        """See `ObjectStore.head`."""
        with self._pace.get().place():
            return self._store.head(key)
