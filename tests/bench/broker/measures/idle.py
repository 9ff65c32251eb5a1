"""Cost of idle partitions: memory, requests, and time until a killed broker is back in sync."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from tests.bench.broker.measures.producing import new_topic
from tests.bench.broker.plan import BrokerPlan
from tests.bench.common.results import Measure, Results
from tests.bench.common.side import Side
from tests.bench.common.sparklog_side import SparklogSide, total
from tests.bench.common.targets import CostAtMost, CostAtMostPeer

GROUP = "idle partitions"
KIB = 1024
MIB = 1 << 20
REQUESTS_PER_MINUTE = 120.0
"""The controller looks for metadata once a second; as much again for all the rest."""
RETURN_LIMIT_S = 30.0


def measure_idle(side: Side, plan: BrokerPlan, results: Results) -> None:
    """Create partitions with three replicas, leave them alone, look, and kill a broker."""
    count = plan.idle_partitions
    memory = Measure(
        f"memory of three brokers, {count} idle partitions",
        "MiB",
        (CostAtMostPeer("kafka"),),
        GROUP,
    )
    more = Measure(f"memory of one replica, of {count} partitions", "KiB", (), GROUP)
    created = Measure(f"creating {count} partitions until all are in sync", "s", (), GROUP)
    before = resident_bytes(side.pids())
    start = time.monotonic()
    topic = new_topic(side, count, 3)
    results.add(created, side.name, time.monotonic() - start)
    requests = _requests_per_minute(side, plan.idle_seconds)
    if requests is not None:
        limit = (CostAtMost(REQUESTS_PER_MINUTE, "requests"),)
        name = f"store requests a minute, {count} idle partitions"
        results.add(Measure(name, "requests", limit, GROUP), side.name, requests)
    after = resident_bytes(side.pids())
    results.add(memory, side.name, after / MIB)
    results.add(more, side.name, (after - before) / (3 * count) / KIB)
    _measure_return(side, topic, plan, results)


def _measure_return(side: Side, topic: str, plan: BrokerPlan, results: Results) -> None:
    """Kill one broker, and let it come back: until it is in sync everywhere again."""
    targets = (CostAtMost(RETURN_LIMIT_S, "s"), CostAtMostPeer("kafka"))
    title = f"kill -9 of a broker until all of {plan.idle_partitions} partitions are in sync"
    broker = side.leader(topic)
    moment = side.kill(broker)
    side.restore(broker)
    side.await_in_sync(topic, plan.idle_partitions, 3)
    results.add(Measure(title, "s", targets, GROUP), side.name, time.monotonic() - moment)


def resident_bytes(pids: Sequence[int]) -> int:
    """Return the memory that processes have in use now; what they share counts in each."""
    found = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                found += int(line.split()[1]) * KIB
    return found


def _requests_per_minute(side: Side, seconds: int) -> float | None:
    if not isinstance(side, SparklogSide):
        _stay_idle(seconds)
        return None
    side.await_quiet()
    before = total(side.samples(), "sparklog_store_requests_total")
    _stay_idle(seconds)
    return (total(side.samples(), "sparklog_store_requests_total") - before) * 60 / seconds


def _stay_idle(seconds: int) -> None:
    """Ask nothing of a cluster: what it does by itself in a given time is the measurement."""
    time.sleep(seconds)  # idleness is what is measured, so there is nothing to look for
