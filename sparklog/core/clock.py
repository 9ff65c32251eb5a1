"""The only module that reads time. All others take a `Clock` or a `now_ms`.

`parse_duration_ms` reads durations of ISO 8601, as Kafka's settings and tools spell them.
"""

from __future__ import annotations

import re
import time
from typing import Final, Protocol


class Clock(Protocol):
    """Wall clock for timestamps, monotonic clock for durations, and a way to wait."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since the Unix epoch."""
        ...

    def monotonic_s(self) -> float:
        """Return seconds on a clock that never goes back."""
        ...

    def sleep_s(self, seconds: float) -> None:
        """Wait for `seconds`."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Return seconds on a clock that never goes back."""
        return time.monotonic()

    def sleep_s(self, seconds: float) -> None:
        """Wait for `seconds`."""
        time.sleep(seconds)  # the one place that blocks: other modules take a Clock


def processor_s() -> float:
    """Return the processor time of this process in seconds, over all its threads."""
    return time.process_time()


def thread_s() -> float:
    """Return the processor time of the calling thread in seconds."""
    return time.thread_time()


class ManualClock:
    """A clock that only `sleep_s` moves. For tests and simulation."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        """Start at `now_ms`; the monotonic clock starts at zero."""
        self._start_ms = now_ms
        self._elapsed_s = 0.0

    def now_ms(self) -> int:
        """Return the start plus all the time slept."""
        return self._start_ms + round(self._elapsed_s * 1000)

    def monotonic_s(self) -> float:
        """Return the seconds slept so far."""
        return self._elapsed_s

    def sleep_s(self, seconds: float) -> None:
        """Move the clock forward by `seconds`."""
        self._elapsed_s += max(0.0, seconds)


SYSTEM_CLOCK = SystemClock()

_DURATION: Final = re.compile(
    r"(-)?P(?:(-?\d{1,60})D)?"
    r"(?:T(?:(-?\d{1,60})H)?(?:(-?\d{1,60})M)?(?:(-?\d{1,60})(?:\.(\d{1,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)


def parse_duration_ms(text: str) -> int:
    """Return ms of a duration such as `P1DT2H30M` or `PT0.5S`.

    Raises:
        ValueError: the text is no duration.
    """
    match = _DURATION.fullmatch(text)
    if match is None or text[-1] in "PpTt":
        raise ValueError(f"not a duration such as P1DT2H30M or PT30S: {text!r}")
    sign, days, hours, minutes, seconds, fraction = match.groups()
    whole = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60
    part_ms = int(f"{fraction or 0:<03}"[:3])
    if (seconds or "").startswith("-"):
        part_ms = -part_ms
    total_ms = (whole + int(seconds or 0)) * 1000 + part_ms
    return -total_ms if sign else total_ms
