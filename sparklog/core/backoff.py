"""Exponential backoff: the pauses between tries of something that may succeed later."""

from __future__ import annotations


class Backoff:
    """Pauses that double from the first to the longest. Not thread-safe. Unit: seconds."""

    __slots__ = ("_first_s", "_longest_s", "_next_s", "_starts_at_once")

    def __init__(self, first_s: float, longest_s: float, *, starts_at_once: bool = False) -> None:
        """Begin with `first_s`; with `starts_at_once`, a pause of 0 comes before it."""
        assert 0 < first_s <= longest_s, (first_s, longest_s)
        self._first_s = first_s
        self._longest_s = longest_s
        self._starts_at_once = starts_at_once
        self._next_s = 0.0
        self.reset()

    def reset(self) -> None:
        """Begin anew: the last try succeeded."""
        self._next_s = 0.0 if self._starts_at_once else self._first_s

    def skip_to_longest(self) -> None:
        """Return only the longest pause from now on: tries soon would fail alike."""
        self._next_s = self._longest_s

    def next_s(self) -> float:
        """Return the pause before the next try."""
        pause_s = self._next_s
        self._next_s = min(self._longest_s, max(self._first_s, 2 * pause_s))
        return pause_s
