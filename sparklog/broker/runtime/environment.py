"""Environment: a broker's store, network, clock, entropy and threads.

The broker's code uses only these, so a simulation can replace all of them. Only the few modules
that build the real environment open sockets, start threads, read time or draw randomness. Timers
are `asyncio.sleep` and the loop's own clock, which a simulation owns too.

TaskScope: tasks that belong together. Each has a name, none outlives the scope, and each error is
reported. A task that ends with an error is a bug or a broken store, not a transient condition. The
scope calls `on_crash` once, and its owner stops the broker, which then starts with a new
incarnation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar, TypeVarTuple

from sparklog.broker.runtime.memory_budget import MemoryBudget
from sparklog.core.clock import Clock
from sparklog.core.entropy import Entropy
from sparklog.log.effects import Program
from sparklog.store.base import Data, ObjectInfo, PutOutcome

UNFOLDING_BYTES: Final = 256 << 20
"""Default for the memory of all batches that are decompressed at one time."""

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


@dataclass(frozen=True, order=True, slots=True)
class Address:
    """The address at which a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return `host:port`, an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class AsyncStore(Protocol):
    """An object store as `store.base` defines it, awaited instead of blocking."""

    async def run(self, program: Program[Result]) -> Result:
        """Run a program of the log and return its result; raises its errors and the store's."""
        ...

    async def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return bytes [start, end) of an object. Raises ObjectNotFound, Unavailable."""
        ...

    async def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        """Create an object unless it exists. Raises Unavailable: nothing was written."""
        ...

    async def put(self, key: str, data: bytes) -> None:
        """Write a hint; no reader may depend on it. Raises Unavailable."""
        ...

    async def list(self, prefix: str, start_after: str = "") -> list[ObjectInfo]:
        """List keys under a prefix, in order. Raises Unavailable."""
        ...

    async def delete(self, key: str) -> None:
        """Remove an object; an absent one is no error. Raises Unavailable."""
        ...

    async def retire_in_turn(self, keys: Sequence[str]) -> int:
        """Retire objects in order until the store fails; return the number of retired ones.

        It retires one object at a time. To retire many at once, call it several times with parts of
        the keys. It is only for a write-ahead log: see `ObjectStore.retire`.
        """
        ...

    async def tidy(self, prefix: str) -> None:
        """Remove leftovers of killed processes, but no object. Raises Unavailable.

        See `ObjectStore.tidy`.
        """
        ...


class Unreachable(ConnectionError):
    """The peer refused or dropped the connection: usually its process has ended."""


class Network(Protocol):
    """Requests from this broker to others, on one ordered connection per peer and purpose."""

    async def call(
        self, peer: Address, request: Any, *, timeout_s: float, purpose: str = ""
    ) -> Any:
        """Send a request entity and return the response entity.

        Calls of one purpose to one peer share a connection, and their responses come in order. A
        long poll has a purpose of its own, so that it delays no other call.

        Raises:
            Unreachable: the connection was refused, or lost before the response. The request may
                have run.
            TimeoutError: no response within `timeout_s`; the request may have run.
        """
        ...

    def introduce(self, client_id_at: Callable[[Address], str]) -> None:
        """Send from now on the client id that `client_id_at` returns for the peer."""
        ...

    async def close(self) -> None:
        """Drop every connection."""
        ...


class Compute(Protocol):
    """Runs work that would block the event loop: codecs, checksums of much data."""

    async def __call__(
        self, function: Callable[[*Arguments], Result], *arguments: *Arguments
    ) -> Result:
        """Return `function(*arguments)`, run off the event loop."""
        ...


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything that a broker needs from outside."""

    store: AsyncStore
    network: Network
    clock: Clock
    entropy: Entropy
    compute: Compute
    unfolding: MemoryBudget = field(default_factory=lambda: unfolding_budget(UNFOLDING_BYTES))

    async def unfold(
        self,
        size_bytes: int,
        timeout_s: float | None,
        function: Callable[[*Arguments], Result],
        *arguments: *Arguments,
    ) -> Result:
        """Return `function(*arguments)`, run off the event loop once its memory is reserved.

        Work waits in order of arrival. Work larger than the whole budget runs when no other does.

        Args:
            size_bytes: upper bound of the work's decompressed bytes; 0 reserves no memory.
            timeout_s: longest wait for memory; None: no limit.
            function: the work.
            arguments: for the function.

        Raises:
            Unavailable: no memory within `timeout_s`; the work did not begin.
        """
        if not size_bytes:
            return await self.compute(function, *arguments)
        await self.unfolding.take(size_bytes, timeout_s)
        try:
            return await self.compute(function, *arguments)
        finally:
            self.unfolding.give_back(size_bytes)


def unfolding_budget(limit_bytes: int) -> MemoryBudget:
    """Return a budget for the memory of decompressed batches."""
    return MemoryBudget(limit_bytes, "no memory to decompress more batches at a time")


logger = logging.getLogger(__name__)


def spawn(work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
    """Start a task whose error its caller retrieves, or no longer needs.

    The caller may be cancelled before the task fails. asyncio would then log "Task exception was
    never retrieved" for an error without a receiver.
    """
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(_retrieve)
    return task


async def caught(work: Coroutine[Any, Any, Result]) -> Result | Exception:
    """Return the result of work, or its error in place of raising it."""
    try:
        return await work
    except Exception as error:
        return error


async def shielded(task: asyncio.Task[Result | Exception]) -> Result:
    """Return the result of a task of `caught`, or raise its error.

    A caller that is cancelled leaves the task running. From Python 3.14 on, `asyncio.shield` logs
    each error of a task whose callers have gone, so the task has to return it.
    """
    found = await asyncio.shield(task)
    if isinstance(found, Exception):
        raise found
    return found


def _retrieve(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


class TaskScope:
    """A set of tasks that end together."""

    def __init__(self, name: str, on_crash: Callable[[BaseException], None]) -> None:
        """Prefix the tasks' names with `name`; call `on_crash` with an error that ends a task."""
        self._name = name
        self._on_crash = on_crash
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.closed = False
        """True once the scope accepts no more tasks."""

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        """Run `work` as a task; a closed scope drops it without running it."""
        if self.closed:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work, name=f"{self._name}: {name}")
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Cancel every task and wait until all have ended. May be called from one of them."""
        self.closed = True
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
        if not self.closed:
            self._on_crash(error)
