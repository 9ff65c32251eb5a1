"""A partition's tail in this broker's memory, and the room it takes of the broker's budget.

Whoever changes a tail's size does so here, so that what was taken is given back exactly once,
whatever role the partition has at the time.

Who appends to a partition next: whoever asked first.

A request takes a turn at each of its partitions in one moment, before it waits for anything. So all
requests stand in one order, whatever partitions they share: a later one never gets in before an
earlier one, and no two wait for each other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sparklog.broker.runtime.memory_budget import MemoryBudget
from sparklog.log.tail.batch_validator import CheckedBatch
from sparklog.log.tail.tail import Tail


class AppendQueue:
    """A partition's queue. The event loop's only."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        """Begin with nobody in it."""
        self._queue: deque[AppendTicket] = deque()

    @property
    def is_free(self) -> bool:
        """Say whether nobody is in it: whoever does not wait for anything needs no turn."""
        return not self._queue

    def take(self) -> AppendTicket:
        """Return a turn after all that were taken; whoever has it must `end` it."""
        turn = AppendTicket(self._queue)
        self._queue.append(turn)
        return turn

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and end it afterwards."""
        turn = self.take()
        try:
            await turn.come()
            yield
        finally:
            turn.end()


class AppendTicket:
    """One request's place in a partition's queue."""

    __slots__ = ("_came", "_queue")

    def __init__(self, queue: deque[AppendTicket]) -> None:
        """See `AppendQueue.take`."""
        self._queue = queue
        self._came: asyncio.Future[None] | None = None

    @property
    def has_come(self) -> bool:
        """Say whether all before it have ended."""
        return self._queue[0] is self

    async def come(self) -> None:
        """Wait until all before it have ended."""
        if not self.has_come:
            self._came = asyncio.get_running_loop().create_future()
            await self._came

    def end(self) -> None:
        """Let the next one in, or leave the queue early."""
        was_first = self.has_come
        self._queue.remove(self)
        if was_first and self._queue:
            self._queue[0].call()

    def call(self) -> None:
        """Wake who waits for this turn: it has come."""
        if self._came is not None and not self._came.done():
            self._came.set_result(None)


class PartitionTail:
    """One partition's tail; it outlives the roles that the partition has here."""

    def __init__(self, tail: Tail, budget: MemoryBudget) -> None:
        """Hold `tail`, which is empty."""
        assert tail.size_bytes == 0, tail.size_bytes
        self.tail = tail
        self.order = AppendQueue()
        """A request's turn lasts from its batch's check to its append, so that requests append as
        they came; while a leader still recovers the first of those that wait keeps it."""
        self._budget = budget

    def append_as_leader(
        self, batch: CheckedBatch, leader_epoch: int, append_time_ms: int | None
    ) -> bytes:
        """Append a producer's batch for which room was taken; return it as it is kept."""
        return self.tail.append_as_leader(batch, leader_epoch, append_time_ms)

    def append_followed(self, batch: CheckedBatch) -> None:
        """Append what a leader sent.

        Raises:
            DataCorrupt: it does not continue the tail; nothing was appended.
        """
        before = self.tail.size_bytes
        self.tail.append(batch)
        self._budget.take_followed(self.tail.size_bytes - before)

    def trim(self, to_offset: int) -> None:
        """Forget what the partition's own log has."""
        before = self.tail.size_bytes
        self.tail.trim(to_offset)
        self._budget.give_back(before - self.tail.size_bytes)

    def truncate(self, to_offset: int) -> None:
        """Forget what the leader has otherwise."""
        before = self.tail.size_bytes
        self.tail.truncate(to_offset)
        self._budget.give_back(before - self.tail.size_bytes)

    def reset(self, start_offset: int) -> None:
        """Forget everything and begin at `start_offset`."""
        before = self.tail.size_bytes
        self.tail.reset(start_offset)
        self._budget.give_back(before)
