"""How tests wait: they look again and again until something is seen, or say what never was.

A test that sleeps for a fixed time is slow on every machine and wrong on a slow one. What tells of
itself (a condition, a future, a process that ends) is waited for directly; the rest with this.
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
        look: What to do to see; its exceptions end the wait.
        what: What is waited for, as the error shall name it.
        within_s: How long to look; there is a look at the very end too.
        every_s: The pause between two looks.

    Raises:
        TimeoutError: It was not seen in time; the message holds what was seen last.
    """
    deadline_s = time.monotonic() + within_s
    while True:
        last_look = time.monotonic() >= deadline_s
        if seen := look():
            return seen
        if last_look:
            raise TimeoutError(f"not in time: {what} within_s={within_s:g} last_seen={seen!r}")
        time.sleep(every_s)  # what is looked at lives elsewhere and cannot tell


def until_a_random_moment(chances: random.Random, least_s: float, longest_s: float) -> None:
    """Wait for a while that is drawn by chance, as kills and people come.

    What followed something seen would come at the moments that a test can see, and at no other.
    """
    time.sleep(chances.uniform(least_s, longest_s))  # any moment will do, and none tells
