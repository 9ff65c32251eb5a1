"""Parts of a simulated process's environment: a clock, compute, and a trace of events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import TypeVar, TypeVarTuple

from sparklog.core.entropy import Entropy
from sparklog.testing.virtual_loop import VirtualLoop

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

TRACE_LINES: int = 400
"""Newest lines that a trace keeps for the report of a failure."""


class VirtualClock:
    """A process's view of the loop's time: `Clock`, with a wall clock that may be wrong."""

    def __init__(self, loop: VirtualLoop, start_ms: int = 1_700_000_000_000) -> None:
        """Show `start_ms` at the loop's time zero."""
        self.start_ms = start_ms
        """Move it to make the wall clock jump."""
        self._loop = loop

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since the Unix epoch."""
        return self.start_ms + int(self._loop.time() * 1000)

    def monotonic_s(self) -> float:
        """Return the loop's time."""
        return self._loop.time()

    def sleep_s(self, seconds: float) -> None:
        """Raise an error: blocking would stop every process at once."""
        raise RuntimeError(f"a simulated process must not block; await instead. seconds={seconds}")


class VirtualCompute:
    """`Compute` without threads: the work runs at once, and its result comes a little later."""

    def __init__(self, entropy: Entropy, delay_s: float = 0.002) -> None:
        """Delay each result by up to `delay_s`."""
        self._entropy = entropy
        self._delay_s = delay_s

    async def __call__(
        self, function: Callable[[*Arguments], Result], *arguments: *Arguments
    ) -> Result:
        """Return `function(*arguments)`, run before or after the delay."""
        delay_s = self._entropy.random() * self._delay_s
        if self._entropy.random() < 0.5:
            result = function(*arguments)
            await asyncio.sleep(delay_s)
            return result
        await asyncio.sleep(delay_s)
        return function(*arguments)


class Trace:
    """The events in order: a digest of all, and the newest lines."""

    def __init__(self, loop: VirtualLoop) -> None:
        """Start empty."""
        self.lines: deque[str] = deque(maxlen=TRACE_LINES)
        self._loop = loop
        self._digest = blake2b(digest_size=16)

    def note(self, *words: object) -> None:
        """Add a line: the time and `words`."""
        line = f"{self._loop.time():.6f} {' '.join(map(str, words))}"
        self.lines.append(line)
        self._digest.update(line.encode() + b"\n")

    def remark(self, text: str) -> None:
        """Add a line for the reader only: it is not part of the digest."""
        self.lines.append(f"{self._loop.time():.6f}     {text}")

    def digest(self) -> str:
        """Return a digest of all noted lines and of the number of steps."""
        digest = self._digest.copy()
        digest.update(str(self._loop.steps).encode())
        return digest.hexdigest()
