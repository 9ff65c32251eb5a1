"""Retrying: how often, how long, and what it says at the end. Time is manual, faults by plan."""

from __future__ import annotations

from threading import Barrier, Thread

import pytest

from sparklog.core.clock import ManualClock
from sparklog.core.entropy import SeededEntropy
from sparklog.core.errors import Unavailable
from sparklog.store.base import ObjectNotFound, PutOutcome
from sparklog.store.memory import MemoryStore
from sparklog.store.metered import MeteredStore
from sparklog.store.retrying import RetryBudget, RetryingStore
from sparklog.store.settings import StoreSettings
from sparklog.testing.faulty_store import FaultyStore, InjectedFault, Rule

PUT = frozenset({"put"})


class RecordingClock(ManualClock):
    """Remembers how long it was asked to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses_s: list[float] = []

    def sleep_s(self, seconds: float) -> None:
        self.pauses_s.append(seconds)
        super().sleep_s(seconds)


def retrying(
    *rules: Rule, settings: StoreSettings | None = None, seed: int = 1
) -> tuple[RetryingStore, RecordingClock, MemoryStore]:
    clock, entropy = RecordingClock(), SeededEntropy(seed)
    memory = MemoryStore("unit", clock)
    counting = MeteredStore(
        FaultyStore(memory, rules, clock=clock, entropy=entropy), lambda key: ""
    )
    settings = settings if settings is not None else StoreSettings()
    store = RetryingStore(counting, counting.counters, settings, clock=clock, entropy=entropy)
    return store, clock, memory


def puts(store: RetryingStore) -> int:
    return store.counters.by_kind()["put"].requests


def test_store_does_not_wait_without_errors() -> None:
    store, clock, _ = retrying()
    assert store.put_if_absent("a", b"x") is PutOutcome.CREATED
    assert store.get("a") == b"x"
    assert [info.key for info in store.list("")] == ["a"]
    assert clock.pauses_s == []
    assert store.counters.retries() == store.counters.failures() == {}


@pytest.mark.parametrize("seed", range(20))
def test_pauses_are_drawn_below_a_bound_that_doubles_up_to_the_most(seed: int) -> None:
    settings = StoreSettings(retry_deadline_s=1000, retry_first_pause_ms=100, retry_burst=100)
    store, clock, _ = retrying(Rule(InjectedFault.BUSY, times_max=12), settings=settings, seed=seed)
    store.put("a", b"")
    bounds_s = [min(0.1 * 2**n, 5.0) for n in range(12)]
    assert len(clock.pauses_s) == 12
    assert all(0 <= p <= b for p, b in zip(clock.pauses_s, bounds_s, strict=True))
    assert len({round(p / b, 6) for p, b in zip(clock.pauses_s, bounds_s, strict=True)}) == 12


@pytest.mark.parametrize("deadline_s", [0.5, 5.0, 30.0, 300.0])
def test_no_operation_is_tried_longer_than_the_deadline(deadline_s: float) -> None:
    settings = StoreSettings(retry_deadline_s=deadline_s)
    store, clock, _ = retrying(Rule(InjectedFault.REFUSED), settings=settings)
    with pytest.raises(
        Unavailable, match=r"check that it is up.*operation=get.*root=memory://unit"
    ):
        store.get("a")
    assert clock.monotonic_s() <= deadline_s
    assert clock.monotonic_s() >= deadline_s - settings.retry_pause_max_ms / 1000


def test_an_answer_is_not_tried_again() -> None:
    store, clock, _ = retrying()
    with pytest.raises(ObjectNotFound):
        store.get("absent")
    with pytest.raises(ObjectNotFound):
        store.head("absent")
    assert store.counters.by_kind()["get"].requests == 1
    assert clock.pauses_s == []


def test_a_put_of_unknown_outcome_is_the_callers_to_repeat() -> None:
    for fault in (InjectedFault.LOST_REPLY, InjectedFault.LOST_REQUEST):
        store, clock, _ = retrying(Rule(fault, PUT, times_max=1))
        assert store.put_if_absent("a", b"x") is PutOutcome.UNKNOWN
        assert puts(store) == 1
        assert clock.pauses_s == []


def test_a_put_refused_to_the_end_was_not_written() -> None:
    store, _, memory = retrying(Rule(InjectedFault.REFUSED, PUT))
    with pytest.raises(Unavailable):
        store.put_if_absent("a", b"x")
    assert list(memory.list("")) == []


@pytest.mark.parametrize(
    ("fault", "there"), [(InjectedFault.BUSY, False), (InjectedFault.BUSY_AFTER, True)]
)
def test_a_put_answered_busy_to_the_end_is_unknown(fault: InjectedFault, there: bool) -> None:
    store, _, memory = retrying(Rule(fault, PUT, times_max=1), Rule(InjectedFault.REFUSED, PUT))
    assert store.put_if_absent("a", b"x") is PutOutcome.UNKNOWN
    assert [info.key for info in memory.list("")] == (["a"] if there else [])
    assert store.counters.failures() == {"put": 1}


def test_a_put_that_happened_although_busy_finds_itself() -> None:
    store, _, _ = retrying(Rule(InjectedFault.BUSY_AFTER, PUT, times_max=1))
    assert store.put_if_absent("a", b"mine") is PutOutcome.EXISTS
    assert store.get("a") == b"mine"


def test_an_outage_shorter_than_the_deadline_is_not_noticed() -> None:
    store, clock, _ = retrying(Rule(InjectedFault.REFUSED, until_s=20.0))
    assert store.put_if_absent("a", b"x") is PutOutcome.CREATED
    assert 20.0 <= clock.monotonic_s() <= 25.0
    assert store.counters.retries() == {"put": puts(store) - 1}
    assert store.counters.failures() == {}


def test_retries_of_all_threads_together_are_rationed() -> None:
    settings = StoreSettings(retry_burst=10, retry_per_s=5.0, retry_deadline_s=30.0)
    store, clock, _ = retrying(Rule(InjectedFault.REFUSED), settings=settings)
    for _ in range(40):
        with pytest.raises(Unavailable):
            store.get("a")
    retries = store.counters.by_kind()["get"].requests - 40
    assert 0 < retries <= 10 + 5.0 * clock.monotonic_s()
    assert store.counters.retries() == {"get": retries}
    assert store.counters.failures() == {"get": 40}


def test_retry_budget_spaces_retries_out_after_the_burst() -> None:
    budget = RetryBudget(burst=2, per_s=4.0)
    assert [budget.reserve(0.0) for _ in range(4)] == [0.0, 0.0, 0.25, 0.5]
    budget.give_back()
    assert budget.reserve(0.0) == 0.5
    assert budget.reserve(100.0) == 0.0
    assert budget.reserve(100.0) == 0.0
    assert budget.reserve(100.0) == 0.25


def test_the_budget_is_exact_under_threads() -> None:
    budget, barrier = RetryBudget(burst=100, per_s=1.0), Barrier(8)
    given: list[float] = []

    def take() -> None:
        barrier.wait()
        given.extend(budget.reserve(0.0) for _ in range(25))

    threads = [Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(given) == [0.0] * 100 + [float(n) for n in range(1, 101)]
