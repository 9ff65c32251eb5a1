"""A few threads that block on behalf of an event loop.

What `asyncio` and `concurrent.futures` do for one call takes several locks and futures, more than
the call itself where that puts a small object on a disk. Here it is one future, one queue and one
call back into the loop. Everything but the work is done on the event loop, so nothing is locked.
  N1  at most so many threads; they start when they are needed, and all end with `close`
  N2  who gave up waiting is not told; the work is done all the same
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar, TypeVarTuple

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

_Work = tuple[asyncio.AbstractEventLoop, asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]


class Lane:
    """Threads of one purpose."""

    def __init__(self, threads_max: int, name: str) -> None:
        """Start at most `threads_max` threads, with `name` before their numbers."""
        self._threads_max = threads_max
        self._name = name
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._threads = 0
        self._under_way = 0
        self._closed = False

    def ask(
        self, function: Callable[[*Arguments], Result], *arguments: *Arguments
    ) -> asyncio.Future[Result]:
        """Return a future of `function(*arguments)`, run on one of the threads.

        Raises:
            RuntimeError: closed.
        """
        if self._closed:
            raise RuntimeError(f"{self._name} takes no more work")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._under_way += 1
        if self._under_way > self._threads and self._threads < self._threads_max:
            self._start_thread()
        self._queue.put((loop, future, function, arguments))
        return future

    def close(self) -> None:
        """Take no more work. What has not begun is not done; what has ends unheard."""
        self._closed = True
        while not self._queue.empty():
            work = self._queue.get()
            if work is not None:
                work[1].cancel()
        for _ in range(self._threads):
            self._queue.put(None)

    def _start_thread(self) -> None:
        name = f"{self._name}_{self._threads}"
        Thread(target=self._run, name=name, daemon=True).start()
        self._threads += 1

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            loop, future, function, arguments = work
            result, error = None, None
            try:
                result = function(*arguments)
            except BaseException as raised:
                error = raised
            try:
                loop.call_soon_threadsafe(self._ended, future, result, error)
            except RuntimeError:  # the loop was closed meanwhile: nobody is left to be told
                return
            del work, future, arguments, result, error  # not to be kept until there is more

    def _ended(
        self, future: asyncio.Future[Any], result: object, error: BaseException | None
    ) -> None:
        self._under_way -= 1
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
