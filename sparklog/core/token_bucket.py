"""TokenBucket: limits a rate. A caller that overdraws waits until the balance is positive.

Pure; times are seconds of any clock that never goes back.
"""

from __future__ import annotations


class TokenBucket:
    """A rate per second, with a burst of `burst_s` seconds of the rate."""

    __slots__ = ("_at_s", "_left", "burst_s", "per_s")

    def __init__(self, per_s: float, burst_s: float, now_s: float) -> None:
        """Begin full, with the amount of `burst_s` seconds."""
        self.per_s = per_s
        self.burst_s = burst_s
        self._left = per_s * burst_s
        self._at_s = now_s

    def spend(self, amount: float, now_s: float) -> float:
        """Take an amount, overdrawing if need be; return the seconds to wait afterwards."""
        self._fill(now_s)
        self._left -= amount
        return max(0.0, -self._left / self.per_s)

    def is_full(self, now_s: float) -> bool:
        """Return True if the bucket is full, as if nothing had ever been taken."""
        self._fill(now_s)
        return self._left >= self.per_s * self.burst_s

    def _fill(self, now_s: float) -> None:
        come = max(0.0, now_s - self._at_s) * self.per_s
        self._left = min(self._left + come, self.per_s * self.burst_s)
        self._at_s = max(now_s, self._at_s)
