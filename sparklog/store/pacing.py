"""A put that goes on in parts waits between them, if whoever asked for it is to go slowly.

A store that writes an object in parts says so (`part_written`), in the thread that asked. Others
say nothing; whoever paces counts what is left. Units: bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Passed = Callable[[int], None]
"""Takes in that so many bytes have passed, and waits as long as they should have taken."""

_passed: ContextVar[Passed | None] = ContextVar("passed", default=None)


@contextmanager
def paced(passed: Passed) -> Iterator[None]:
    """Have puts of this thread wait for `passed`, too, after each part."""
    outer = _passed.get()

    def both(size_bytes: int) -> None:
        passed(size_bytes)
        if outer is not None:
            outer(size_bytes)

    token = _passed.set(both)
    try:
        yield
    finally:
        _passed.reset(token)


def is_paced() -> bool:
    """Say whether a put that is asked for now is to wait between its parts."""
    return _passed.get() is not None


def part_written(size_bytes: int) -> None:
    """Wait as whoever asked for this put wants it."""
    passed = _passed.get()
    if passed is not None:
        passed(size_bytes)
