"""How much a run measures: what every benchmark's plan has."""

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
    """What one run does; a benchmark adds its own sizes. A quick run shows shape, not figures."""

    name: str
    rounds: int
