"""Latency at half of what Kafka can do at most, and of one record at a time."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bench.broker.measures.commits import commits_of, ending
from tests.bench.broker.measures.producing import new_topic, produce_once
from tests.bench.broker.perf_tools import EndToEnd, Produced, end_to_end, produce, produce_paced
from tests.bench.broker.plan import BrokerPlan
from tests.bench.common.results import Measure, Results, progress
from tests.bench.common.rounds import turns
from tests.bench.common.side import Side
from tests.bench.common.targets import CostAtMostPeer

GROUP = "latency, ms"
STORAGE_FACTOR = 2.0
"""Permitted factor for the wait for a local disk."""
END_TO_END_BYTES = 100


def measure_latency(sides: Sequence[Side], plan: BrokerPlan, results: Results) -> None:
    """Measure what a producer waits at half of the peer's peak, and send-to-receipt times.

    In a producer's first seconds its JVM compiles, and the records that waited for its connection
    leave at full speed. So there are figures of all its records, and of those after these seconds.
    """
    peak = _peak(sides, plan, results)
    paced = plan.large
    rate = peak / 2
    progress(f"half of the peak is {rate:,.0f} records of {paced.label} per second")
    for number, side in turns(sides, plan.rounds):
        for endings, configs in commits_of(side, 3):
            topic = new_topic(side, plan.partitions, 3, configs)
            records = int(rate * plan.latency_seconds)
            first = int(rate * min(5, plan.latency_seconds // 2))
            size = paced.value_bytes
            produce(side.bootstrap, topic, first, size, records_per_s=rate)  # warms the brokers
            found = produce_paced(
                side.bootstrap, topic, records, size, records_per_s=rate, first_records=first
            )
            what = f"acks=all, at half of Kafka's peak, {paced.label}"
            _add(results, side, number, what, endings, found.whole)
            _add(results, side, number, f"{what}, after its first seconds", endings, found.steady)
            side.drop(topic)
    for number, side in turns(sides, plan.rounds):
        for endings, configs in commits_of(side, 3):
            topic = new_topic(side, 1, 3, configs)
            both = end_to_end(side.bootstrap, topic, plan.end_to_end_records, END_TO_END_BYTES)
            what = f"send to receipt, one at a time, {END_TO_END_BYTES} B"
            _add(results, side, number, what, endings, both)
            side.drop(topic)


def _add(
    results: Results,
    side: Side,
    number: int,
    what: str,
    endings: Sequence[str],
    found: Produced | EndToEnd,
) -> None:
    for end in endings:
        factor = 1.0 if end == ending("memory") else STORAGE_FACTOR
        limits = (CostAtMostPeer("kafka", factor),)
        results.add(Measure(f"p50 {what}{end}", "ms", (), GROUP), side.name, found.p50_ms, number)
        p99 = Measure(f"p99 {what}{end}", "ms", limits, GROUP)
        results.add(p99, side.name, found.p99_ms, number)


def _peak(sides: Sequence[Side], plan: BrokerPlan, results: Results) -> float:
    """Return the peer's highest rate of large records, measured now or by an earlier measure."""
    known = results.values(f"produce {plan.large.label}, RF 3{ending('memory')}", "kafka")
    if known:
        return max(known) * 1_000_000 / plan.large.value_bytes
    peer = next((side for side in sides if side.name == "kafka"), sides[0])
    return produce_once(peer, plan, plan.large, 3, results).records_per_s
