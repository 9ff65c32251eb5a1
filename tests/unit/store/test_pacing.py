"""Pacing: refusals lower the number of concurrent requests, and time raises it again."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sparklog.core.clock import SYSTEM_CLOCK, ManualClock
from sparklog.core.counters import RequestCounters
from sparklog.store.base import StoreBusy, TransientStoreError
from sparklog.store.memory import MemoryStore
from sparklog.store.request_pacer import GROWTH_PER_S, HALVED_EVERY_S, LEAST, Pace, PacingStore

MOST = 16
WITHIN_S = 30.0


def refuse(pace: Pace, together: int) -> None:
    """Have `together` requests under way, which the store refuses one after the other."""
    if not together:
        return
    try:
        with pace.place():
            refuse(pace, together - 1)
            raise StoreBusy("503", unsettled=True)
    except StoreBusy:
        pass


def test_requests_refused_together_halve_the_limit_once() -> None:
    pace = Pace(MOST, ManualClock())
    assert pace.limit == MOST
    refuse(pace, 12)
    assert pace.limit == 6


def test_limit_recovers_with_time_and_never_falls_below_the_least() -> None:
    clock = ManualClock()
    pace = Pace(MOST, clock)
    for _ in range(20):
        refuse(pace, 1)
        clock.sleep_s(HALVED_EVERY_S)
    assert pace.limit == LEAST
    clock.sleep_s((MOST - LEAST) / 2 / GROWTH_PER_S)
    assert LEAST < pace.limit < MOST
    clock.sleep_s(MOST / GROWTH_PER_S)
    assert pace.limit == MOST


def test_other_errors_leave_the_limit_alone() -> None:
    pace = Pace(MOST, ManualClock())
    with pytest.raises(TransientStoreError), pace.place():
        raise TransientStoreError("500", unsettled=True)
    assert pace.limit == MOST


class CountingStore(MemoryStore):
    """Notes how many requests are under way at most, and refuses some first."""

    def __init__(self) -> None:
        super().__init__("counted")
        self.refuses = False
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        if self.refuses:
            raise StoreBusy("503", unsettled=True)
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        SYSTEM_CLOCK.sleep_s(0.002)  # as long as a request is under way
        with self._lock:
            self._now -= 1
        return super().get(key, start, end)


def test_more_threads_than_the_limit_wait_and_all_are_answered() -> None:
    inner, counters = CountingStore(), RequestCounters()
    store = PacingStore(inner, MOST, counters, ManualClock())
    assert counters.concurrency_limit is not None
    store.put("key", b"data")
    inner.refuses = True
    with pytest.raises(StoreBusy):
        store.get("key")
    inner.refuses = False
    assert counters.concurrency_limit() == LEAST
    with ThreadPoolExecutor(MOST) as pool:
        found = list(pool.map(lambda _: store.get("key"), range(100), timeout=WITHIN_S))
    assert found == [b"data"] * 100
    assert inner.most == LEAST


def test_a_listing_holds_no_place_while_its_keys_are_used() -> None:
    store = PacingStore(MemoryStore("listed"), 1, RequestCounters(), ManualClock())
    for name in ("a", "b"):
        store.put(name, name.encode())
    assert [store.get(info.key) for info in store.list("")] == [b"a", b"b"]
