"""PerProcess: values that must not cross a fork, such as connections, threads and locks.

Spark's Python daemon forks its workers. A child inherits the memory but not the threads. It shares
open sockets, and the kernel's list of watched ones, with its parent. So a child creates its own
value. It never uses or drops the inherited one: closing that would unhook the parent's sockets.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_INHERITED: list[object] = []
"""Values of parent processes without an owner: kept, so that no destructor closes them."""


class _Generation:
    """Number of forks between the first process and this one."""

    number = 0


def _count_fork() -> None:
    _Generation.number += 1


os.register_at_fork(after_in_child=_count_fork)


class PerProcess(Generic[T]):
    """One value per process, created at the first use. Thread-safe.

    Several threads may create a value at the same moment; one of them is kept, and the others are
    dropped unused. So creation must be cheap and open nothing.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        """Remember the function that creates the value."""
        self._make = make
        self._values: dict[int, T] = {}

    def get(self) -> T:
        """Return this process's value."""
        number = _Generation.number
        found = self._values.get(number)
        return found if found is not None else self._values.setdefault(number, self._make())

    def take(self) -> T | None:
        """Remove and return this process's value; None if it was never created."""
        mine = self._values.pop(_Generation.number, None)
        _INHERITED.extend(self._values.values())
        self._values.clear()
        return mine
