"""How the demo speaks: numbered steps with their times, commands as a person would type them."""

from __future__ import annotations

from threading import Lock
from typing import TextIO

from sparklog.core.clock import SYSTEM_CLOCK, Clock

_INDENT = "    "


class Narrator:
    """Writes the story. Thread-safe: the follower speaks while producers work."""

    def __init__(self, stream: TextIO, steps: int, clock: Clock = SYSTEM_CLOCK) -> None:
        """Tell a story of `steps` steps."""
        self._stream = stream
        self._steps = steps
        self._step = 0
        self._clock = clock
        self._started_s = clock.monotonic_s()
        self._lock = Lock()

    def step(self, title: str) -> None:
        """Begin the next step."""
        self._step += 1
        self._write(f"\n[{self._step}/{self._steps}] {title}  ({self.elapsed_s():.0f} s)")

    def tell(self, text: str) -> None:
        """Say something within the step."""
        self._write("\n".join(_INDENT + line for line in text.splitlines()))

    def command(self, text: str) -> None:
        """Show what is run."""
        first, *rest = text.splitlines()
        self._write("\n".join([f"{_INDENT}$ {first}", *(f"{_INDENT}  {line}" for line in rest)]))

    def close(self, text: str) -> None:
        """Say the last words."""
        self._write(f"\n{text}")

    def elapsed_s(self) -> float:
        """Return the seconds since the story began."""
        return self._clock.monotonic_s() - self._started_s

    def _write(self, text: str) -> None:
        with self._lock:
            print(text, file=self._stream, flush=True)
