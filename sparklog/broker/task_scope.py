"""Tasks that belong together: each has a name, none outlives the scope, no crash goes unheard.

A task that ends with an error is a bug or a broken store, never weather: whoever owns the scope is
told once and stops the broker, which then starts again with a new incarnation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

logger = logging.getLogger(__name__)
Result = TypeVar("Result")


def spawn(work: Coroutine[Any, Any, Result], name: str | None = None) -> asyncio.Task[Result]:
    """Start a task whose error its caller retrieves, or no longer needs.

    The caller may be cancelled before the task fails. asyncio would then log "Task exception was
    never retrieved" for an error that concerns nobody.
    """
    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(_retrieve)
    return task


def _retrieve(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


class TaskScope:
    """Starts tasks and ends them all."""

    def __init__(self, name: str, on_crash: Callable[[BaseException], None]) -> None:
        """Prefix the tasks' names with `name`; tell `on_crash` of an error that ends one."""
        self._name = name
        self._on_crash = on_crash
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._closed = False

    @property
    def closed(self) -> bool:
        """Say whether the scope takes no more tasks."""
        return self._closed

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        """Run `work` as a task; once the scope is closed it is dropped unrun."""
        if self._closed:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work, name=f"{self._name}: {name}")
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Cancel every task and wait until all have ended. May be called from one of them."""
        self._closed = True
        others = [t for t in self._tasks if t is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        logger.error("task ended by an error task=%s", task.get_name(), exc_info=error)
        if not self._closed:
            self._on_crash(error)
