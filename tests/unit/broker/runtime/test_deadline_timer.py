"""One timer for many deadlines, on loops that call back on time, early or by milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from heapq import heapify, heappop
from typing import Any

import pytest
import uvloop

from sparklog.broker.runtime.deadline_timer import EARLY_S, DeadlineTimer


class EarlyLoop(asyncio.SelectorEventLoop):
    """Calls back half a millisecond before the time, as uvloop may."""

    def call_at(  # type: ignore[override]  # the stub's variadic generics say no more
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return super().call_at(when - EARLY_S / 2, callback, *args, context=context)


class Deadlines:
    """Uses of the timer as by the flusher, the WAL, produce requests and coordinators."""

    def __init__(self, waits_s: list[float]) -> None:
        loop = asyncio.get_running_loop()
        self.heap = [loop.time() + wait_s for wait_s in waits_s]
        heapify(self.heap)
        self.calls = 0
        self.early_s: list[float] = []
        self.over = loop.create_future()
        self.timer = DeadlineTimer(self.expire)
        self.timer.set(self.heap[0])

    def expire(self, due_by_s: float) -> None:
        self.calls += 1
        while self.heap and self.heap[0] <= due_by_s:
            self.early_s.append(heappop(self.heap) - asyncio.get_running_loop().time())
        if self.heap:
            self.timer.set(self.heap[0])
        else:
            self.over.set_result(None)


LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [
    EarlyLoop,
    uvloop.new_event_loop,
    asyncio.SelectorEventLoop,
]


@pytest.mark.parametrize("new_loop", LOOPS)
def test_timer_calls_at_most_once_for_each_deadline(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    waits_s = [0.0, -1.0, *(0.0007 * number for number in range(60)), 0.05, 0.05]

    async def all_expire() -> Deadlines:
        deadlines = Deadlines(waits_s)
        await deadlines.over
        return deadlines

    with asyncio.Runner(loop_factory=new_loop) as runner:
        deadlines = runner.run(all_expire())
    assert len(deadlines.early_s) == len(waits_s)
    assert deadlines.calls <= len(waits_s)
    assert max(deadlines.early_s) <= EARLY_S + 1e-6  # rounding of floats


def test_timer_keeps_the_earlier_time_when_set_no_later() -> None:
    async def first() -> float:
        loop = asyncio.get_running_loop()
        called: asyncio.Future[float] = loop.create_future()
        timer = DeadlineTimer(called.set_result)
        soon_s = loop.time() + 0.01
        timer.set(soon_s)
        timer.set_no_later(soon_s + 60)
        assert timer.at_s == soon_s
        timer.set_no_later(soon_s - 0.005)
        assert timer.at_s == soon_s - 0.005
        due_by_s = await called
        assert not timer.is_set
        return due_by_s - soon_s

    assert asyncio.run(first()) >= -0.005


def test_timer_does_not_call_when_cancelled() -> None:
    async def cancelled() -> list[float]:
        called: list[float] = []
        timer = DeadlineTimer(called.append)
        timer.set(asyncio.get_running_loop().time())
        timer.cancel()
        timer.cancel()
        await asyncio.sleep(0)  # the loop has run what was ready
        assert not timer.is_set
        return called

    assert asyncio.run(cancelled()) == []
