"""Sizes of a run. A quick run shows shape, not figures."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.bench.common.plan import GIB, Plan, RecordShape


@dataclass(frozen=True)
class BrokerPlan(Plan):
    """Sizes of one run."""

    small: RecordShape
    large: RecordShape
    partitions: int
    latency_seconds: int
    """Duration of each paced producer."""
    end_to_end_records: int
    reconnects: int
    """TLS handshakes beside a load."""
    kills: int
    """Leaders killed, of each system."""
    slow_store_records: int
    """Of 1 KiB, for the single producer over a slow store."""
    slow_store_seconds: int
    bill_bytes: int
    """Produced at each number of partitions, twice as much at many; counts are scaled to a GiB."""
    bill_partitions: tuple[int, ...]
    idle_partitions: int
    idle_seconds: int


FULL = BrokerPlan(
    name="full",
    small=RecordShape("100 B", 2_000_000, 100),
    large=RecordShape("1 KiB", 500_000, 1024),
    partitions=3,
    rounds=3,
    latency_seconds=30,
    end_to_end_records=2000,
    reconnects=5000,
    kills=5,
    slow_store_records=500_000,
    slow_store_seconds=30,
    bill_bytes=GIB,
    bill_partitions=(1, 100, 1000),
    idle_partitions=1000,
    idle_seconds=60,
)
QUICK = replace(
    FULL,
    name="quick",
    small=RecordShape("100 B", 1_000_000, 100),
    large=RecordShape("1 KiB", 200_000, 1024),
    rounds=1,
    latency_seconds=10,
    end_to_end_records=300,
    reconnects=1000,
    kills=1,
    slow_store_records=300_000,
    slow_store_seconds=10,
    bill_partitions=(1, 100),
    idle_partitions=200,
    idle_seconds=15,
)
