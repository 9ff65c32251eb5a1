"""Waits for the high watermark, for new records, and for memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sparklog.broker.partition.purgatory import (
    DelayedFetch,
    DelayedProduce,
    FetchWaits,
    OffsetWaits,
)
from sparklog.broker.produce.request import check_all
from sparklog.broker.runtime.environment import unfolding_budget
from sparklog.broker.runtime.memory_budget import MemoryBudget
from sparklog.core.errors import InvalidRecord, NotServing, Unavailable
from sparklog.core.types import PartitionId
from sparklog.log.tail.batch_validator import BatchRules
from sparklog.protocol.records.header import Codec
from tests.harness.broker_world import World
from tests.harness.wire_batches import raw_batch, record

ONE, TWO = PartitionId("t" * 22, 0), PartitionId("t" * 22, 1)


def test_a_produce_is_done_when_every_partition_got_there() -> None:
    world = World()

    async def story() -> None:
        request = DelayedProduce()
        waits = {p: OffsetWaits(p) for p in (ONE, TWO)}
        waits[ONE].add(5, request)
        waits[TWO].add(9, request)
        task = asyncio.ensure_future(request.wait(10))
        waits[ONE].reached(5)
        waits[TWO].reached(8)
        await asyncio.sleep(1)
        assert not task.done()
        waits[TWO].reached(9)
        await task
        assert world.loop.time() == 1
        assert not request.failed

    world.run(story())


def test_produce_time_out_names_the_waiting_partitions() -> None:
    world = World()

    async def story() -> None:
        request = DelayedProduce()
        waits = {p: OffsetWaits(p) for p in (ONE, TWO)}
        waits[ONE].add(5, request)
        waits[TWO].add(9, request)
        waits[TWO].reached(9)
        await request.wait(2)
        assert list(request.waiting) == [ONE]

    world.run(story())


def test_entries_of_requests_that_gave_up_do_not_pile_up() -> None:
    world = World()

    async def story() -> None:
        waits = OffsetWaits(ONE)
        for offset in range(500):
            request = DelayedProduce()
            waits.add(offset, request)
            await request.wait(0.001)
        assert len(waits) < 40

    world.run(story())


def test_a_partition_that_is_led_no_more_fails_its_waiters_at_once() -> None:
    world = World()

    async def story() -> None:
        request = DelayedProduce()
        waits = OffsetWaits(ONE)
        waits.add(5, request)
        waits.fail(NotServing("moved"))
        await request.wait(60)
        assert isinstance(request.failed[ONE], NotServing)
        assert world.loop.time() == 0

    world.run(story())


def test_fetch_wait_names_the_partitions_with_news() -> None:
    world = World()

    async def story() -> None:
        fetch = DelayedFetch()
        waits = {p: FetchWaits(p) for p in (ONE, TWO)}
        for one in waits.values():
            one.add(fetch)
        assert await fetch.wait(1) == []
        assert world.loop.time() == 1
        world.loop.call_later(1, waits[TWO].wake_all)
        assert await fetch.wait(60) == [TWO]
        assert world.loop.time() == 2
        waits[TWO].remove(fetch)
        waits[TWO].wake_all()
        assert await fetch.wait(3) == []
        world.loop.call_later(1, waits[ONE].mark_changed)
        world.loop.call_later(2, waits[ONE].wake_all)
        assert await fetch.wait(60) == [ONE]
        assert world.loop.time() == 5

    world.run(story())


def test_appends_wait_for_memory_in_their_turn() -> None:
    world = World()

    async def story() -> None:
        budget = MemoryBudget(100)
        assert budget.try_take(90)
        order: list[int] = []

        async def take(size_bytes: int) -> None:
            await budget.take(size_bytes, 60)
            order.append(size_bytes)

        tasks = [asyncio.ensure_future(take(n)) for n in (50, 5, 40)]
        await asyncio.sleep(1)
        assert order == []
        budget.give_back(90)
        await asyncio.gather(*tasks)
        assert order == [50, 5, 40]
        assert budget.used_bytes == 95

    world.run(story())


def test_append_without_memory_times_out_and_takes_nothing() -> None:
    world = World()

    async def story() -> None:
        budget = MemoryBudget(100)
        assert budget.try_take(100)
        with pytest.raises(Unavailable, match="slower than the producers"):
            await budget.take(1, 5)
        assert world.loop.time() == 5
        assert (budget.used_bytes, budget.waiting) == (100, 0)

    world.run(story())


def test_append_larger_than_the_budget_runs_alone() -> None:
    world = World()

    async def story() -> None:
        budget = MemoryBudget(100)
        assert budget.try_take(1)
        assert not budget.try_take(200)
        budget.give_back(1)
        assert budget.try_take(200)
        assert budget.is_nearly_full

    world.run(story())


def test_append_cancelled_at_its_turn_returns_its_memory() -> None:
    world = World()

    async def story() -> None:
        budget = MemoryBudget(100)
        assert budget.try_take(100)
        task = asyncio.ensure_future(budget.take(60, 60))
        await asyncio.sleep(1)
        budget.give_back(100)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert budget.used_bytes == 0

    world.run(story())


def test_unfolding_waits_in_turn_and_runs_oversize_work_alone() -> None:
    world = World()

    async def story() -> None:
        environment = replace(world.environment(), unfolding=unfolding_budget(100))
        held: list[int] = []

        async def unfold(size_bytes: int) -> None:
            await environment.unfold(
                size_bytes, None, lambda: held.append(environment.unfolding.used_bytes)
            )

        await asyncio.gather(*(unfold(n) for n in (60, 300, 50, 50, 0)))
        assert sorted(held)[-1] == 300
        assert all(used <= 100 or used == 300 for used in held)
        assert environment.unfolding.used_bytes == 0
        assert environment.unfolding.try_take(100)
        with pytest.raises(Unavailable, match="no memory to decompress"):
            await environment.unfold(1, 5, int)

    world.run(story())


def test_remembered_rejected_batch_keeps_no_decompressed_records() -> None:
    batch = raw_batch([record(0, bytes(100_000))], codec=Codec.ZSTD)
    rules = BatchRules(max_message_bytes=1 << 20, decompressed_bytes_max=50_000)
    (refused,) = check_all([(batch, rules)], 0)
    assert isinstance(refused, InvalidRecord)
    assert refused.__traceback__ is None
    assert refused.__cause__ is None
    assert refused.__context__ is None
