"""One producer with default settings while every put of the store takes 100 ms, as on S3."""

from __future__ import annotations

from tests.bench.broker.measures.producing import MB, new_topic
from tests.bench.broker.perf_tools import produce
from tests.bench.broker.plan import Plan
from tests.bench.broker.side import Side
from tests.bench.broker.slow_broker import PUT_DELAY_S
from tests.bench.log.results import Measure, Results
from tests.bench.log.targets import CostAtMost, RateAtLeast

GROUP = "slow store"
RECORD_BYTES = 1024
RATE_MB = 50.0
PACED_MB = 10.0
P99_LIMIT_MS = 500.0
MEMORY_P99_LIMIT_MS = 20.0
DELAY = f"puts take {PUT_DELAY_S * 1000:.0f} ms"


def measure_slow_store(side: Side, plan: Plan, results: Results) -> None:
    """Measure the highest rate, then latency at a fixed one, with both kinds of commit."""
    topic = new_topic(side, plan.partitions, 3)
    produce(side.bootstrap, topic, plan.slow_store_records // 5, RECORD_BYTES)
    measure = Measure(
        f"one default producer, {DELAY}", "MB/s", (RateAtLeast(RATE_MB, "MB/s"),), GROUP
    )
    for number in range(1, plan.rounds + 1):
        found = produce(side.bootstrap, topic, plan.slow_store_records, RECORD_BYTES)
        results.add(measure, side.name, found.records_per_s * RECORD_BYTES / MB, number)
    side.drop(topic)
    for commit, limit in (("storage", P99_LIMIT_MS), ("memory", MEMORY_P99_LIMIT_MS)):
        topic = new_topic(side, plan.partitions, 3, {"sparklog.commit": commit})
        rate = PACED_MB * MB / RECORD_BYTES
        name = f"acks=all p99 at {PACED_MB:g} MB/s, {DELAY}, commit={commit}"
        measure = Measure(name, "ms", (CostAtMost(limit, "ms"),), GROUP)
        for number in range(1, plan.rounds + 1):
            records = int(rate * plan.slow_store_seconds)
            found = produce(side.bootstrap, topic, records, RECORD_BYTES, records_per_s=rate)
            results.add(measure, side.name, found.p99_ms, number)
        side.drop(topic)
