"""Latency at half of what Kafka can do at most, and of one record at a time."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.broker.measures.producing import new_topic, produce_once
from tests.bench.broker.perf_tools import end_to_end, produce
from tests.bench.broker.plan import Plan
from tests.bench.broker.side import Side
from tests.bench.log.results import Measure, Results, progress
from tests.bench.log.rounds import turns
from tests.bench.log.targets import CostAtMost, CostAtMostPeer

GROUP = "latency, ms"
P99_LIMIT_MS = 100.0
END_TO_END_BYTES = 100


def measure_latency(sides: Sequence[Side], plan: Plan, results: Results) -> None:
    """Measure what a producer waits at half of the peer's peak, and send-to-receipt times."""
    peak = _peak(sides, plan, results)
    paced = plan.large
    rate = peak / 2
    progress(f"half of the peak is {rate:,.0f} records of {paced.label} per second")
    p50 = Measure(f"acks=all p50 at half of Kafka's peak, {paced.label}", "ms", (), GROUP)
    limits = (CostAtMostPeer("kafka"), CostAtMost(P99_LIMIT_MS, "ms"))
    p99 = Measure(f"acks=all p99 at half of Kafka's peak, {paced.label}", "ms", limits, GROUP)
    for number, side in turns(sides, plan.rounds):
        topic = new_topic(side, plan.partitions, 3)
        records = int(rate * plan.latency_seconds)
        warm_up = int(rate * min(5, plan.latency_seconds))
        produce(side.bootstrap, topic, warm_up, paced.size_bytes, records_per_s=rate)
        found = produce(side.bootstrap, topic, records, paced.size_bytes, records_per_s=rate)
        results.add(p50, side.name, found.p50_ms, number)
        results.add(p99, side.name, found.p99_ms, number)
        side.drop(topic)
    p50 = Measure("send to receipt p50, one at a time, 100 B", "ms", (), GROUP)
    limits = (CostAtMostPeer("kafka"), CostAtMost(P99_LIMIT_MS, "ms"))
    p99 = Measure("send to receipt p99, one at a time, 100 B", "ms", limits, GROUP)
    for number, side in turns(sides, plan.rounds):
        topic = new_topic(side, 1, 3)
        both = end_to_end(side.bootstrap, topic, plan.end_to_end_records, END_TO_END_BYTES)
        results.add(p50, side.name, both.p50_ms, number)
        results.add(p99, side.name, both.p99_ms, number)
        side.drop(topic)


def _peak(sides: Sequence[Side], plan: Plan, results: Results) -> float:
    """Return the peer's highest rate of large records, measured now or by an earlier measure."""
    known = results.values(f"produce {plan.large.label}, RF 3", "kafka")
    if known:
        return max(known) * 1_000_000 / plan.large.size_bytes
    peer = next((side for side in sides if side.name == "kafka"), sides[0])
    return produce_once(peer, plan, plan.large, 3, results).records_per_s
