"""The store with bad days does to its users exactly what its plan says."""

from __future__ import annotations

import pytest

from sparklog.core.clock import ManualClock
from sparklog.core.entropy import SeededEntropy
from sparklog.core.errors import Unavailable
from sparklog.store.base import ObjectNotFound, PutOutcome, TransientStoreError
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import FaultyStore, InjectedFault, Rule

PUT, GET = frozenset({"put"}), frozenset({"get"})


def faulty(*rules: Rule, seed: int = 1) -> tuple[FaultyStore, MemoryStore, ManualClock]:
    clock = ManualClock()
    memory = MemoryStore("unit", clock)
    return FaultyStore(memory, rules, clock=clock, entropy=SeededEntropy(seed)), memory, clock


@pytest.mark.parametrize(
    ("fault", "outcome", "there"),
    [
        (InjectedFault.LOST_REQUEST, PutOutcome.UNKNOWN, False),
        (InjectedFault.LOST_REPLY, PutOutcome.UNKNOWN, True),
        (InjectedFault.SLOW, PutOutcome.CREATED, True),
    ],
)
def test_put_ends_as_its_fault_defines(
    fault: InjectedFault, outcome: PutOutcome, there: bool
) -> None:
    store, memory, _ = faulty(Rule(fault, PUT, delay_s=3.0))
    assert store.put_if_absent("a", b"x") is outcome
    assert [info.key for info in memory.list("")] == (["a"] if there else [])


@pytest.mark.parametrize(
    ("fault", "unsettled", "there"),
    [
        (InjectedFault.REFUSED, False, False),
        (InjectedFault.BUSY, True, False),
        (InjectedFault.BUSY_AFTER, True, True),
    ],
)
def test_refusal_states_if_the_put_may_have_happened(
    fault: InjectedFault, unsettled: bool, there: bool
) -> None:
    store, memory, _ = faulty(Rule(fault, PUT))
    with pytest.raises(TransientStoreError) as caught:
        store.put_if_absent("a", b"x")
    assert caught.value.unsettled is unsettled
    assert [info.key for info in memory.list("")] == (["a"] if there else [])


def test_late_put_appears_after_its_delay_unless_the_name_is_taken() -> None:
    store, memory, clock = faulty(Rule(InjectedFault.LATE, PUT, times_max=2, delay_s=5.0))
    assert store.put_if_absent("a", b"late") is PutOutcome.UNKNOWN
    assert store.put_if_absent("b", b"late") is PutOutcome.UNKNOWN
    assert store.put_if_absent("b", b"sooner") is PutOutcome.CREATED
    clock.sleep_s(4.9)
    with pytest.raises(ObjectNotFound):
        store.get("a")
    clock.sleep_s(0.2)
    assert store.get("a") == b"late"
    assert memory.get("b") == b"sooner"


def test_late_puts_can_be_delivered_at_once() -> None:
    store, memory, _ = faulty(Rule(InjectedFault.LATE, PUT, delay_s=1e9))
    store.put_if_absent("a", b"late")
    assert store.deliver_late() == 0
    assert store.deliver_late(everything=True) == 1
    assert memory.get("a") == b"late"


def test_a_rule_names_operations_a_prefix_and_how_often() -> None:
    store, _, _ = faulty(Rule(InjectedFault.REFUSED, GET, prefix="log/", times_max=2))
    store.put_if_absent("log/0", b"x")
    store.put_if_absent("other", b"x")
    assert store.get("other") == b"x"
    for _ in range(2):
        with pytest.raises(Unavailable):
            store.get("log/0")
    assert store.get("log/0") == b"x"
    assert [(one.operation, one.key) for one in store.injected] == [("get", "log/0")] * 2


def test_an_outage_begins_and_ends() -> None:
    store, _, clock = faulty(Rule(InjectedFault.REFUSED, from_s=10.0, until_s=20.0))
    store.put("a", b"x")
    for at_s, works in ((9.9, True), (10.0, False), (19.9, False), (20.0, True)):
        clock.sleep_s(at_s - clock.monotonic_s())
        if works:
            assert store.get("a") == b"x"
        else:
            for operation in (store.head, store.get, store.delete, lambda k: list(store.list(k))):
                with pytest.raises(Unavailable):
                    operation("a")


def test_slowness_takes_its_time() -> None:
    store, _, clock = faulty(Rule(InjectedFault.SLOW, delay_s=7.0))
    store.put("a", b"x")
    assert clock.monotonic_s() == 7.0


def test_the_same_seed_meets_the_same_faults_and_another_seed_others() -> None:
    def story(seed: int) -> list[str]:
        store, _, _ = faulty(Rule(InjectedFault.LOST_REPLY, PUT, probability=0.3), seed=seed)
        for n in range(100):
            store.put_if_absent(f"{n}", b"")
        return [one.key for one in store.injected]

    assert story(1) == story(1) != story(2)
    assert 15 < len(story(1)) < 45
