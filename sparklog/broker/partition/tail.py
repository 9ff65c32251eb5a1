"""PartitionTail: a partition's tail in memory, with its share of the broker's memory budget.

Every change of a tail's size passes through here, but the append of a leader: it has reserved the
memory before. So each byte that was taken from the budget is returned exactly once, in every role
of the partition.

AppendQueue: the order in which requests append to a partition, first come first served. A request
takes a ticket at each of its partitions in one step, before it waits for anything. So there is one
order of all requests. A later request never appends to a shared partition before an earlier one,
and no two requests wait for each other.
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
    """A partition's queue of requests. Not thread-safe: for the event loop only."""

    __slots__ = ("tickets",)

    def __init__(self) -> None:
        """Begin empty."""
        self.tickets: deque[AppendTicket] = deque()
        """While there are none, a request that awaits nothing needs no ticket."""

    def take(self) -> AppendTicket:
        """Return a ticket behind all present ones; its holder must `end` it."""
        turn = AppendTicket(self.tickets)
        self.tickets.append(turn)
        return turn

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a ticket's turn, and end the ticket afterwards."""
        turn = self.take()
        try:
            await turn.wait_turn()
            yield
        finally:
            turn.end()


class AppendTicket:
    """One request's place in a partition's queue."""

    __slots__ = ("_queue", "_turn")

    def __init__(self, queue: deque[AppendTicket]) -> None:
        """See `AppendQueue.take`."""
        self._queue = queue
        self._turn: asyncio.Future[None] | None = None

    @property
    def has_turn(self) -> bool:
        """Return True if all tickets before this one have ended."""
        return self._queue[0] is self

    async def wait_turn(self) -> None:
        """Wait until all tickets before this one have ended."""
        if not self.has_turn:
            self._turn = asyncio.get_running_loop().create_future()
            await self._turn

    def end(self) -> None:
        """Leave the queue. If this ticket was the first, the next one has its turn."""
        was_first = self.has_turn
        self._queue.remove(self)
        if was_first and self._queue:
            self._queue[0].wake()

    def wake(self) -> None:
        """Wake the request that waits for this ticket: its turn has come."""
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)


class PartitionTail:
    """One partition's tail. It stays when this broker changes between leader and follower."""

    def __init__(self, tail: Tail, budget: MemoryBudget) -> None:
        """Hold `tail`, which is empty."""
        assert tail.size_bytes == 0, tail.size_bytes
        self.tail = tail
        self.append_queue = AppendQueue()
        """A request's turn lasts from the check of its batch to the append, so requests append in
        order of arrival. While a leader recovers, the first waiting request keeps the turn."""
        self._budget = budget

    def append_followed(self, batch: CheckedBatch) -> None:
        """Append a batch from the leader.

        Raises:
            DataCorrupt: the batch does not continue the tail; nothing was appended.
        """
        before = self.tail.size_bytes
        self.tail.append(batch)
        self._budget.take_followed(self.tail.size_bytes - before)

    def trim(self, to_offset: int) -> None:
        """Drop the batches below `to_offset`: the partition's own log has them."""
        before = self.tail.size_bytes
        self.tail.trim(to_offset)
        self._budget.give_back(before - self.tail.size_bytes)

    def truncate(self, to_offset: int) -> None:
        """Drop the records from `to_offset` on: they differ from the leader's."""
        before = self.tail.size_bytes
        self.tail.truncate(to_offset)
        self._budget.give_back(before - self.tail.size_bytes)

    def reset(self, start_offset: int) -> None:
        """Drop all batches and begin at `start_offset`."""
        before = self.tail.size_bytes
        self.tail.reset(start_offset)
        self._budget.give_back(before)
