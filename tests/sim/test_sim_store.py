"""The simulated store: what its faults do, and that put-if-absent stays linearizable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from sparklog.core.entropy import SeededEntropy
from sparklog.core.errors import Unavailable
from sparklog.log.effects import create
from sparklog.store.base import ObjectNotFound, PutOutcome
from sparklog.testing.sim.store import SimObjects, SimStore, StoreFaults
from sparklog.testing.virtual_loop import Process, new_virtual_loop
from sparklog.testing.virtual_world import Trace

Result = TypeVar("Result")


def _world(faults: StoreFaults | None = None, seed: int = 1) -> SimObjects:
    loop = new_virtual_loop()
    world = SimObjects(loop, SeededEntropy(seed), Trace(loop))
    world.faults = faults or world.faults
    return world


def _run(world: SimObjects, program: Callable[[SimStore], Awaitable[Result]]) -> Result:
    return world.loop.run_until_complete(program(SimStore(world, "a")))


def test_every_operation_takes_time_and_acts_as_a_store() -> None:
    async def program(store: SimStore) -> None:
        assert await store.put_if_absent("a/1", b"one") is PutOutcome.CREATED
        assert await store.put_if_absent("a/1", b"other") is PutOutcome.EXISTS
        assert await store.get("a/1", -2) == b"ne"
        await store.put("a/2", b"hint")
        assert [info.key for info in await store.list("a/", "a/1")] == ["a/2"]
        await store.delete("a/1")
        with pytest.raises(ObjectNotFound):
            await store.get("a/1")

    world = _world()
    _run(world, program)
    assert 7 * 0.01 < world.loop.time() < 7 * 0.03
    assert world.requests == 7


def test_protocols_of_the_log_run_on_it() -> None:
    world = _world()
    _run(world, lambda store: store.run(create("x", b"data")))
    assert world.objects.get("x") == b"data"


def test_a_request_may_happen_although_its_sender_died() -> None:
    happened = 0
    for seed in range(40):
        world = _world(seed=seed)
        process = Process(world.loop, "a")
        process.spawn(SimStore(world, "a", process).put_if_absent("x", b"data"))
        world.loop.call_later(0.001, process.kill)
        world.loop.run_until_complete(asyncio.sleep(1.0))
        happened += bool(list(world.objects.list("")))
        world.loop.close()
    assert 5 < happened < 35


@pytest.mark.parametrize(
    ("faults", "outcome", "there_at_once", "there_later"),
    [
        (StoreFaults(lost_request=1), PutOutcome.UNKNOWN, False, False),
        (StoreFaults(lost_reply=1), PutOutcome.UNKNOWN, True, True),
        (StoreFaults(late=1), PutOutcome.UNKNOWN, False, True),
        (StoreFaults(own_exists=1), PutOutcome.EXISTS, True, True),
        (StoreFaults(slow=1), PutOutcome.CREATED, True, True),
    ],
)
def test_a_put_meets_its_fault(
    faults: StoreFaults, outcome: PutOutcome, there_at_once: bool, there_later: bool
) -> None:
    world = _world(faults)
    assert _run(world, lambda store: store.put_if_absent("x", b"data")) is outcome
    assert [info.key for info in world.objects.list("")] == (["x"] if there_at_once else [])
    world.loop.run_until_complete(asyncio.sleep(20.0))
    assert [info.key for info in world.objects.list("")] == (["x"] if there_later else [])


@pytest.mark.parametrize(
    "faults", [StoreFaults(refused=1), StoreFaults(lost_request=1), StoreFaults(lost_reply=1)]
)
def test_a_read_without_an_answer_is_unavailable(faults: StoreFaults) -> None:
    with pytest.raises(Unavailable):
        _run(_world(faults), lambda store: store.get("x"))


def test_a_refused_put_wrote_nothing() -> None:
    world = _world(StoreFaults(refused=1))
    with pytest.raises(Unavailable):
        _run(world, lambda store: store.put_if_absent("x", b"data"))
    assert list(world.objects.list("")) == []


def test_a_host_that_is_cut_off_gets_no_answer_while_others_do() -> None:
    world = _world()
    world.cut_off.add("a")
    assert _run(world, lambda store: store.put_if_absent("x", b"1")) is PutOutcome.UNKNOWN
    other = SimStore(world, "b")
    assert world.loop.run_until_complete(other.put_if_absent("x", b"2")) is PutOutcome.CREATED


def test_one_of_all_racing_puts_is_stored_under_any_faults() -> None:
    async def race(world: SimObjects) -> list[PutOutcome]:
        puts = [SimStore(world, host).put_if_absent("x", host.encode()) for host in "abcdef"]
        return await asyncio.gather(*puts)

    seen = set()
    for seed in range(50):
        world = _world(StoreFaults(late=0.3, lost_reply=0.3, lost_request=0.1), seed)
        outcomes = world.loop.run_until_complete(race(world))
        world.loop.run_until_complete(asyncio.sleep(20.0))
        assert outcomes.count(PutOutcome.CREATED) <= 1
        if PutOutcome.CREATED in outcomes:
            winner = "abcdef"[outcomes.index(PutOutcome.CREATED)]
            assert world.objects.get("x") == winner.encode()
        seen.update(outcomes)
    assert seen == set(PutOutcome)
