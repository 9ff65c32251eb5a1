"""A broker's outside world. Shells get everything from here, so a simulation can replace it all.

Nothing in this room opens a socket, starts a thread, reads time or draws randomness by itself,
except the few modules that build the real environment. Timers are `asyncio.sleep` and the loop's
own clock, which a simulation owns too.

Tasks that belong together: each has a name, none outlives the scope, no crash goes unheard.

A task that ends with an error is a bug or a broken store, never weather: whoever owns the scope is
told once and stops the broker, which then starts again with a new incarnation.
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
from sparklog.log.effects import Program as LogProtocol
from sparklog.store.base import Data, ObjectInfo, PutOutcome

UNFOLDING_BYTES: Final = 256 << 20
"""What batches may unfold to at a time where no setting says otherwise."""

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


@dataclass(frozen=True, order=True, slots=True)
class Address:
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return `host:port`, an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class AsyncStore(Protocol):
    """An object store as `store.base` defines it, awaited instead of blocking."""

    async def run(self, protocol: LogProtocol[Result]) -> Result:
        """Run a protocol of the log to its end; its errors and the store's come out."""
        ...

    async def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return bytes [start, end) of an object. Raises ObjectNotFound, Unavailable."""
        ...

    async def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        """Create an object unless it exists. Raises Unavailable: nothing was written."""
        ...

    async def put(self, key: str, data: bytes) -> None:
        """Write a hint that nobody depends on. Raises Unavailable."""
        ...

    async def list(self, prefix: str, start_after: str = "") -> list[ObjectInfo]:
        """List keys under a prefix, in order. Raises Unavailable."""
        ...

    async def delete(self, key: str) -> None:
        """Remove an object; an absent one is no error. Raises Unavailable."""
        ...

    async def retire_in_turn(self, keys: Sequence[str]) -> int:
        """Retire objects in this order until the store does not answer; return how many are gone.

        In this order, and one at a time: to retire many at once call it with parts of them. Only
        for a write-ahead log: see `ObjectStore.retire`.
        """
        ...

    async def tidy(self, prefix: str) -> None:
        """Remove what killed processes left in folders; no object is touched. Raises Unavailable.

        See `ObjectStore.tidy`.
        """
        ...


class Unreachable(ConnectionError):
    """The peer refused or dropped the connection: as a rule its process is gone."""


class Network(Protocol):
    """Requests from this broker to another one. One ordered connection per peer and purpose."""

    async def call(
        self, peer: Address, request: Any, *, timeout_s: float, purpose: str = ""
    ) -> Any:
        """Send a request entity and return the response entity.

        Calls of one purpose to one peer share a connection and are answered in order; a long poll
        has a purpose of its own, so that it holds up nobody.

        Raises:
            Unreachable: connection refused, or lost before the answer; the request may have run.
            TimeoutError: no answer in time; the request may have run.
        """
        ...

    def introduce(self, client_id_at: Callable[[Address], str]) -> None:
        """Send from now on the client id that `client_id_at` returns for the peer."""
        ...

    async def close(self) -> None:
        """Drop every connection."""
        ...


class Compute(Protocol):
    """Runs work that would hold up the event loop: codecs, checksums of much data."""

    async def __call__(
        self, function: Callable[[*Arguments], Result], *arguments: *Arguments
    ) -> Result:
        """Return `function(*arguments)`, run elsewhere."""
        ...


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything a broker needs that is not itself."""

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
        """Return `function(*arguments)`, run elsewhere once there is memory for what it unfolds.

        Work waits in its turn. Work larger than the whole budget runs when no other does.

        Args:
            size_bytes: what the work decompresses to at most; 0 waits for nothing.
            timeout_s: how long to wait for memory; None: without end.
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
    """Return a budget for what compressed batches unfold to."""
    return MemoryBudget(limit_bytes, "no memory to decompress more batches at a time")


logger = logging.getLogger(__name__)


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
