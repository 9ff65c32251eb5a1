"""Waiting produce requests: each is notified once, in time, and never from within a change."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from sparklog.broker.partition.purgatory import (
    LOOKED_THROUGH_FROM,
    DelayedProduce,
    OffsetWaits,
    ProducePurgatory,
)
from sparklog.core.errors import NotServing
from sparklog.core.types import PartitionId
from tests.harness.broker_world import World

ONE, TWO = PartitionId("t" * 22, 0), PartitionId("t" * 22, 1)


def waiting(*where: PartitionId) -> DelayedProduce:
    request = DelayedProduce()
    request.waiting = dict.fromkeys(where)
    return request


def test_request_is_notified_once_and_not_within_the_change() -> None:
    world = World()

    async def story() -> None:
        waits, offsets, told = ProducePurgatory(), OffsetWaits(ONE), list[float]()
        request = DelayedProduce()
        offsets.add(5, request)
        waits.add(request, world.loop.time() + 10, lambda: told.append(world.loop.time()))
        await asyncio.sleep(1)
        offsets.reached(5)
        assert (told, len(waits)) == ([], 0)
        await asyncio.sleep(0)
        assert told == [1]
        offsets.fail(NotServing("gone"))
        await asyncio.sleep(20)
        assert told == [1]

    world.run(story())


def test_request_that_times_out_names_its_waiting_partitions() -> None:
    world = World()

    async def story() -> None:
        waits, told = ProducePurgatory(), list[tuple[float, list[PartitionId]]]()
        for seconds in (7.0, 3.0, 5.0):
            request = waiting(ONE, TWO)
            waits.add(
                request,
                world.loop.time() + seconds,
                lambda request=request: told.append((world.loop.time(), list(request.waiting))),  # type: ignore[misc]
            )
            request.settle(TWO)
        assert len(waits) == 3
        await asyncio.sleep(10)
        assert told == [(3, [ONE]), (5, [ONE]), (7, [ONE])]
        assert len(waits) == 0

    world.run(story())


def test_request_with_a_past_deadline_is_notified_at_once() -> None:
    world = World()

    async def story() -> None:
        waits, told = ProducePurgatory(), list[float]()
        await asyncio.sleep(1)
        waits.add(waiting(ONE), 0.5, lambda: told.append(world.loop.time()))
        await asyncio.sleep(0.1)
        assert told == [1]

    world.run(story())


def test_settled_request_is_forgotten_before_its_deadline() -> None:
    world = World()

    async def story() -> None:
        waits, kept = ProducePurgatory(), weakref.WeakSet[Ended]()

        async def one() -> None:
            request, ended = waiting(ONE), Ended()
            kept.add(ended)
            waits.add(request, world.loop.time() + 30, ended)
            request.settle(ONE)
            await asyncio.sleep(0)

        for _ in range(20 * LOOKED_THROUGH_FROM):
            await one()
        gc.collect()
        assert not kept
        assert len(waits._deadlines) <= LOOKED_THROUGH_FROM

    world.run(story())


class Ended:
    """A callback that can be checked for being released."""

    def __call__(self) -> None:
        """Do nothing."""


def test_requests_are_notified_although_one_callback_fails() -> None:
    world = World()

    async def story() -> None:
        waits, told = ProducePurgatory(), list[str]()

        def broken() -> None:
            raise ZeroDivisionError

        requests = [waiting(ONE) for _ in range(3)]
        for request, end in zip(
            requests, (lambda: told.append("a"), broken, lambda: told.append("c")), strict=True
        ):
            waits.add(request, 10, end)
        for request in requests:
            request.settle(ONE)
        await asyncio.sleep(1)
        assert told == ["a", "c"]

    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        world.run(story())
