"""Sizes of a run of the jobs' benchmark."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.bench.common.plan import Plan


@dataclass(frozen=True)
class KeyedShape:
    """Records of which many have the same key."""

    records: int
    keys: int
    """Every key is drawn as likely as any other."""
    value_bytes: int
    key_bytes: int = 16


@dataclass(frozen=True)
class JobsPlan(Plan):
    """Sizes of one run."""

    compacted: KeyedShape
    distinct: KeyedShape
    """More keys than fit memory."""
    retained_segments: int
    loaded_records_per_s: int
    loaded_bytes: int
    loaded_seconds: int
    """Shortest time of the load on a topic, alone and beside a job."""
    cleaner_bytes_per_s: int
    """Value of `log.cleaner.io.max.bytes.per.second`, where it is set."""
    materialised_records: int


FULL = JobsPlan(
    name="full",
    rounds=3,
    compacted=KeyedShape(20_000_000, 1_000_000, 100),
    distinct=KeyedShape(60_000_000, 50_000_000, 20),
    retained_segments=10_000,
    loaded_records_per_s=1000,
    loaded_bytes=1024,
    loaded_seconds=60,
    cleaner_bytes_per_s=50_000_000,
    materialised_records=5_000_000,
)
QUICK = replace(
    FULL,
    name="quick",
    rounds=1,
    compacted=KeyedShape(2_000_000, 100_000, 100),
    distinct=KeyedShape(6_000_000, 5_000_000, 20),
    loaded_seconds=20,
    materialised_records=500_000,
)
