"""The virtual loop: time that jumps, and processes that die and pause."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sparklog.testing.virtual_loop import Process, SimulationStuck, VirtualLoop, new_virtual_loop


def test_an_hour_passes_when_nothing_happens() -> None:
    loop = new_virtual_loop()
    loop.run_until_complete(asyncio.sleep(3600.0))
    assert loop.time() == 3600.0
    assert loop.steps < 10


def test_timers_run_in_the_order_of_their_times_then_of_their_making() -> None:
    loop = new_virtual_loop()
    order: list[str] = []
    for name, after_s in (("late", 2.0), ("first", 1.0), ("second", 1.0)):
        loop.call_later(after_s, order.append, name)
    loop.run_until_complete(asyncio.sleep(3.0))
    assert order == ["first", "second", "late"]


def test_a_cancelled_timer_never_runs_and_moves_no_time() -> None:
    loop = new_virtual_loop()
    called: list[int] = []
    loop.call_later(5.0, called.append, 1).cancel()
    loop.run_until_complete(asyncio.sleep(1.0))
    with pytest.raises(SimulationStuck):
        loop.run_until_complete(loop.create_future())
    assert called == []
    assert loop.time() == 1.0


def test_timeouts_groups_queues_and_conditions_work_as_on_a_real_loop() -> None:
    async def program() -> list[int]:
        queue: asyncio.Queue[int] = asyncio.Queue(1)

        async def give() -> None:
            for n in range(3):
                await asyncio.sleep(0.1)
                await queue.put(n)

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(give())
            taken = [await queue.get() for _ in range(3)]
        await asyncio.wait_for(asyncio.gather(asyncio.sleep(1), asyncio.sleep(2)), 3)
        return taken

    loop = new_virtual_loop()
    assert loop.run_until_complete(program()) == [0, 1, 2]
    assert loop.time() == pytest.approx(3.3)


def test_a_loop_that_spins_is_noticed() -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110 - that is the mistake
            await asyncio.sleep(0)

    with pytest.raises(SimulationStuck, match="time does not go on"):
        new_virtual_loop().run_until_complete(spin())


def test_threads_and_sockets_are_refused() -> None:
    loop = new_virtual_loop()
    with pytest.raises(NotImplementedError):
        loop.run_until_complete(asyncio.to_thread(print))
    with pytest.raises(NotImplementedError):
        loop.run_until_complete(asyncio.open_connection("127.0.0.1", 1))


def _ticking(loop: VirtualLoop, story: list[tuple[str, float]]) -> Process:
    """Return a process that ticks every second in a task of a task, and records its cleaning."""

    async def tick() -> None:
        while True:
            await asyncio.sleep(1.0)
            story.append(("tick", loop.time()))

    async def main() -> None:
        try:
            await asyncio.create_task(tick())
        finally:
            story.append(("cleaning", loop.time()))

    process = Process(loop, "ticker")
    process.spawn(main())
    return process


def _after(loop: VirtualLoop, at_s: float, action: Callable[[], None]) -> None:
    loop.call_later(at_s, action)


def test_a_killed_process_makes_no_step_more_and_cleans_nothing_up() -> None:
    loop = new_virtual_loop()
    story: list[tuple[str, float]] = []
    process = _ticking(loop, story)
    told: list[float] = []
    process.when_killed(lambda: told.append(loop.time()))
    _after(loop, 2.5, process.kill)
    loop.run_until_complete(asyncio.sleep(10.0))
    assert story == [("tick", 1.0), ("tick", 2.0)]
    assert told == [2.5]
    loop.close()
    assert loop.complaints == []


def test_a_paused_process_misses_nothing_and_is_late() -> None:
    loop = new_virtual_loop()
    story: list[tuple[str, float]] = []
    process = _ticking(loop, story)
    other: list[tuple[str, float]] = []
    _ticking(loop, other)
    _after(loop, 1.5, process.pause)
    _after(loop, 5.5, process.resume)
    loop.run_until_complete(asyncio.sleep(8.0))
    assert story == [("tick", 1.0), ("tick", 5.5), ("tick", 6.5), ("tick", 7.5)]
    assert len(other) == 7
    loop.close()


def test_killed_paused_process_drops_its_held_back_callbacks() -> None:
    loop = new_virtual_loop()
    story: list[tuple[str, float]] = []
    process = _ticking(loop, story)
    _after(loop, 1.5, process.pause)
    _after(loop, 3.5, process.kill)
    _after(loop, 4.5, process.resume)
    loop.run_until_complete(asyncio.sleep(8.0))
    assert story == [("tick", 1.0)]
    loop.close()


def test_close_waits_for_cleanup_and_abandons_endless_tasks() -> None:
    loop = new_virtual_loop()
    story: list[str] = []

    async def stubborn() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            story.append("cleaning")
            await asyncio.Event().wait()

    async def tidy() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1.0)
            story.append("clean")

    for work in (stubborn(), tidy()):
        Process(loop, "any").spawn(work)
    loop.run_until_complete(asyncio.sleep(1.0))
    loop.close()
    assert story == ["cleaning", "clean"]
    assert loop.is_closed()


def test_error_without_an_awaiter_is_a_complaint() -> None:
    loop = new_virtual_loop()

    async def break_down() -> None:
        raise ValueError("broken")

    Process(loop, "any").spawn(break_down())
    loop.run_until_complete(asyncio.sleep(1.0))
    assert len(loop.complaints) == 1
    assert "broken" in loop.complaints[0]
