"""How much a run measures. Sizes are records and bytes; a quick run shows shape, not figures."""

from __future__ import annotations

from dataclasses import dataclass

SEED = 20130101
KEY_BYTES = 16


@dataclass(frozen=True)
class RecordShape:
    """Records of one size."""

    label: str
    rows: int
    value_bytes: int


@dataclass(frozen=True)
class Plan:
    """What one run does."""

    name: str
    small: RecordShape
    large: RecordShape
    partitions: int
    rounds: int
    latency_samples: int
    latency_warm_up: int
    lookup_rows: int
    lookup_segments: int


FULL = Plan(
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
QUICK = Plan(
    name="quick",
    small=RecordShape("100 B", 400_000, 100),
    large=RecordShape("1 KiB", 80_000, 1024),
    partitions=4,
    rounds=3,
    latency_samples=20,
    latency_warm_up=5,
    lookup_rows=400_000,
    lookup_segments=400,
)
