"""Hedging: when a second GET is sent, and when not."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.store.base import ObjectNotFound, TransientStoreError
from sparklog.store.hedging import BUDGET_KEPT_MAX, HedgePolicy, HedgingStore
from sparklog.store.memory import MemoryStore
from sparklog.store.metered import MeteredStore
from sparklog.store.settings import StoreSettings

SETTINGS = StoreSettings(hedge_samples_min=20, hedge_after_min_ms=1)


def seasoned(*latencies_s: float, size: int | None = 100) -> HedgePolicy:
    policy = HedgePolicy(SETTINGS)
    for one in latencies_s:
        policy.finished(size, one)
    return policy


def test_request_is_never_overdue_without_experience() -> None:
    assert seasoned(*[0.01] * 19).patience_s(100) is None
    assert seasoned(*[0.01] * 20).patience_s(100) == 0.01


def test_a_get_is_overdue_after_the_percentile_of_its_own_size() -> None:
    policy = seasoned(*[0.01] * 94, *[0.05], *[0.01] * 5)
    assert policy.patience_s(100) == 0.01
    policy = seasoned(*[0.01, 0.012, 0.014, 0.016, 0.018] * 20)
    assert policy.patience_s(100) == 0.018
    assert policy.patience_s(120) == 0.018
    assert policy.patience_s(100_000_000) is None
    assert policy.patience_s(None) is None


def test_a_get_is_never_overdue_sooner_than_the_least_wait() -> None:
    assert seasoned(*[0.0001] * 50).patience_s(100) == 0.001


def test_uniformly_slow_requests_are_not_hedged() -> None:
    policy = seasoned(*[0.01] * 100)
    assert policy.patience_s(100) is not None
    for _ in range(7):
        policy.finished(100, 0.5)
    assert policy.patience_s(100) is None
    for _ in range(20):
        policy.finished(100, 0.01)
    assert policy.patience_s(100) is not None
    for _ in range(300):
        policy.finished(100, 0.5)
    assert policy.patience_s(100) == 0.5


def test_hedges_are_a_bounded_share_of_gets() -> None:
    policy = seasoned(*[0.01] * 100)
    hedges = 0
    for _ in range(1000):
        policy.patience_s(100)
        hedges += policy.spend()
    assert hedges == pytest.approx(1000 * SETTINGS.hedge_share_max, abs=1)


def test_a_quiet_time_saves_up_only_so_many_hedges() -> None:
    policy = seasoned(*[0.01] * 100)
    for _ in range(10_000):
        policy.patience_s(100)
    assert sum(policy.spend() for _ in range(100)) == BUDGET_KEPT_MAX


class Hanging(MemoryStore):
    """Holds chosen GETs until the test releases them, and then does to them what `then` does."""

    def __init__(self) -> None:
        super().__init__("hanging")
        self.hang = 0
        self.go_on = threading.Event()
        self.then: Callable[[], None] = lambda: None
        self._turn = threading.Lock()

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        with self._turn:
            hangs, self.hang = self.hang > 0, max(0, self.hang - 1)
        if hangs:
            assert self.go_on.wait(30)
            self.then()
        return super().get(key, start, end)


@pytest.fixture
def hanging() -> Hanging:
    store = Hanging()
    store.put_if_absent("a", b"0123456789")
    return store


def hedged(store: Hanging) -> tuple[HedgingStore, MeteredStore]:
    counting = MeteredStore(store, lambda key: "")
    hedging = HedgingStore(counting, SETTINGS, SYSTEM_CLOCK)
    for _ in range(40):
        assert hedging.get("a", 0, 4) == b"0123"  # earns the budget
    hedging.policy._latencies.clear()  # but what the machine's own noise taught is forgotten
    for _ in range(40):
        hedging.policy.finished(4, 0.001)
    counting.counters.reset()
    return hedging, counting


def test_the_second_request_answers_for_one_that_hangs(hanging: Hanging) -> None:
    hedging, counting = hedged(hanging)
    hanging.hang = 1
    assert hedging.get("a", 0, 4) == b"0123"
    assert not hanging.go_on.is_set()
    hanging.go_on.set()
    hedging.close()
    assert counting.counters.by_kind()["get"].requests <= 2


def test_absence_is_an_answer_too(hanging: Hanging) -> None:
    hedging, _ = hedged(hanging)
    hanging.hang = 1
    with pytest.raises(ObjectNotFound):
        hedging.get("b", 0, 4)
    assert not hanging.go_on.is_set()
    hanging.go_on.set()
    hedging.close()


def test_weather_in_one_request_leaves_the_answer_to_the_other(hanging: Hanging) -> None:
    hedging, _ = hedged(hanging)
    hanging.hang = 2
    faults = iter([TransientStoreError("by plan", unsettled=True)])

    def then() -> None:
        for one in faults:
            raise one

    hanging.then = then
    threading.Timer(0.05, hanging.go_on.set).start()
    assert hedging.get("a", 0, 4) == b"0123"
    hedging.close()


def test_a_store_without_budget_waits_for_its_first_request(hanging: Hanging) -> None:
    hedging, counting = hedged(hanging)
    while hedging.policy.spend():
        pass
    hanging.hang = 1
    threading.Timer(0.05, hanging.go_on.set).start()
    assert hedging.get("a", 0, 4) == b"0123"
    assert counting.counters.by_kind()["get"].requests == 1
    hedging.close()


def test_other_requests_are_passed_on(hanging: Hanging) -> None:
    hedging, _ = hedged(hanging)
    hedging.put("b", b"x")
    hedging.put_if_absent("c", b"y")
    assert [info.key for info in hedging.list("", "a")] == ["b", "c"]
    assert hedging.head("c").size_bytes == 1
    hedging.delete("b")
    assert [info.key for info in hedging.list("")] == ["a", "c"]
    hedging.close()
    assert hedging.get("a") == b"0123456789"
