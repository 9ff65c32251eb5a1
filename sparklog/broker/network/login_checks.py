"""LoginChecks: checks of passwords and signatures, one at a time, in turns between clients.

A check of a PLAIN password costs milliseconds, so clients that guess could keep all cores busy. At
most one check runs at a time, so guesses cost one core at most. The addresses that wait take turns,
so a client that guesses a thousand times delays a client at another address by one check.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from sparklog.broker.runtime.environment import Compute

Result = TypeVar("Result")


class LoginChecks:
    """The checks of one broker. The event loop's only."""

    def __init__(self, compute: Compute) -> None:
        """Run checks by `compute`."""
        self._compute = compute
        self._busy = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """The turns of each address; the first address is the next one."""

    async def run(self, host: str, check: Callable[[], Result]) -> Result:
        """Return the result of `check` for a client's address, once it has its turn."""
        if self._busy:
            await self._turn(host)
        self._busy = True
        try:
            return await self._compute(check)
        finally:
            self._next()

    async def _turn(self, host: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(host, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._next()  # the turn had come already
            raise

    def _next(self) -> None:
        while self._waiting:
            host = next(iter(self._waiting))
            turns = self._waiting.pop(host)
            turn = turns.popleft()
            if turns:
                self._waiting[host] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._busy = False
