"""Threads that block on behalf of an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sparklog.broker.runtime.async_store import ThreadPool


def tell(story: Callable[[ThreadPool], Coroutine[Any, Any, None]], threads: int = 2) -> None:
    async def run() -> None:
        pool = ThreadPool(threads, "test-pool")
        try:
            async with asyncio.timeout(10):
                await story(pool)
        finally:
            pool.close()

    asyncio.run(run())


def named() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("test-pool")]


def test_result_or_error_of_a_function_reaches_the_caller() -> None:
    async def story(pool: ThreadPool) -> None:
        assert await pool.submit(divmod, 17, 5) == (3, 2)
        with pytest.raises(ZeroDivisionError):
            await pool.submit(divmod, 1, 0)
        assert threading.current_thread().name not in {
            (await pool.submit(threading.current_thread)).name
        }

    tell(story)


def test_pool_starts_no_more_threads_than_work_or_limit() -> None:
    async def story(pool: ThreadPool) -> None:
        for _ in range(5):
            await pool.submit(int)
        assert len(named()) == 1
        gate = threading.Event()
        blocked = [pool.submit(gate.wait) for _ in range(5)]
        assert len(named()) == 2
        gate.set()
        assert await asyncio.gather(*blocked) == [True] * 5

    tell(story)


def test_cancelled_caller_does_not_stop_the_thread() -> None:
    async def story(pool: ThreadPool) -> None:
        gate, done = threading.Event(), list[int]()

        def work() -> None:
            gate.wait()
            done.append(1)

        slow = pool.submit(work)
        slow.cancel()
        gate.set()
        assert await pool.submit(len, "abc") == 3
        assert done == [1]
        assert slow.cancelled()

    tell(story, threads=1)


def test_closed_pool_drops_waiting_calls_and_ends_its_threads() -> None:
    async def story(pool: ThreadPool) -> None:
        gate, begun = threading.Event(), threading.Event()

        def block() -> str:
            begun.set()
            gate.wait()
            return "ended"

        running, waiting = pool.submit(block), pool.submit(len, "never")
        begun.wait()
        threads = named()
        pool.close()
        assert waiting.cancelled()
        with pytest.raises(RuntimeError, match="is closed"):
            pool.submit(int)
        gate.set()
        assert await running == "ended"
        for thread in threads:
            thread.join(10)
            assert not thread.is_alive()

    tell(story, threads=1)


def test_work_that_outlives_its_loop_ends_unheard() -> None:
    gate, begun = threading.Event(), threading.Event()
    pool = ThreadPool(1, "test-pool")

    def block() -> None:
        begun.set()
        gate.wait()

    async def story() -> None:
        pool.submit(block)
        begun.wait()

    asyncio.run(story())
    (thread,) = named()
    gate.set()
    thread.join(10)
    assert not thread.is_alive()
