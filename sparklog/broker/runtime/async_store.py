"""The store of a real broker: the blocking one, on bounded pools of threads.

Requests to the write-ahead log have threads of their own, so that reading history, however much
is asked for, holds up nobody who waits for an acknowledgement. Reading dead brokers' logs has more:
it is many objects, and partitions wait for it.

A few threads that block on behalf of an event loop.

What `asyncio` and `concurrent.futures` do for one call takes several locks and futures, more than
the call itself where that puts a small object on a disk. Here it is one future, one queue and one
call back into the loop. Everything but the work is done on the event loop, so nothing is locked.
  N1  at most so many threads; they start when they are needed, and all end with `close`
  N2  who gave up waiting is not told; the work is done all the same

Which store takes the windows of a write-ahead log, as `wal.fsync` says.
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
    Work,
)
from sparklog.store.base import Data, ObjectInfo, ObjectNotFound, ObjectStore, PutOutcome

_Work = tuple[asyncio.AbstractEventLoop, asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]


class ThreadPool:
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


Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

WAL_PREFIX: Final = "wal/"
WAL_THREADS: Final = 8
"""Twice the puts a log has in flight, for trimming beside them."""
WAL_READ_THREADS: Final = 24
THREADS: Final = 24


class ThreadedStore:
    """Awaits a blocking store. Implements `environment.AsyncStore`."""

    def __init__(self, store: ObjectStore, unforced: ObjectStore | None = None) -> None:
        """Ask `store`, from threads that start when they are needed.

        What need not be forced to a disk goes to `unforced`, if there is one; see
        `ObjectStore.unforced`. So does what is retired: by then a boundary is on the disk that
        tells everybody not to look at its name (WAL.md 3).
        """
        self._store = store
        self._unforced = unforced if unforced is not None else store
        self._lane = ThreadPool(THREADS, "sparklog-store")
        self._wal_lane = ThreadPool(WAL_THREADS, "sparklog-wal")
        self._wal_read_lane = ThreadPool(WAL_READ_THREADS, "sparklog-wal-read")

    def close(self) -> None:
        """Take no more requests; those under way end unheard."""
        for lane in (self._lane, self._wal_lane, self._wal_read_lane):
            lane.close()
        self._unforced.close()
        self._store.close()

    async def run(self, protocol: Program[Result]) -> Result:
        """Run a protocol of the log to its end; its errors and the store's come out."""
        try:
            effect = next(protocol)
            while True:
                try:
                    answer = await self._perform(effect)
                except Exception as error:
                    effect = protocol.throw(error)
                else:
                    effect = protocol.send(answer)
        except StopIteration as end:
            result: Result = end.value
            return result
        finally:
            protocol.close()

    async def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return bytes [start, end) of an object. Raises ObjectNotFound, Unavailable."""
        return await self._ask(key, self._store.get, key, start, end, reads=True)

    async def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        """Create an object unless it exists. Raises Unavailable: nothing was written."""
        return await self._ask(key, self._store.put_if_absent, key, data)

    async def put(self, key: str, data: bytes) -> None:
        """Write a hint that nobody depends on. Raises Unavailable."""
        await self._ask(key, self._store.put, key, data)

    async def list(self, prefix: str, start_after: str = "") -> list[ObjectInfo]:
        """List keys under a prefix, in order. Raises Unavailable."""
        return await self._ask(prefix, _listed, self._store, prefix, start_after, reads=True)

    async def delete(self, key: str) -> None:
        """Remove an object; an absent one is no error. Raises Unavailable."""
        await self._ask(key, self._store.delete, key)

    async def retire_in_turn(self, keys: Sequence[str]) -> int:
        """Retire objects one after the other, on one thread; return how many are gone."""
        return await self._ask(keys[0], _retired, self._unforced, keys) if keys else 0

    async def tidy(self, prefix: str) -> None:
        """Remove what killed processes left in folders; no object is touched. Raises Unavailable.

        Where logs are read: no put waits for it.
        """
        await self._ask(prefix, self._store.tidy, prefix, reads=True)

    async def _perform(self, effect: Effect) -> Answer:
        match effect:
            case Put(key, data, forced):  # first: a broker does hardly anything else
                store = self._store if forced else self._unforced
                return await self._ask(key, store.put_if_absent, key, data)
            case GetMany(ranges):
                return list(await asyncio.gather(*map(self._range, ranges)))
            case ListAfter(prefix, start_after):
                return await self.list(prefix, start_after)
            case Delete(key):
                await self.delete(key)
                return None
            case Work(function):
                return await self._ask("", function)

    async def _range(self, wanted: Range) -> bytes | None:
        try:
            return await self.get(wanted.key, wanted.start, wanted.end)
        except ObjectNotFound:
            return None

    def _ask(
        self,
        key: str,
        function: Callable[[*Arguments], Result],
        *arguments: *Arguments,
        reads: bool = False,
    ) -> asyncio.Future[Result]:
        lane = self._lane
        if key.startswith(WAL_PREFIX):
            lane = self._wal_read_lane if reads else self._wal_lane
        return lane.ask(function, *arguments)


def _listed(store: ObjectStore, prefix: str, start_after: str) -> list[ObjectInfo]:
    return list(store.list(prefix, start_after))


def _retired(store: ObjectStore, keys: Sequence[str]) -> int:
    for number, key in enumerate(keys):
        try:
            store.retire(key)
        except Unavailable:
            return number
    return len(keys)


class ThreadedCompute:
    """Runs work that would hold up the event loop on a few threads. Implements `Compute`."""

    def __init__(self, threads: int) -> None:
        """Use at most so many threads."""
        self._lane = ThreadPool(threads, "sparklog-compute")

    def close(self) -> None:
        """Take no more work."""
        self._lane.close()

    async def __call__(
        self, function: Callable[[*Arguments], Result], *arguments: *Arguments
    ) -> Result:
        """Return `function(*arguments)`, run on a thread."""
        return await self._lane.ask(function, *arguments)


def unforced_store(store: ObjectStore, config: BrokerConfig) -> ObjectStore | None:
    """Return the store for windows that need not be on a disk when they count; None: all need to.

    Raises:
        InvalidConfig: they are not to, but the store has no disk of its own to wait for.
    """
    if config.flag("wal.fsync"):
        return None
    unforced = store.unforced()
    if unforced is None:
        raise InvalidConfig(
            "a put to object storage is on its disks when it is answered; leave wal.fsync out: "
            f"false is for roots that are folders. root={store.url}"
        )
    return unforced
