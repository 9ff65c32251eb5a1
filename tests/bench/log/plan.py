"""Sizes of a run, in records and bytes. A quick run shows shape, not figures."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.bench.common.plan import Plan, RecordShape

KEY_BYTES = 16


@dataclass(frozen=True)
class LogPlan(Plan):
    """Sizes of one run."""

    small: RecordShape
    large: RecordShape
    partitions: int
    latency_samples: int
    latency_warm_up: int
    lookup_rows: int
    lookup_segments: int


FULL = LogPlan(
    name="full",
    small=RecordShape("100 B", 5_000_000, 100),
    large=RecordShape("1 KiB", 1_000_000, 1024),
    partitions=4,
    rounds=5,
    latency_samples=100,
    latency_warm_up=10,
    lookup_rows=10_000_000,
    lookup_segments=1000,
)
QUICK = replace(
    FULL,
    name="quick",
    small=RecordShape("100 B", 400_000, 100),
    large=RecordShape("1 KiB", 80_000, 1024),
    rounds=3,
    latency_samples=20,
    latency_warm_up=5,
    lookup_rows=400_000,
    lookup_segments=400,
)
