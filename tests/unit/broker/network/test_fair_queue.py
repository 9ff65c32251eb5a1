"""A queue in which addresses take turns: its order, and its bounds."""

from __future__ import annotations

import pytest

from sparklog.broker.network.fair_queue import FairQueue


def test_addresses_take_turns_and_each_keeps_its_order() -> None:
    queue = FairQueue[str](100, 100)
    for host, item in [("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1")]:
        assert queue.add(host, item)
    assert [queue.pop(), queue.pop()] == ["a1", "b1"]
    queue.add("b", "b2")
    assert [queue.pop() for _ in range(len(queue))] == ["c1", "a2", "b2", "a3"]
    with pytest.raises(LookupError):
        queue.pop()


def test_one_address_does_not_take_the_places_of_others() -> None:
    queue = FairQueue[int](4, 3)
    assert [queue.add("a", number) for number in range(5)] == [True, True, True, False, False]
    assert queue.add("b", 10)
    assert not queue.add("b", 11)  # all places are taken: a further address has one
    assert queue.add("c", 20)
    assert queue.add("d", 30)
    assert not queue.add("e", 40)
    assert len(queue) == 6


def test_a_removed_item_gives_its_place_back() -> None:
    queue = FairQueue[int](2, 2)
    queue.add("a", 1)
    queue.add("a", 2)
    assert queue.remove("a", 1)
    assert not queue.remove("a", 1)
    assert not queue.remove("b", 2)
    assert queue.add("a", 3)
    assert [queue.pop(), queue.pop()] == [2, 3]
    assert len(queue) == 0
