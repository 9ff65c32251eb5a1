"""Timers: deadlines by key, which are set often and read rarely.

A member's deadline moves later with each heartbeat, so moving one must be cheap. The heap keeps the
earlier time, and compares it with the current deadline when it comes. Times are ms.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

STALE_MIN: Final = 64
"""Stale entries of the heap that do not justify a rebuild."""

Key = TypeVar("Key", bound=Hashable)
"""A key must also be comparable with `<`."""


class Timers(Generic[Key]):
    """One deadline for each of many keys. Keys order those that are due at the same time."""

    def __init__(self) -> None:
        """Start without any."""
        self._deadlines: dict[Key, int] = {}
        self._queued: dict[Key, int] = {}
        """The time under which a key is in the heap; other entries of it there are stale."""
        self._heap: list[tuple[int, Key]] = []

    def __len__(self) -> int:
        """Return how many are set."""
        return len(self._deadlines)

    def get(self, key: Key) -> int | None:
        """Return the deadline of a key."""
        return self._deadlines.get(key)

    def set(self, key: Key, deadline_ms: int) -> None:
        """Set the deadline of a key, in place of the one it has."""
        self._deadlines[key] = deadline_ms
        queued = self._queued.get(key)
        if queued is None or deadline_ms < queued:
            self._push(key, deadline_ms)

    def cancel(self, key: Key) -> None:
        """Forget the deadline of a key, if it has one."""
        self._deadlines.pop(key, None)

    @property
    def next_ms(self) -> int | None:
        """Return the earliest deadline."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> Key | None:
        """Remove and return the earliest key that is due, or None."""
        self._settle()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        _, key = heappop(self._heap)
        del self._queued[key], self._deadlines[key]
        return key

    def _push(self, key: Key, at_ms: int) -> None:
        self._queued[key] = at_ms
        heappush(self._heap, (at_ms, key))
        if len(self._heap) > 2 * len(self._queued) + STALE_MIN:
            self._heap = [(queued_ms, other) for other, queued_ms in self._queued.items()]
            heapify(self._heap)

    def _settle(self) -> None:
        """Remove stale entries until the heap's first one is a current deadline."""
        while self._heap:
            at_ms, key = self._heap[0]
            if self._queued.get(key) == at_ms:
                deadline_ms = self._deadlines.get(key)
                if deadline_ms == at_ms:
                    return
                heappop(self._heap)
                del self._queued[key]
                if deadline_ms is not None:
                    self._push(key, deadline_ms)
            else:
                heappop(self._heap)
