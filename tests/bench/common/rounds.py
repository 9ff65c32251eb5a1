"""Rounds in which every system takes its turn, so that a slow minute hits all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def turns(systems: Sequence[Item], rounds: int) -> Iterator[tuple[int, Item]]:
    """Yield (round, system); each round starts with another system than the one before."""
    for number in range(1, rounds + 1):
        first = (number - 1) % len(systems) if systems else 0
        for system in (*systems[first:], *systems[:first]):
            yield number, system


def timed(work: Callable[[], Answer]) -> tuple[float, Answer]:
    """Return how many seconds the work took, and what it answered."""
    start = time.perf_counter()
    answer = work()
    return time.perf_counter() - start, answer
