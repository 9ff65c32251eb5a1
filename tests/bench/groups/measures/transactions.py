"""Transactions of a hundred records: written by one producer and by many, and read as committed.

The value of `sparklog.commit` holds for the records and for the log of the transactions'
coordinators.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from sparklog.coordinator.internal_topics import TRANSACTIONS_TOPIC
from tests.bench.broker.measures.commits import commits_of
from tests.bench.broker.measures.consuming import consume
from tests.bench.common.results import Measure, Results
from tests.bench.common.rounds import turns
from tests.bench.common.side import Side
from tests.bench.common.targets import RateTimesPeer
from tests.bench.common.topic_settings import alter
from tests.bench.groups.plan import Plan
from tests.bench.groups.writing import RECORDS, TransactionWriter

GROUP = "transactions, records/s"
PARTITIONS = 3
WARM_UP = 20
TO_KAFKA = (RateTimesPeer("kafka", 1.0),)

_names = count(1)


def measure_transactions(sides: Sequence[Side], plan: Plan, results: Results) -> None:
    """Measure every number of producers and kind of commit, every side in turn."""
    for producers in plan.producers:
        who = "1 producer" if producers == 1 else f"{producers} producers"
        for number, side in turns(sides, plan.rounds):
            for endings, configs in commits_of(side, 3):
                topic = f"transactions-{next(_names)}"
                side.create(topic, PARTITIONS, 3, configs)
                seconds = _write(side, topic, producers, plan.transactions, configs)
                records = producers * plan.transactions * RECORDS
                for ending in endings:
                    title = f"transactions of {RECORDS}, {who}{ending}"
                    measure = Measure(title, "records/s", TO_KAFKA, GROUP)
                    results.add(measure, side.name, records / seconds, number)
                consume(side, topic, PARTITIONS, records + producers * WARM_UP * RECORDS)
                side.drop(topic)


def measure_committed_reads(sides: Sequence[Side], plan: Plan, results: Results) -> None:
    """Measure how fast what many transactions wrote is read; the consumer reads committed."""
    measure = Measure("read committed", "records/s", TO_KAFKA, GROUP)
    topic, producers = "committed-reads", max(plan.producers)
    each = plan.history_transactions // producers
    for side in sides:
        side.create(topic, PARTITIONS, 3)
        _write(side, topic, producers, each - WARM_UP)
    records = producers * each * RECORDS
    for number, side in turns(sides, plan.rounds):
        seconds = consume(side, topic, PARTITIONS, records)
        results.add(measure, side.name, records / seconds, number)
    for side in sides:
        side.drop(topic)


def _write(
    side: Side,
    topic: str,
    producers: int,
    transactions: int,
    configs: Mapping[str, str] | None = None,
) -> float:
    """Write after a warm-up; return the seconds that all took together."""
    writers = [TransactionWriter(side, topic, PARTITIONS) for _ in range(producers)]
    if configs:
        alter(side.admin, TRANSACTIONS_TOPIC, configs)  # the first writer made it
    with ThreadPoolExecutor(producers) as pool:
        list(pool.map(lambda writer: writer.write(WARM_UP), writers))
        began = time.perf_counter()
        list(pool.map(lambda writer: writer.write(transactions), writers))
        return time.perf_counter() - began
