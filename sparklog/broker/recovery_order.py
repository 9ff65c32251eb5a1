"""Which partitions are recovered first, when a broker has many to take over at once.

Clients wait for the partitions they write. Those of the internal topics may be many more, hold
nothing as a rule, and their clients ask again by themselves: while any other partition is being
recovered they get few places, and all of them afterwards.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

AT_ONCE: Final = 24
"""As many as the store is asked at once: each waits for it most of the time."""
BESIDE_OTHERS: Final = 1
"""Internal partitions that are recovered at once beside others."""


class RecoveryOrder:
    """Gives out places. The event loop's only."""

    def __init__(self) -> None:
        """Begin with every place free."""
        self._others = 0
        """Partitions of users that want to be recovered, or are."""
        self._placed = 0
        self._placed_internal = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._waiting_internal: deque[asyncio.Future[None]] = deque()

    @contextmanager
    def wanting(self, *, internal: bool) -> Iterator[None]:
        """Say that a partition is to be recovered, before it waits for anything."""
        self._others += not internal
        try:
            yield
        finally:
            self._others -= not internal
            self._give()

    @asynccontextmanager
    async def place(self, *, internal: bool) -> AsyncIterator[None]:
        """Wait for a place, and give it back afterwards."""
        await self._come(internal)
        try:
            yield
        finally:
            self._leave(internal)

    async def _come(self, internal: bool) -> None:
        turn = asyncio.get_running_loop().create_future()
        (self._waiting_internal if internal else self._waiting).append(turn)
        self._give()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._leave(internal)
            raise

    def _leave(self, internal: bool) -> None:
        self._placed -= 1
        self._placed_internal -= internal
        self._give()

    def _give(self) -> None:
        while self._waiting and self._placed < AT_ONCE:
            self._placed += _called(self._waiting.popleft())
        most = BESIDE_OTHERS if self._others else AT_ONCE
        while self._waiting_internal and self._placed < AT_ONCE and self._placed_internal < most:
            called = _called(self._waiting_internal.popleft())
            self._placed += called
            self._placed_internal += called


def _called(turn: asyncio.Future[None]) -> bool:
    """Call who waits; False when nobody does any more."""
    if turn.done():
        return False
    turn.set_result(None)
    return True
