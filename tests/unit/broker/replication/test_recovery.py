"""Places for partitions that are recovered: those that clients write to come first."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from sparklog.broker.replication.recovery import (
    INTERNAL_BESIDE_OTHERS,
    RECOVERIES_MAX,
    RecoveryQueue,
)


class Recoveries:
    """Partitions that wait for a slot, and hold it until the test ends them."""

    def __init__(self) -> None:
        self.order = RecoveryQueue()
        self.placed: list[str] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ends: dict[str, asyncio.Event] = {}

    def want(self, *names: str, internal: bool) -> None:
        for name in names:
            self._ends[name] = asyncio.Event()
            self._tasks[name] = asyncio.ensure_future(self._recover(name, internal))

    def want_many(self, count: int) -> list[str]:
        names = [f"mine {n}" for n in range(count)]
        for name in names:
            self.want(name, internal=False)
        return names

    async def end(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()
            await self._tasks[name]

    async def cancel(self, *names: str) -> None:
        for name in names:
            self._tasks[name].cancel()
        await asyncio.gather(*(self._tasks[name] for name in names), return_exceptions=True)

    async def _recover(self, name: str, internal: bool) -> None:
        with self.order.announce(internal=internal):
            await asyncio.sleep(0)
            async with self.order.slot(internal=internal):
                self.placed.append(name)
                await self._ends[name].wait()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 10))


def test_internal_partitions_get_few_slots_beside_others() -> None:
    async def story() -> None:
        recoveries = Recoveries()
        internal = [f"internal {n}" for n in range(RECOVERIES_MAX + 1)]
        recoveries.want(*internal, internal=True)
        recoveries.want("mine", internal=False)
        await settle()
        assert recoveries.placed == [*internal[:INTERNAL_BESIDE_OTHERS], "mine"]
        await recoveries.end("mine")
        await settle()
        assert recoveries.placed == [
            *internal[:INTERNAL_BESIDE_OTHERS],
            "mine",
            *internal[INTERNAL_BESIDE_OTHERS:-1],
        ]
        await recoveries.end(*internal)

    run(story())


def test_recovery_slots_are_bounded_and_go_to_the_longest_waiter() -> None:
    async def story() -> None:
        recoveries = Recoveries()
        names = recoveries.want_many(RECOVERIES_MAX + 2)
        await settle()
        assert recoveries.placed == names[:RECOVERIES_MAX]
        await recoveries.end(names[3])
        await settle()
        assert recoveries.placed == names[: RECOVERIES_MAX + 1]
        await recoveries.end(*(name for name in names if name != names[3]))

    run(story())


def test_cancelled_recovery_leaves_no_slot_taken() -> None:
    async def story() -> None:
        recoveries = Recoveries()
        names = recoveries.want_many(RECOVERIES_MAX + 2)
        await settle()
        await recoveries.cancel(names[0], names[-1])
        await settle()
        assert recoveries.placed == names[:-1]
        recoveries.want("late", internal=False)
        await recoveries.end(*names[1:-1])
        await settle()
        assert recoveries.placed == [*names[:-1], "late"]
        await recoveries.end("late")

    run(story())
