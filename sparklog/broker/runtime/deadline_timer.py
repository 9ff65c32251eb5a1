"""A timer for the earliest of many deadlines, which does not spin when the loop fires early.

uvloop rounds times to milliseconds and calls back up to half a millisecond before the time. A
callback that then finds nothing due would set itself for the same time again, and so call after
call. So whatever is due within `EARLY_S` counts as due when the timer fires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

EARLY_S: Final = 0.001
"""Twice what uvloop may be early by. Its timers resolve milliseconds; source: libuv, uv_timer."""


class DeadlineTimer:
    """Calls back when a time has come. Of one event loop. Times are seconds of the loop's clock."""

    __slots__ = ("_callback", "_handle", "at_s")

    def __init__(self, callback: Callable[[float], None]) -> None:
        """Call `callback(due_by_s)`: deadlines up to `due_by_s` have come. Nothing is set yet."""
        self._callback = callback
        self._handle: asyncio.Handle | None = None
        self.at_s = 0.0
        """The time it is set for, or was set for last."""

    @property
    def is_set(self) -> bool:
        """Return whether it will call back."""
        return self._handle is not None

    def set(self, at_s: float) -> None:
        """Call back at `at_s` and at no other time; a time that has come is soon."""
        self.cancel()
        self.at_s = at_s
        loop = asyncio.get_running_loop()
        if at_s <= loop.time():
            self._handle = loop.call_soon(self._fire)
        else:
            self._handle = loop.call_at(at_s, self._fire)

    def set_no_later(self, at_s: float) -> None:
        """Call back at `at_s`, unless that is to happen earlier anyway."""
        if self._handle is None or at_s < self.at_s:
            self.set(at_s)

    def cancel(self) -> None:
        """Call back no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        self._callback(max(asyncio.get_running_loop().time() + EARLY_S, self.at_s))
