"""DeadlineTimer: a timer for the earliest of many deadlines that does not spin.

uvloop rounds times to milliseconds and calls back up to half a millisecond early. A callback that
then finds nothing due would set the timer for the same time, again and again. So all deadlines
within `EARLY_S` count as due when the timer fires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final

EARLY_S: Final = 0.001
"""Twice the most by which uvloop is early: its timers resolve milliseconds (libuv, uv_timer)."""


class DeadlineTimer:
    """Calls back at a set time, on one event loop. Times are seconds of the loop's clock."""

    __slots__ = ("_callback", "_handle", "at_s")

    def __init__(self, callback: Callable[[float], None]) -> None:
        """Begin unset; the timer calls `callback(due_by_s)` when deadlines up to it are due."""
        self._callback = callback
        self._handle: asyncio.Handle | None = None
        self.at_s = inf
        """The time for which it is set; inf while it is not."""

    @property
    def is_set(self) -> bool:
        """Return True if it will call back."""
        return self.at_s < inf

    def set(self, at_s: float) -> None:
        """Call back at `at_s` only; if that time has passed, call back as soon as possible."""
        self.cancel()
        self.at_s = at_s
        loop = asyncio.get_running_loop()
        if at_s <= loop.time():
            self._handle = loop.call_soon(self._fire)
        else:
            self._handle = loop.call_at(at_s, self._fire)

    def set_no_later(self, at_s: float) -> None:
        """Call back at `at_s`, unless it is set for an earlier time."""
        if at_s < self.at_s:
            self.set(at_s)

    def cancel(self) -> None:
        """Unset it: it does not call back."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
            self.at_s = inf

    def _fire(self) -> None:
        at_s, self.at_s, self._handle = self.at_s, inf, None
        self._callback(max(asyncio.get_running_loop().time() + EARLY_S, at_s))
