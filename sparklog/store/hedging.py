"""Sends a slow GET a second time and takes the first answer.

"Slow" adapts: longer than a percentile of the recent GETs of about the same size. A budget caps the
hedges at a share of the GETs. If many recent GETs were slow, the whole store is slow, and no hedge
adds to its load. Puts are never hedged. Durations are seconds.
"""

from __future__ import annotations

from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from threading import Lock

from sparklog.core.clock import Clock
from sparklog.core.counters import Latencies
from sparklog.core.per_process import PerProcess
from sparklog.store.base import ObjectStore, TransientStoreError
from sparklog.store.delegating_store import DelegatingStore
from sparklog.store.settings import StoreSettings

RECENT = 20
"""GETs that distinguish one slow request from a slow store."""
SLOW_FACTOR = 2.0
"""A GET that took this many medians was slow."""
SLOW_SHARE_MAX = 0.3
"""Share of the recent GETs that may have been slow while hedging stays on."""
BUDGET_KEPT_MAX = 10.0
"""Hedges that can be saved up in quiet times."""
SIZE_STEP_BITS = 2
"""Sizes within a factor of four share their latencies."""


class HedgePolicy:
    """Decides when a GET is overdue. Knows no threads or requests; thread-safe."""

    def __init__(self, settings: StoreSettings) -> None:
        """Start without experience: nothing is overdue yet."""
        self._settings = settings
        self._latencies: dict[int | None, Latencies] = {}
        self._budget = 0.0
        self._lock = PerProcess(Lock)

    def patience_s(self, size_bytes: int | None) -> float | None:
        """Return how long to wait for a GET of that size; None for as long as it takes."""
        settings = self._settings
        with self._lock.get():
            self._budget = min(BUDGET_KEPT_MAX, self._budget + settings.hedge_share_max)
        seen = self._of(size_bytes).last()
        if len(seen) < settings.hedge_samples_min:
            return None
        recent, ordered = seen[-RECENT:], sorted(seen)
        least_s = settings.hedge_after_min_ms / 1000
        slow_s = max(SLOW_FACTOR * ordered[len(ordered) // 2], least_s)
        if sum(one > slow_s for one in recent) > SLOW_SHARE_MAX * len(recent):
            return None
        at = min(len(ordered) - 1, int(settings.hedge_percentile * len(ordered)))
        return max(ordered[at], least_s)

    def spend(self) -> bool:
        """Take one hedge from the budget; False if there is none."""
        with self._lock.get():
            if self._budget < 1.0:
                return False
            self._budget -= 1.0
            return True

    def finished(self, size_bytes: int | None, seconds: float) -> None:
        """Learn from the first request of a GET, hedged or not."""
        self._of(size_bytes).add(seconds)

    def _of(self, size_bytes: int | None) -> Latencies:
        kind = None if size_bytes is None else size_bytes.bit_length() // SIZE_STEP_BITS
        found = self._latencies.get(kind)
        return found if found is not None else self._latencies.setdefault(kind, Latencies())


class HedgingStore(DelegatingStore):
    """Passes everything on, slow GETs twice. Safe to use after a fork."""

    def __init__(self, store: ObjectStore, settings: StoreSettings, clock: Clock) -> None:
        """Hedge the GETs of `store`."""
        super().__init__(store)
        self.policy = HedgePolicy(settings)
        self._clock = clock
        threads = 2 * settings.connections_max
        self._pool = PerProcess(lambda: ThreadPoolExecutor(threads, "sparklog-hedge"))

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """See `ObjectStore.get`."""
        size_bytes = _size(start, end)
        patience_s = self.policy.patience_s(size_bytes)
        if patience_s is None:
            return self._timed(key, start, end, size_bytes)
        pool = self._pool.get()
        first = pool.submit(self._timed, key, start, end, size_bytes)
        if not wait((first,), patience_s).done and self.policy.spend():
            return _first_answer(first, pool.submit(self._store.get, key, start, end))
        return first.result()

    def close(self) -> None:
        """Stop the threads and close the store; a later GET starts new ones."""
        pool = self._pool.take()
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
        self._store.close()

    def _timed(self, key: str, start: int | None, end: int | None, size_bytes: int | None) -> bytes:
        began_s = self._clock.monotonic_s()
        data = self._store.get(key, start, end)
        self.policy.finished(size_bytes, self._clock.monotonic_s() - began_s)
        return data


def _first_answer(first: Future[bytes], second: Future[bytes]) -> bytes:
    """Return the first result; after a transient error, wait for the other request."""
    done = wait((first, second), return_when=FIRST_COMPLETED).done
    sooner, later = (first, second) if first in done else (second, first)
    if isinstance(sooner.exception(), TransientStoreError):
        return later.result()
    return sooner.result()


def _size(start: int | None, end: int | None) -> int | None:
    """Return the number of bytes requested; None if it depends on the object's size."""
    if end is not None:
        return max(0, end - (start or 0))
    return -start if start is not None and start < 0 else None
