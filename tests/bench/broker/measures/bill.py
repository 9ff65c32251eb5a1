"""Puts per GiB that producers send, counted by the brokers themselves, at few and many partitions.

Counted until everything is in segments on storage. The write-ahead log's puts depend on time and
bytes, not on partitions; a segment per partition is what more partitions cost.
"""

from __future__ import annotations

from tests.bench.broker.measures.producing import new_topic, produce_librdkafka
from tests.bench.broker.plan import GIB, Plan
from tests.bench.broker.sparklog_side import SparklogSide, total
from tests.bench.log.results import Measure, Results
from tests.bench.log.targets import CostAtMost

GROUP = "puts per GiB"
RECORD_BYTES = 1024
PUTS_PER_GIB = 260.0
"""For the write-ahead log: one put for each 4 MiB and a little more."""
SEGMENTS_PER_PARTITION = 4
"""Of a GiB spread over many partitions: what a flush interval of some seconds makes."""
DOLLARS_PER_PUT = 0.005 / 1000


def measure_bill(ours: SparklogSide, plan: Plan, results: Results) -> None:
    """Produce the same bytes over more and more partitions, and count."""
    for partitions in plan.bill_partitions:
        topic = new_topic(ours, partitions, 3)
        before = ours.samples()
        records = plan.bill_bytes // RECORD_BYTES
        produce_librdkafka(ours, topic, records, RECORD_BYTES)
        ours.await_history(topic)
        after = ours.samples()
        scale = GIB / plan.bill_bytes

        def counted(name: str, **labels: str) -> float:
            return total(after, name, labels) - total(before, name, labels)  # noqa: B023 - used here

        wal = counted("sparklog_wal_puts_total") * scale
        puts = counted("sparklog_store_requests_total", kind="put") * scale
        words = f"{partitions} partition{'s' if partitions > 1 else ''}"
        limit = PUTS_PER_GIB
        measure = Measure(f"WAL puts per GiB, {words}", "puts", (CostAtMost(limit, "puts"),), GROUP)
        results.add(measure, ours.name, wal)
        limit += SEGMENTS_PER_PARTITION * partitions * scale
        measure = Measure(f"all puts per GiB, {words}", "puts", (CostAtMost(limit, "puts"),), GROUP)
        results.add(measure, ours.name, puts)
        measure = Measure(f"price of puts per GiB on S3, {words}", "$", (), GROUP)
        results.add(measure, ours.name, puts * DOLLARS_PER_PUT)
        ours.drop(topic)
