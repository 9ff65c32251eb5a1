"""A rate that is kept on average: who spends more than there is waits until it is there again.

Pure; times are seconds of any clock that never goes back.
"""

from __future__ import annotations


class TokenBucket:
    """So many a second, and at once what some seconds bring."""

    __slots__ = ("_at_s", "_left", "burst_s", "per_s")

    def __init__(self, per_s: float, burst_s: float, now_s: float) -> None:
        """Begin full: with what comes in `burst_s`."""
        self.per_s = per_s
        self.burst_s = burst_s
        self._left = per_s * burst_s
        self._at_s = now_s

    def spend(self, amount: float, now_s: float) -> float:
        """Take an amount, more than there is if need be; return for how long to take no more."""
        self._fill(now_s)
        self._left -= amount
        return max(0.0, -self._left / self.per_s)

    def is_full(self, now_s: float) -> bool:
        """Say whether it is as if nothing had ever been taken."""
        self._fill(now_s)
        return self._left >= self.per_s * self.burst_s

    def _fill(self, now_s: float) -> None:
        come = max(0.0, now_s - self._at_s) * self.per_s
        self._left = min(self._left + come, self.per_s * self.burst_s)
        self._at_s = max(now_s, self._at_s)
