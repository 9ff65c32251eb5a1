"""Who appends to a partition next: whoever asked first.

A request takes a turn at each of its partitions in one moment, before it waits for anything. So all
requests stand in one order, whatever partitions they share: a later one never gets in before an
earlier one, and no two wait for each other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """A partition's queue. The event loop's only."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        """Begin with nobody in it."""
        self._queue: deque[Turn] = deque()

    @property
    def is_free(self) -> bool:
        """Say whether nobody is in it: whoever does not wait for anything needs no turn."""
        return not self._queue

    def take(self) -> Turn:
        """Return a turn after all that were taken; whoever has it must `end` it."""
        turn = Turn(self._queue)
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


class Turn:
    """One request's place in a partition's queue."""

    __slots__ = ("_came", "_queue")

    def __init__(self, queue: deque[Turn]) -> None:
        """See `Turns.take`."""
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
