"""Tries again when a store says "not now".

Pauses are drawn from zero up to a bound that doubles (full jitter), so that clients that failed
together do not come back together. All requests of one store share a retry budget. During an outage
first tries are always sent, but the budget limits retries, so the load does not multiply.

A put whose outcome is UNKNOWN is not sent again here: its caller reads back and compares the nonce.
A put that the store answered with "not now" is sent again. A following EXISTS may be its own first
copy; the caller's nonce shows that, too. Durations are seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock
from typing import TypeVar

from sparklog.core.clock import Clock
from sparklog.core.counters import RequestCounters
from sparklog.core.entropy import Entropy
from sparklog.core.errors import Unavailable
from sparklog.core.per_process import PerProcess
from sparklog.store.base import Data, ObjectInfo, ObjectStore, PutOutcome, TransientStoreError
from sparklog.store.delegating_store import DelegatingStore
from sparklog.store.settings import StoreSettings

T = TypeVar("T")


class RetryBudget:
    """Limits retries: a burst, then a fixed rate per second. Thread-safe."""

    def __init__(self, burst: int, per_s: float) -> None:
        """Start with the whole burst."""
        self._burst = float(burst)
        self._per_s = per_s
        self._left = float(burst)
        self._at_s: float | None = None
        self._lock = PerProcess(Lock)

    def reserve(self, now_s: float) -> float:
        """Take one permission and return how many seconds from now it becomes valid."""
        with self._lock.get():
            if self._at_s is not None:
                earned = (now_s - self._at_s) * self._per_s
                self._left = min(self._burst, self._left + max(0.0, earned))
            self._at_s = now_s
            self._left -= 1
            return max(0.0, -self._left / self._per_s)

    def give_back(self) -> None:
        """Return a permission that was not used."""
        with self._lock.get():
            self._left = min(self._burst, self._left + 1)


class RetryingStore(DelegatingStore):
    """Forwards each request, and repeats it after transient errors until `retry_deadline_s`."""

    def __init__(
        self,
        store: ObjectStore,
        counters: RequestCounters,
        settings: StoreSettings,
        *,
        clock: Clock,
        entropy: Entropy,
        budget: RetryBudget | None = None,
    ) -> None:
        """Retry requests to `store`; `counters` count the requests that were sent."""
        super().__init__(store)
        self.counters = counters
        self._settings = settings
        self._clock = clock
        self._entropy = entropy
        self._budget = budget or RetryBudget(settings.retry_burst, settings.retry_per_s)

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """See `ObjectStore.get`."""
        return self._again("get", key, lambda: self._store.get(key, start, end))

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        """See `ObjectStore.put_if_absent`."""
        patience: _Patience | None = None
        unsettled = False
        while True:
            try:
                return self._store.put_if_absent(key, data)
            except TransientStoreError as transient:
                patience = patience or self._patience("put", key)
                unsettled |= transient.unsettled
                if not patience.pause():
                    if unsettled:
                        return PutOutcome.UNKNOWN
                    raise patience.exhausted(transient) from transient

    def put(self, key: str, data: bytes) -> None:
        """See `ObjectStore.put`."""
        self._again("put", key, lambda: self._store.put(key, data))

    def check_puts(self) -> None:
        """See `ObjectStore.check_puts`."""
        self._again("put", "", self._store.check_puts)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`. After a page that failed it goes on behind the last key."""
        patience = self._patience("list", prefix)
        while True:
            last = start_after
            try:
                for info in self._store.list(prefix, start_after):
                    start_after = info.key
                    yield info
            except TransientStoreError as transient:
                if start_after != last:
                    patience = self._patience("list", prefix)
                if not patience.pause():
                    raise patience.exhausted(transient) from transient
            else:
                return

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        self._again("delete", key, lambda: self._store.delete(key))

    def delete_if(self, key: str, data: bytes) -> bool:
        """See `ObjectStore.delete_if`."""
        return self._again("delete", key, lambda: self._store.delete_if(key, data))

    def retire(self, key: str) -> None:
        """See `ObjectStore.retire`."""
        self._again("delete", key, lambda: self._store.retire(key))

    def head(self, key: str) -> ObjectInfo:
        """See `ObjectStore.head`."""
        return self._again("head", key, lambda: self._store.head(key))

    def unforced(self) -> RetryingStore | None:
        """See `ObjectStore.unforced`; it shares this store's retry budget."""
        store = self._store.unforced()
        if store is None:
            return None
        return RetryingStore(
            store,
            self.counters,
            self._settings,
            clock=self._clock,
            entropy=self._entropy,
            budget=self._budget,
        )

    def _again(self, operation: str, key: str, request: Callable[[], T]) -> T:
        patience: _Patience | None = None
        while True:
            try:
                return request()
            except TransientStoreError as transient:
                patience = patience or self._patience(operation, key)
                if not patience.pause():
                    raise patience.exhausted(transient) from transient

    def _patience(self, operation: str, key: str) -> _Patience:
        where = f"root={self.url} key={key}"
        return _Patience(
            operation,
            where,
            self.counters,
            self._settings,
            self._budget,
            self._clock,
            self._entropy,
        )


class _Patience:
    """The retries of one operation: their pauses and their deadline."""

    def __init__(
        self,
        operation: str,
        where: str,
        counters: RequestCounters,
        settings: StoreSettings,
        budget: RetryBudget,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._operation = operation
        self._where = where
        self._counters = counters
        self._settings = settings
        self._budget = budget
        self._clock = clock
        self._entropy = entropy
        self._started_s = clock.monotonic_s()
        self._tries = 1

    def pause(self) -> bool:
        """Wait before the next try; False if that would pass the deadline."""
        settings = self._settings
        now_s = self._clock.monotonic_s()
        doubled_ms = settings.retry_first_pause_ms * 2.0 ** min(self._tries - 1, 32)
        pause_s = self._entropy.random() * min(doubled_ms, settings.retry_pause_max_ms) / 1000
        pause_s = max(pause_s, self._budget.reserve(now_s))
        if now_s + pause_s - self._started_s > settings.retry_deadline_s:
            self._budget.give_back()
            self._counters.failed(self._operation)
            return False
        self._counters.retried(self._operation)
        self._clock.sleep_s(pause_s)
        self._tries += 1
        return True

    def exhausted(self, transient: TransientStoreError) -> Unavailable:
        """Return the error for the caller."""
        waited_s = self._clock.monotonic_s() - self._started_s
        return Unavailable(
            "the store does not answer; check that it is up and can be reached from here, then try "
            f"again. operation={self._operation} {self._where} tries={self._tries} "
            f"waited_s={waited_s:.1f} last=({transient})"
        )
