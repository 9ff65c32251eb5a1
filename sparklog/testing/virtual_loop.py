"""VirtualLoop: an event loop with virtual time, and processes on it that can be killed and paused.

If no step is ready, the clock jumps to the next timer, so an hour passes in the time of its events.
There is no socket, thread or wall clock: the same program with the same seed makes the same steps.
Times are seconds since the loop was created.

VIRTUAL-LOOP-1: Ready steps run in the order they became ready; timers by their times, then by
    their creation.
VIRTUAL-LOOP-2: A killed process never makes another step: no `finally`, no `except
    CancelledError`.
VIRTUAL-LOOP-3: A paused process makes no step. When it resumes, all of its wake-ups follow in
    order, expired timers included.

The context of a step determines its process: the tasks of a process start in its context.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import itertools
from asyncio import events
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from enum import Enum
from typing import Any, TypeVar, TypeVarTuple, Unpack

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

STEPS_AT_ONE_TIME_MAX = 200_000
"""More steps than this without progress of time mean a busy loop."""
CLOSING_STEPS_MAX = 100_000
"""Limit for the clean-up of the remaining tasks when the loop is closed."""


class SimulationStuck(Exception):
    """No event will ever happen again, or time makes no progress."""


class ProcessState(Enum):
    """States of a process; only a running one makes steps."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class Process:
    """Tasks that live and die together, like those of one operating system process."""

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        """Start without tasks."""
        self.name = name
        self.state = ProcessState.RUNNING
        self.held: list[_Step | _Timer] = []
        """Wake-ups during a pause or after death, oldest first."""
        self._loop = loop
        self._when_killed: list[Callable[[], None]] = []
        loop.processes.append(self)

    @property
    def stands_still(self) -> bool:
        """Return True if it makes no steps now."""
        return self.state is not ProcessState.RUNNING

    def spawn(self, coroutine: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Start a task of this process."""
        return self._loop.create_task(coroutine, context=self._context())

    def call_soon(self, callback: Callable[[Unpack[Arguments]], object], *args: *Arguments) -> None:
        """Schedule a call in this process, as the kernel wakes it for a packet."""
        self._loop.call_soon(callback, *args, context=self._context())

    def when_killed(self, callback: Callable[[], None]) -> None:
        """Let the world, not the process, call a function when it dies."""
        self._when_killed.append(callback)

    def kill(self) -> None:
        """End it at once (VIRTUAL-LOOP-2)."""
        self.state = ProcessState.DEAD
        callbacks, self._when_killed = self._when_killed, []
        for callback in callbacks:
            callback()

    def pause(self) -> None:
        """Stop it as SIGSTOP does."""
        if self.state is ProcessState.RUNNING:
            self.state = ProcessState.PAUSED

    def resume(self) -> None:
        """Resume a paused process (VIRTUAL-LOOP-3)."""
        if self.state is ProcessState.PAUSED:
            self.state = ProcessState.RUNNING
            self._loop.requeue(self)

    def _context(self) -> Context:
        context = copy_context()
        context.run(_PROCESS.set, self)
        return context


_PROCESS: ContextVar[Process | None] = ContextVar("_PROCESS", default=None)
WORLD = Context()
"""The context of no process: its steps run even if processes are dead or paused."""


class _Step(asyncio.Handle):
    """A callback that is ready."""

    _context: Context
    process: Process | None

    def run(self) -> None:
        """Call it; an exception goes to the loop's exception handler."""
        self._run()


class _Timer(asyncio.TimerHandle):
    """A callback that waits for its time."""

    _context: Context
    process: Process | None

    def run(self) -> None:
        """Call it; an exception goes to the loop's exception handler."""
        self._run()


class VirtualLoop(asyncio.AbstractEventLoop):
    """The loop. Create one with `new_virtual_loop`."""

    def __init__(self) -> None:
        """Start at time zero."""
        self.steps = 0
        """Number of steps so far."""
        self.complaints: list[str] = []
        """Messages of the exception handler: errors that no task awaited, failed callbacks."""
        self.processes: list[Process] = []
        self.closing = False
        self.after_step: Callable[[Process | None], None] | None = None
        """Called after every step with its process, None for the world's; its exception ends the
        run.
        """
        self._now_s = 0.0
        self._ready: deque[_Step | _Timer] = deque()
        self._timers: list[tuple[float, int, _Timer]] = []
        self._timer_numbers = itertools.count()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._steps_at_this_time = 0
        self._closed = False

    def time(self) -> float:
        """Return the virtual time."""
        return self._now_s

    def run_until_complete(self, future: Awaitable[Result]) -> Result:  # type: ignore[override]
        """Run until `future` is done; return its result.

        Raises:
            SimulationStuck: it never will be.
        """
        outer = events._get_running_loop()  # noqa: SLF001 - how a loop is made current
        collecting = gc.isenabled()
        gc.disable()  # the time of finalization is not part of the seed
        events._set_running_loop(self)  # noqa: SLF001
        try:
            wanted: asyncio.Future[Result] = asyncio.ensure_future(future, loop=self)
            while not wanted.done():
                self._run_one()
            return wanted.result()
        finally:
            events._set_running_loop(outer)  # noqa: SLF001
            if collecting:
                gc.enable()

    def _run_one(self) -> None:
        while not self._ready:
            self._jump()
        handle = self._ready.popleft()
        if handle.cancelled():
            return
        process = handle.process
        if process is not None and process.stands_still and not self.closing:
            process.held.append(handle)
            return
        self.steps += 1
        self._steps_at_this_time += 1
        if self._steps_at_this_time > STEPS_AT_ONE_TIME_MAX:
            raise SimulationStuck(f"time does not go on. time_s={self._now_s} step={handle!r}")
        handle.run()
        if self.after_step is not None and not self.closing:
            self.after_step(process)

    def _jump(self) -> None:
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if not self._timers:
            raise SimulationStuck(f"nothing will ever happen again. time_s={self._now_s}")
        self._now_s = max(self._now_s, self._timers[0][0])
        self._steps_at_this_time = 0
        while self._timers and self._timers[0][0] <= self._now_s:
            self._ready.append(heapq.heappop(self._timers)[2])

    def requeue(self, process: Process) -> None:
        """Make the held wake-ups of a process ready again, in order."""
        self._ready.extend(process.held)
        process.held.clear()

    def call_soon(
        self,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Make a callback ready."""
        context = copy_context() if context is None else context
        step = _Step(callback, args, self, context)
        step.process = context.get(_PROCESS)
        self._ready.append(step)
        return step

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Make a callback ready after `delay` seconds."""
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Make a callback ready at a time."""
        context = copy_context() if context is None else context
        timer = _Timer(when, callback, args, self, context)
        timer.process = context.get(_PROCESS)
        heapq.heappush(self._timers, (when, next(self._timer_numbers), timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing to do: cancelled timers are skipped when their time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, Result],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Result]:
        """Start a task. The loop holds it until it is done, so that none is collected halfway."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._forget, context=WORLD)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Record an error for which no task waits."""
        if not self.closing:
            error = context.get("exception")
            self.complaints.append(f"{context.get('message')}: {error!r}")

    def get_debug(self) -> bool:
        """Return False: debug mode measures real time."""
        return False

    def is_running(self) -> bool:
        """Return True if this loop is the running one."""
        return events._get_running_loop() is self  # noqa: SLF001

    def is_closed(self) -> bool:
        """Return True if `close` was called."""
        return self._closed

    def close(self) -> None:
        """Cancel all remaining tasks, also of dead and paused processes, and run them to their end.

        The world must reject their requests meanwhile: `closing` is set.
        """
        self.closing = True
        for process in self.processes:
            self.requeue(process)
        for task in list(self._tasks):
            task.cancel()
        try:
            self.run_until_complete(self._wait_for_the_rest())
        except SimulationStuck:
            pass  # the remaining tasks wait for an event that will never come
        for task in list(self._tasks):
            _put_away(task)
        self._tasks.clear()
        self._ready.clear()
        self._timers.clear()
        self._closed = True

    async def _wait_for_the_rest(self) -> None:
        last_step = self.steps + CLOSING_STEPS_MAX
        # The events that they wait for may happen meanwhile.
        while len(self._tasks) > 1 and self.steps < last_step:  # noqa: ASYNC110
            await asyncio.sleep(1.0)


def _put_away(task: asyncio.Task[Any]) -> None:
    """Close a task's coroutine by force, and suppress its warnings."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
    coroutine = task.get_coro()
    assert isinstance(coroutine, Coroutine), coroutine
    for _ in range(10):
        try:
            coroutine.close()
        except RuntimeError:
            continue  # it awaits in a `finally`, and had its chance
        return


def new_virtual_loop() -> VirtualLoop:
    """Return a loop at time zero. It has no sockets, threads or signals."""
    return VirtualLoop()  # type: ignore[abstract]
