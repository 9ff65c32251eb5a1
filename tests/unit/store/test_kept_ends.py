"""KeptEnds: what it answers without a request, and that it answers right."""

from __future__ import annotations

import pytest

from sparklog.store.kept_ends import KEPT_BYTES_MAX, KeptEnds
from sparklog.store.memory import MemoryStore
from tests.harness.request_steps import RequestSteps, SteppedStore

DATA = bytes(range(256))


@pytest.fixture
def steps() -> RequestSteps:
    return RequestSteps()


@pytest.fixture
def ends(steps: RequestSteps) -> KeptEnds:
    store = MemoryStore("ends")
    store.put("a", DATA)
    return KeptEnds(SteppedStore(store, steps))


def test_a_small_object_is_read_once(ends: KeptEnds, steps: RequestSteps) -> None:
    assert ends.get("a", -1000) == DATA
    assert ends.get("a", -10) == DATA[-10:]
    assert ends.get("a", -2000) == DATA
    assert ends.get("a", 10, 20) == DATA[10:20]
    assert ends.get("a", 0, 256) == DATA
    assert ends.get("a", 256, 256) == b""
    assert ends.get("a", 5) == DATA[5:]
    assert ends.get("a") == DATA
    assert len(steps.requests) == 1
    assert ends.get("a", 250, 300) == DATA[250:]


def test_end_of_an_object_of_known_size_is_read_once(ends: KeptEnds, steps: RequestSteps) -> None:
    assert ends.get("a", -100) == DATA[-100:]
    assert ends.get("a", 200, 210) == DATA[200:210]
    assert len(steps.requests) == 2, "where the end begins is not known yet"
    ends.learn_size("a", len(DATA))
    assert ends.get("a", 156, 256) == DATA[156:]
    assert ends.get("a", -50) == DATA[-50:]
    assert len(steps.requests) == 2
    assert ends.get("a", 155, 256) == DATA[155:]
    assert ends.get("a", -101) == DATA[-101:]
    assert ends.get("a") == DATA
    assert len(steps.requests) == 5


def test_ends_are_kept_up_to_a_number_of_bytes(steps: RequestSteps) -> None:
    store = MemoryStore("ends")
    for name in "ab":
        store.put(name, bytes(KEPT_BYTES_MAX // 2 + 1))
    ends = KeptEnds(SteppedStore(store, steps))
    for name in "abab":
        assert len(ends.get(name, -KEPT_BYTES_MAX)) == KEPT_BYTES_MAX // 2 + 1
    assert [request[-1] for request in steps.requests] == ["a", "b", "b"]
    ends.forget("a")
    for name in "bba":
        ends.get(name, -KEPT_BYTES_MAX)
    assert [request[-1] for request in steps.requests][3:] == ["b", "a"]


def test_a_store_that_keeps_ends_is_not_wrapped_again(ends: KeptEnds) -> None:
    assert KeptEnds.over(ends) is ends
    assert KeptEnds.over(MemoryStore("ends")) is not ends
