"""Counters, latencies, and values that do not cross a fork."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from sparklog.core.counters import Latencies, RequestCount, RequestCounters, by_kind, diff
from sparklog.core.per_process import PerProcess
from sparklog.store.memory import MemoryStore
from sparklog.store.metered import LIST_PAGE_KEYS, MeteredStore


def test_counts_are_kept_by_kind_and_label() -> None:
    counters = RequestCounters()
    counters.add("get", "a", 10)
    counters.add("get", "b", 5)
    counters.add("put", "a", 1, requests=2)
    assert counters.by_kind() == {"get": RequestCount(2, 15), "put": RequestCount(2, 1)}
    assert counters.by_label() == {"a": RequestCount(3, 11), "b": RequestCount(1, 5)}
    counters.reset()
    assert counters.snapshot() == {}


def test_difference_contains_the_requests_in_between() -> None:
    counters = RequestCounters()
    counters.add("get", "a", 10)
    before = counters.snapshot()
    counters.add("get", "a", 1)
    counters.add("put", "b", 2)
    between = diff(before, counters.snapshot())
    assert between == {("get", "a"): RequestCount(1, 1), ("put", "b"): RequestCount(1, 2)}
    assert by_kind(between) == {"get": RequestCount(1, 1), "put": RequestCount(1, 2)}
    assert diff(before, before) == {}


def test_no_count_is_lost_between_threads() -> None:
    counters = RequestCounters()

    def count(_: int) -> None:
        for _ in range(2000):
            counters.add("get", "a", 3)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(8)))
    assert counters.by_kind() == {"get": RequestCount(16_000, 48_000)}


def test_a_listing_counts_its_pages() -> None:
    memory = MemoryStore("pages")
    for keys in (0, 1, LIST_PAGE_KEYS, LIST_PAGE_KEYS + 1, 3 * LIST_PAGE_KEYS):
        for n in range(keys):
            memory.put(f"{keys}/{n:05}", b"")
        counting = MeteredStore(memory, lambda key: "")
        assert len(list(counting.list(f"{keys}/"))) == keys
        assert counting.counters.by_kind()["list"].requests == max(1, -(-keys // LIST_PAGE_KEYS))


def test_percentiles_are_of_the_latest() -> None:
    latencies = Latencies(kept=100)
    assert latencies.percentile(0.5) is None
    for n in range(1000, 0, -1):
        latencies.add(n)
    assert len(latencies) == 100
    assert (latencies.percentile(0.0), latencies.percentile(0.5)) == (1, 51)
    assert (latencies.percentile(0.95), latencies.percentile(1.0)) == (96, 100)


def test_forked_child_has_its_own_value_and_keeps_its_parents() -> None:
    dropped: list[int] = []

    class Value:
        def __del__(self) -> None:
            dropped.append(os.getpid())

    values = PerProcess(Value)
    mine = id(values.get())
    pid = os.fork()
    if pid == 0:
        own = values.get()
        right = id(own) != mine and values.get() is own and values.take() is own
        del own
        alone = dropped == [os.getpid()]  # its own, and not the inherited one
        os._exit(0 if right and alone else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert id(values.get()) == mine
    assert dropped == []
    values.take()
    assert len(dropped) == 1
