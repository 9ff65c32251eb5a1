"""A starting line: requests of several threads are prepared one by one, and sent together.

Signing a request takes longer than some stores take between looking for a key and writing it. So
requests that only start together reach the store one after the other. A thread that has set
`STARTING_LINE` has its put held where it is signed, until all others are, too.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Final

LONGEST_WAIT_S: Final = 2.0
"""A request that fails before it is signed would hold the others for ever."""


class StartingLine:
    """Holds `count` requests, which share one event loop. Once open it stays open."""

    def __init__(self, count: int) -> None:
        """Wait for `count` requests."""
        self._missing = count
        self._open = asyncio.Event()

    async def pass_together(self) -> None:
        """Wait until the last request is here, or for too long."""
        self._missing -= 1
        if self._missing <= 0:
            self._open.set()
        try:
            await asyncio.wait_for(self._open.wait(), LONGEST_WAIT_S)
        except TimeoutError:
            self._open.set()


STARTING_LINE: ContextVar[StartingLine | None] = ContextVar("starting_line", default=None)
"""The line at which this thread's puts wait; an event loop's tasks inherit it from their caller."""
