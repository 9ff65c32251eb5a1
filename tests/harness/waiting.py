"""Waiting in tests: a function is called again and again until it returns something true.

A test that sleeps for a fixed time is slow on every machine and wrong on a slow one. A test waits
directly for a condition, a future or the end of a process, and with this for anything else.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")

WITHIN_S = 150.0
"""Long enough for a busy machine: only a failure waits so long."""
EVERY_S = 0.05


def eventually(
    look: Callable[[], Seen | None],
    what: str,
    within_s: float = WITHIN_S,
    every_s: float = EVERY_S,
) -> Seen:
    """Look until something true is seen, and return it.

    Args:
        look: called at each look; its exceptions end the wait.
        what: names the awaited thing in the error.
        within_s: the longest wait; there is a look at its very end, too.
        every_s: the pause between two looks.

    Raises:
        TimeoutError: it was not seen in time; the message holds the last result.
    """
    deadline_s = time.monotonic() + within_s
    while True:
        last_look = time.monotonic() >= deadline_s
        if seen := look():
            return seen
        if last_look:
            raise TimeoutError(f"not in time: {what} within_s={within_s:g} last_seen={seen!r}")
        time.sleep(every_s)  # it lives elsewhere and notifies no one


def until_a_random_moment(chances: random.Random, least_s: float, longest_s: float) -> None:
    """Wait for a random while, as kills and people come.

    A fault after an event that the test sees would come at such moments, and at no other.
    """
    time.sleep(chances.uniform(least_s, longest_s))  # any moment will do
