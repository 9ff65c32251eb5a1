"""One producer with default settings while every put of the store takes 100 ms, as on S3.

With librdkafka all pending records are under way at once. Kafka's Java producer has five requests
under way, each with one 16 KiB batch per partition. So it sends no more than that in a round trip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.bench.broker.measures.producing import MB, new_topic, produce_librdkafka
from tests.bench.broker.perf_tools import produce
from tests.bench.broker.plan import BrokerPlan
from tests.bench.broker.slow_broker import PUT_DELAY_S
from tests.bench.common.results import Measure, Results
from tests.bench.common.side import Side
from tests.bench.common.targets import CostAtMost, RateAtLeast

RECORD_BYTES = 1024
PACED_MB = 10.0
JAVA_SHARE = 10
"""Of the records: the Java producer is slow here."""


@dataclass(frozen=True)
class SlowStore:
    """A store, and what is to be reached over it."""

    group: str
    delay: str
    rate_mb: float
    p99_ms: float
    memory_p99_ms: float
    java_mb: float | None = None


FOLDER = SlowStore("slow store", f"puts take {PUT_DELAY_S * 1000:.0f} ms", 50, 500, 20)


def measure_slow_store(
    side: Side, plan: BrokerPlan, results: Results, store: SlowStore = FOLDER
) -> None:
    """Measure the highest rate, then latency at a fixed one, with both kinds of commit."""
    for replicas in (1, 3):
        topic = new_topic(side, 1, replicas)
        name = f"librdkafka's defaults, one partition, RF {replicas}, {store.delay}"
        measure = Measure(name, "MB/s", (RateAtLeast(store.rate_mb, "MB/s"),), store.group)
        for number in range(1, plan.rounds + 1):
            seconds = produce_librdkafka(side, topic, plan.slow_store_records, RECORD_BYTES)
            rate = plan.slow_store_records * RECORD_BYTES / seconds / MB
            results.add(measure, side.name, rate, number)
        side.drop(topic)
    for commit, limit in (("storage", store.p99_ms), ("memory", store.memory_p99_ms)):
        topic = new_topic(side, 1, 3, {"sparklog.commit": commit})
        name = f"acks=all p99 at {PACED_MB:g} MB/s, {store.delay}, commit={commit}"
        measure = Measure(name, "ms", (CostAtMost(limit, "ms"),), store.group)
        for number in range(1, plan.rounds + 1):
            per_s = PACED_MB * MB / RECORD_BYTES
            took: list[float] = []
            records = int(per_s * plan.slow_store_seconds)
            produce_librdkafka(
                side, topic, records, RECORD_BYTES, records_per_s=per_s, latencies_s=took
            )
            results.add(measure, side.name, percentile(took, 0.99) * 1000, number)
        side.drop(topic)
    topic = new_topic(side, plan.partitions, 3)
    found = produce(side.bootstrap, topic, plan.slow_store_records // JAVA_SHARE, RECORD_BYTES)
    name = f"Java's defaults, {plan.partitions} partitions, RF 3, {store.delay}"
    targets = (RateAtLeast(store.java_mb, "MB/s"),) if store.java_mb is not None else ()
    measure = Measure(name, "MB/s", targets, store.group)
    results.add(measure, side.name, found.records_per_s * RECORD_BYTES / MB)
    side.drop(topic)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of all values are not above."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
