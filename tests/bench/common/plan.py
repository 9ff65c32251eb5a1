"""Sizes of a run: the part that every benchmark's plan has."""

from __future__ import annotations

from dataclasses import dataclass

SEED = 20130101
"""Everything drawn by chance is drawn from this, so that every run does the same."""
MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class RecordShape:
    """Records of one size."""

    label: str
    records: int
    value_bytes: int

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all values."""
        return self.records * self.value_bytes


@dataclass(frozen=True)
class Plan:
    """Sizes of one run; a benchmark adds its own. A quick run shows shape, not figures."""

    name: str
    rounds: int
