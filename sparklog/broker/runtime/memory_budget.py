"""MemoryBudget: a limit in bytes for a broker's unflushed data; appends wait for free memory.

The tails of all partitions share one budget. If the store is slow, flushes free no memory. Then
appends wait here, first come first served, and time out as in Kafka. Nothing is dropped.
  MEMORY-BUDGET-1: each taken byte is returned exactly once: by trimming, or with the tail
  MEMORY-BUDGET-2: waiters are served in order, so small appends do not starve a large one
  MEMORY-BUDGET-3: an append larger than the whole budget may enter when no other memory is taken

`RequestMemoryPool` bounds requests instead: connections wait there without a task or a timeout.

Followers take memory without waiting. If they waited, two brokers that follow each other could wait
for ever. The budgets of their leaders bound their share.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from sparklog.core.errors import Unavailable

UNFLUSHED: Final = "no memory for more unflushed data: the storage is slower than the producers"


class MemoryBudget:
    """A number of bytes that appends share."""

    def __init__(self, limit_bytes: int, full: str = UNFLUSHED) -> None:
        """Let appends take `limit_bytes` together; `full` begins the error if they do not fit."""
        assert limit_bytes > 0, limit_bytes
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._full = full
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def is_nearly_full(self) -> bool:
        """Return True if more than three quarters are taken: time to flush early."""
        return self.used_bytes * 4 > self.limit_bytes * 3

    @property
    def waiting(self) -> int:
        """Return the number of appends that wait for memory."""
        return len(self._queue)

    def try_take(self, size_bytes: int) -> bool:
        """Take memory if enough is free and no other append waits; return False otherwise."""
        if self._queue or not self._fits(size_bytes):
            return False
        self.used_bytes += size_bytes
        return True

    async def take(self, size_bytes: int, timeout_s: float | None) -> None:
        """Wait for memory and take it; there is no timeout if `timeout_s` is None.

        Raises:
            Unavailable: no memory within `timeout_s`; nothing was taken (Kafka: REQUEST_TIMED_OUT).
        """
        if self.try_take(size_bytes):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((size_bytes, turn))
        try:
            async with asyncio.timeout(timeout_s):
                await turn
        except TimeoutError:
            self._leave(size_bytes, turn)
            raise Unavailable(
                f"{self._full}; send again. used_bytes={self.used_bytes} "
                f"limit_bytes={self.limit_bytes} wanted_bytes={size_bytes} waited_s={timeout_s}"
            ) from None
        except asyncio.CancelledError:
            self._leave(size_bytes, turn)
            raise

    def take_followed(self, size_bytes: int) -> None:
        """Take memory for batches from a leader, without waiting."""
        self.used_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Return memory, and serve the appends that wait for it."""
        assert 0 <= size_bytes <= self.used_bytes, (size_bytes, self.used_bytes)
        self.used_bytes -= size_bytes
        if self._queue:
            self._serve()

    def _fits(self, size_bytes: int) -> bool:
        return self.used_bytes == 0 or self.used_bytes + size_bytes <= self.limit_bytes

    def _serve(self) -> None:
        while self._queue:
            size_bytes, turn = self._queue[0]
            if not turn.done():
                if not self._fits(size_bytes):
                    return
                self.used_bytes += size_bytes
                turn.set_result(None)
            self._queue.popleft()

    def _leave(self, size_bytes: int, turn: asyncio.Future[None]) -> None:
        """Leave the queue; return the memory if it was granted at the same moment."""
        if turn.done() and not turn.cancelled():
            self.give_back(size_bytes)
            return
        turn.cancel()
        self._serve()
