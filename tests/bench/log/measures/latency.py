"""A stream's latency: from the moment records are visible to the moment the sink's commit is.

A query copies one topic into another as fast as its trigger allows. Outside Spark a writer appends
a few records, and waits until as many have arrived at the end of the other topic. It then pauses
for a different time each round, so that appends do not fall into step with the query.
"""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from tempfile import mkdtemp

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.bench.common.plan import SEED
from tests.bench.common.results import Measure, Results
from tests.bench.common.rounds import turns
from tests.bench.common.targets import CostAtMost, Target
from tests.bench.log.plan import LogPlan
from tests.bench.log.system import Live, System
from tests.harness.waiting import eventually, until_a_random_moment

RECORDS = 10
VALUE_BYTES = 100
POLL_S = 0.004
ARRIVAL_TIMEOUT_S = 60
PAUSE_S = (0.05, 0.35)
ROUNDS = 3


def measure_latency(
    spark: SparkSession,
    systems: list[tuple[System, Live]],
    plan: LogPlan,
    folder: Path,
    results: Results,
) -> None:
    """Copy a topic by a stream in every system in turn, and time each small batch."""
    target: tuple[Target, ...] = (CostAtMost(300, "ms"),)
    measure = Measure("visible to sink commit, p50", "ms", target, "stream latency")
    per_round = -(-plan.latency_samples // ROUNDS)
    for number, (system, live) in turns(systems, ROUNDS):
        source, sink = f"from-{number}", f"to-{number}"
        for topic in (source, sink):
            system.create(topic, 1)
        checkpoint = Path(mkdtemp(dir=folder, prefix="checkpoint-"))
        query = live.start_sink(system.stream(spark, source), sink, checkpoint)
        try:
            pauses = Random(SEED + number)
            total = plan.latency_warm_up + per_round
            for sample in range(1, total + 1):
                waited_ms = _copy_once(live, query, (source, sink), sample)
                if sample > plan.latency_warm_up:
                    results.add(measure, system.name, waited_ms, number)
                until_a_random_moment(pauses, *PAUSE_S)  # out of step with the query
        finally:
            query.stop()
        name = f"{system.name}: every record came through the stream once, round {number}"
        results.check_equal(name, live.end_offset(sink), total * RECORDS)
        for topic in (source, sink):
            system.drop(topic)


def _copy_once(live: Live, query: StreamingQuery, topics: tuple[str, str], sample: int) -> float:
    """Append a few records and return after how many milliseconds all had arrived."""
    source, sink = topics
    live.append(source, [bytes(VALUE_BYTES)] * RECORDS)
    visible = time.perf_counter()

    def arrived() -> bool:
        if not query.isActive:
            raise RuntimeError(f"the stream ended. error={query.exception()}")
        return live.end_offset(sink) >= sample * RECORDS

    eventually(arrived, f"{sink}: records of {source}", ARRIVAL_TIMEOUT_S, every_s=POLL_S)
    return (time.perf_counter() - visible) * 1000
