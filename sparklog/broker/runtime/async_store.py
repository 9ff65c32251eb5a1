"""ThreadedStore: the store of a real broker, a blocking store on bounded pools of threads.

Puts to the write-ahead log have threads of their own. So reads of history, in any number, do not
delay acknowledgements. Reads of dead brokers' write-ahead logs have a third, larger pool: they read
many objects, and partitions wait for them.

ThreadPool: a few threads that block on behalf of an event loop. One call through `asyncio` and
`concurrent.futures` takes several locks and futures. That costs more than a put of a small object
on a disk. Here a call takes one future, one queue and one callback to the loop. The event loop does
everything but the work itself, so there are no locks.
  ASYNC-STORE-1: a pool has at most `threads_max` threads; they start on demand and end with
      `close`
  ASYNC-STORE-2: a cancelled caller gets no result, but the thread finishes the work

`unforced_store` chooses the store of WAL windows by the setting `wal.fsync`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, TypeVar, TypeVarTuple

from sparklog.core.config.broker import BrokerConfig
from sparklog.core.errors import InvalidConfig, Unavailable
from sparklog.log.effects import (
    Answer,
    Delete,
    Effect,
    GetMany,
    ListAfter,
    Program,
    Put,
    Range,
    Together,
    Work,
    run_async,
)
from sparklog.store.base import Data, ObjectInfo, ObjectNotFound, ObjectStore, PutOutcome

_Work = tuple[asyncio.AbstractEventLoop, asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]


class ThreadPool:
    """A bounded pool of threads for one purpose."""

    def __init__(self, threads_max: int, name: str) -> None:
        """Start at most `threads_max` threads; their names are `name` and a number."""
        self._threads_max = threads_max
        self._name = name
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._threads = 0
        self._under_way = 0
        self._closed = False

    def submit(
        self, function: Callable[[*Arguments], Result], *arguments: *Arguments
    ) -> asyncio.Future[Result]:
        """Return a future of `function(*arguments)`, run on one of the threads.

        Raises:
            RuntimeError: the pool is closed.
        """
        if self._closed:
            raise RuntimeError(f"{self._name} is closed")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._under_way += 1
        if self._under_way > self._threads and self._threads < self._threads_max:
            self._start_thread()
        self._queue.put((loop, future, function, arguments))
        return future

    def close(self) -> None:
        """Accept no more work. Cancel queued work; running work ends, and its result is lost."""
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
                loop.call_soon_threadsafe(self._complete, future, result, error)
            except RuntimeError:  # the loop was closed meanwhile: no caller is left
                return
            del work, future, arguments, result, error  # free them before the next wait

    def _complete(
        self, future: asyncio.Future[Any], result: object, error: BaseException | None
    ) -> None:
        self._under_way -= 1
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

WAL_PREFIX: Final = "wal/"
WAL_THREADS: Final = 8
"""Twice the puts that a log has in flight; the other half is for trimming."""
WAL_READ_THREADS: Final = 48
THREADS: Final = 24


class ThreadedStore:
    """Awaits a blocking store. Implements `environment.AsyncStore`."""

    def __init__(self, store: ObjectStore, unforced: ObjectStore | None = None) -> None:
        """Call `store` from threads that start on demand.

        Puts that need not be forced to a disk go to `unforced`, if there is one; see
        `ObjectStore.unforced`. So do retirements: by then the disk has a boundary behind which no
        reader looks for the retired names (WAL.md 3).
        """
        self._store = store
        self._unforced = unforced if unforced is not None else store
        self._pool = ThreadPool(THREADS, "sparklog-store")
        self._wal_pool = ThreadPool(WAL_THREADS, "sparklog-wal")
        self._wal_read_pool = ThreadPool(WAL_READ_THREADS, "sparklog-wal-read")

    def close(self) -> None:
        """Accept no more requests; running ones end, and their results are lost."""
        for pool in (self._pool, self._wal_pool, self._wal_read_pool):
            pool.close()
        self._unforced.close()
        self._store.close()

    async def run(self, program: Program[Result]) -> Result:
        """Run a program of the log and return its result; raises its errors and the store's."""
        return await run_async(program, self._perform)

    async def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return bytes [start, end) of an object. Raises ObjectNotFound, Unavailable."""
        return await self._submit(key, self._store.get, key, start, end, reads=True)

    async def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        """Create an object unless it exists. Raises Unavailable: nothing was written."""
        return await self._submit(key, self._store.put_if_absent, key, data)

    async def put(self, key: str, data: bytes) -> None:
        """Write a hint; no reader may depend on it. Raises Unavailable."""
        await self._submit(key, self._store.put, key, data)

    async def list(self, prefix: str, start_after: str = "") -> list[ObjectInfo]:
        """List keys under a prefix, in order. Raises Unavailable."""
        return await self._submit(prefix, _list, self._store, prefix, start_after, reads=True)

    async def delete(self, key: str) -> None:
        """Remove an object; an absent one is no error. Raises Unavailable."""
        await self._submit(key, self._store.delete, key)

    async def retire_in_turn(self, keys: Sequence[str]) -> int:
        """Retire objects one after the other, on one thread; return the number of retired ones."""
        return await self._submit(keys[0], _retire_in_turn, self._unforced, keys) if keys else 0

    async def tidy(self, prefix: str) -> None:
        """Remove leftovers of killed processes, but no object. Raises Unavailable.

        It runs in the pool of reads, so no put waits for it.
        """
        await self._submit(prefix, self._store.tidy, prefix, reads=True)

    async def _perform(self, effect: Effect) -> Answer:
        match effect:
            case Put(key, data, forced):  # first, because nearly all effects are puts
                store = self._store if forced else self._unforced
                return await self._submit(key, store.put_if_absent, key, data)
            case GetMany(ranges):
                return list(await asyncio.gather(*map(self._range, ranges)))
            case ListAfter(prefix, start_after):
                return await self.list(prefix, start_after)
            case Together(reads):
                return list(await asyncio.gather(*map(self._perform, reads)))
            case Delete(key):
                await self.delete(key)
                return None
            case Work(function):
                return await self._submit("", function)

    async def _range(self, wanted: Range) -> bytes | None:
        try:
            return await self.get(wanted.key, wanted.start, wanted.end)
        except ObjectNotFound:
            return None

    def _submit(
        self,
        key: str,
        function: Callable[[*Arguments], Result],
        *arguments: *Arguments,
        reads: bool = False,
    ) -> asyncio.Future[Result]:
        pool = self._pool
        if key.startswith(WAL_PREFIX):
            pool = self._wal_read_pool if reads else self._wal_pool
        return pool.submit(function, *arguments)


def _list(store: ObjectStore, prefix: str, start_after: str) -> list[ObjectInfo]:
    return list(store.list(prefix, start_after))


def _retire_in_turn(store: ObjectStore, keys: Sequence[str]) -> int:
    for number, key in enumerate(keys):
        try:
            store.retire(key)
        except Unavailable:
            return number
    return len(keys)


class ThreadedCompute:
    """Runs work that would block the event loop on a few threads. Implements `Compute`."""

    def __init__(self, threads: int) -> None:
        """Use at most `threads` threads."""
        self._pool = ThreadPool(threads, "sparklog-compute")

    def close(self) -> None:
        """Accept no more work."""
        self._pool.close()

    async def __call__(
        self, function: Callable[[*Arguments], Result], *arguments: *Arguments
    ) -> Result:
        """Return `function(*arguments)`, run on a thread."""
        return await self._pool.submit(function, *arguments)


def unforced_store(store: ObjectStore, config: BrokerConfig) -> ObjectStore | None:
    """Return the store for WAL windows that count before a disk has them; None with `wal.fsync`.

    Raises:
        InvalidConfig: `wal.fsync` is false, but the store is not a folder on a disk.
    """
    if config.flag("wal.fsync"):
        return None
    unforced = store.unforced()
    if unforced is None:
        raise InvalidConfig(
            "wal.fsync=false is only for roots that are folders; remove the setting, because "
            f"object storage responds to a put once its disks have it. root={store.url}"
        )
    return unforced
