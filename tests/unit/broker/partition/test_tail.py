"""Turns at partitions: first come, first served, without deadlock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sparklog.broker.partition.tail import AppendQueue, AppendTicket
from sparklog.testing.virtual_loop import new_virtual_loop


def test_turns_come_in_the_order_in_which_they_were_taken() -> None:
    loop = new_virtual_loop()
    turns = AppendQueue()
    seen: list[int] = []

    async def request(number: int) -> None:
        async with turns.turn():
            await asyncio.sleep(0.1 * (5 - number))
            seen.append(number)

    async def story() -> None:
        await asyncio.gather(*map(request, range(5)))

    loop.run_until_complete(story())
    loop.close()
    assert seen == [0, 1, 2, 3, 4]


def test_append_that_leaves_the_queue_early_blocks_no_other() -> None:
    loop = new_virtual_loop()

    async def story() -> None:
        turns = AppendQueue()
        first, second, third = (turns.take() for _ in range(3))
        waiting = asyncio.ensure_future(third.wait_turn())
        await asyncio.sleep(0)
        second.end()
        assert [first.has_turn, third.has_turn] == [True, False]
        first.end()
        await waiting
        assert third.has_turn
        third.end()
        assert turns.take().has_turn

    loop.run_until_complete(story())
    loop.close()


def test_multi_partition_requests_neither_overtake_nor_deadlock() -> None:
    loop = new_virtual_loop()
    one, other = AppendQueue(), AppendQueue()
    seen: list[str] = []

    async def request(name: str, turns: Sequence[AppendTicket]) -> None:
        for turn in turns:
            await turn.wait_turn()
        await asyncio.sleep(0.1)
        seen.append(name)
        for turn in turns:
            turn.end()

    async def story() -> None:
        slow = one.take()
        requests = [
            ("both", [one.take(), other.take()]),
            ("both the other way round", [other.take(), one.take()]),
            ("only the other", [other.take()]),
        ]
        running = [asyncio.ensure_future(request(*asked)) for asked in requests]
        await asyncio.sleep(1.0)
        assert seen == []
        slow.end()
        await asyncio.gather(*running)

    loop.run_until_complete(story())
    loop.close()
    assert seen == ["both", "both the other way round", "only the other"]
