"""Sizes of a run of the benchmark of SQL."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.bench.common.plan import Plan


@dataclass(frozen=True)
class SqlPlan(Plan):
    """Sizes of one run."""

    rows_max: int
    """Flights, from the first on; the package has 336,776."""
    segments: int
    """Appends to each of four partitions."""
    arrivals: int
    """Records whose way to a row is timed."""


FULL = SqlPlan(name="full", rounds=5, rows_max=336_776, segments=5, arrivals=200)
QUICK = replace(FULL, name="quick", rounds=1, rows_max=30_000, arrivals=20)
