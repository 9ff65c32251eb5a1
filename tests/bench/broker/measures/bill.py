"""Puts per GiB that producers send, counted by the brokers themselves, at few and many partitions.

Counted at a fixed rate until everything is in segments on storage. The puts of the root take as
long as on S3, because the number of batches that share a put depends on that. Puts start 300 ms
apart. The write-ahead log's puts depend on time and bytes, not on partitions. More partitions cost
a segment each per `flush.ms`. A longer `flush.ms` costs the memory for its records.
"""

from __future__ import annotations

from tests.bench.broker.measures.producing import MB, new_topic, produce_librdkafka
from tests.bench.broker.plan import BrokerPlan
from tests.bench.common.plan import GIB
from tests.bench.common.results import Measure, Results
from tests.bench.common.sparklog_side import SparklogSide, total
from tests.bench.common.targets import CostAtMost

GROUP = "puts per GiB"
RECORD_BYTES = 8 * 1024
RATE_MB = 50.0
FLUSH_MS = 60_000
CONFIGS = ("--config", f"tail.bytes={GIB}")
"""So that memory is not what ends a segment."""
FEW_PUTS = (*CONFIGS, "--config", "wal.linger.ms=300")
"""The price of a put matters more than 200 ms."""
FEW_PARTITIONS = 100
FEW_LIMIT = 350.0
MANY_LIMIT = 1000.0
DOLLARS_PER_PUT = 0.005 / 1000


def measure_bill(ours: SparklogSide, plan: BrokerPlan, results: Results) -> None:
    """Produce the same bytes over more and more partitions, and count."""
    for partitions in plan.bill_partitions:
        topic = new_topic(ours, partitions, 1, {"flush.ms": str(FLUSH_MS)})
        size_bytes = plan.bill_bytes * (1 if partitions <= FEW_PARTITIONS else 2)
        ours.await_quiet()
        before = ours.samples()
        seconds = produce_librdkafka(
            ours,
            topic,
            size_bytes // RECORD_BYTES,
            RECORD_BYTES,
            records_per_s=RATE_MB * MB / RECORD_BYTES,
        )
        ours.await_history(topic)
        after = ours.samples()
        scale = GIB / size_bytes

        def counted(name: str, **labels: str) -> float:
            return total(after, name, labels) - total(before, name, labels)  # noqa: B023 - used here

        wal = counted("sparklog_wal_puts_total") * scale
        puts = counted("sparklog_store_requests_total", kind="put") * scale
        words = f"{partitions} partition{'s' if partitions > 1 else ''}"
        limit = FEW_LIMIT if partitions <= FEW_PARTITIONS else MANY_LIMIT
        rate = size_bytes / seconds / MB
        results.add(Measure(f"rate while counted, {words}", "MB/s", (), GROUP), ours.name, rate)
        results.add(Measure(f"WAL puts per GiB, {words}", "puts", (), GROUP), ours.name, wal)
        measure = Measure(f"all puts per GiB, {words}", "puts", (CostAtMost(limit, "puts"),), GROUP)
        results.add(measure, ours.name, puts)
        measure = Measure(f"price of puts per GiB on S3, {words}", "$", (), GROUP)
        results.add(measure, ours.name, puts * DOLLARS_PER_PUT)
        ours.drop(topic)
