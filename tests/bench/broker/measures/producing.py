"""Producing as fast as it goes: Kafka's own producer tool and librdkafka, acks=all, RF 3 and 1."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from math import inf
from typing import Any

from confluent_kafka import Producer

from tests.bench.broker.measures.commits import commits_of, ending
from tests.bench.broker.perf_tools import Produced, produce
from tests.bench.broker.plan import BrokerPlan
from tests.bench.common.plan import RecordShape
from tests.bench.common.results import Measure, Results
from tests.bench.common.rounds import turns
from tests.bench.common.side import ANSWER_TIMEOUT_S, Side
from tests.bench.common.targets import RateTimesPeer

GROUP = "producing, MB/s"
MB = 1_000_000
QUEUE_RECORDS = 500_000
PACED_TOGETHER = 16
PACE_S = 0.001
LIBRDKAFKA_SHARE = 0.5
"""Of the records: from Python, each is a call."""

SYNCED = ", a disk synced before each acknowledgement"
"""The mode of `storage`, and of Kafka with a topic's `flush.messages=1`."""

UNFORCED: Mapping[str, str] = {"wal.fsync": "false"}
"""Settings with which sparklog's brokers leave the disk to the system, as Kafka's do by default."""

_names = count(1)


def measure_producing(sides: Sequence[Side], plan: BrokerPlan, results: Results) -> None:
    """Measure both sizes with three replicas and one, every side in turn."""
    for side in sides:
        produce_once(side, plan, plan.small, 3, results)  # until it is warm
    for replicas in (3, 1):
        for shape in (plan.small, plan.large):
            for number, side in turns(sides, plan.rounds):
                for endings, configs in _ways(side, replicas):
                    produced = produce_once(side, plan, shape, replicas, results, configs)
                    rate = produced.records_per_s * shape.value_bytes / MB
                    for end in endings:
                        title = f"produce {shape.label}, RF {replicas}{end}"
                        measure = Measure(title, "MB/s", (RateTimesPeer("kafka", 1.0),), GROUP)
                        results.add(measure, side.name, rate, number)
    title = f"produce {plan.large.label}, RF 3, librdkafka"
    measure = Measure(title, "MB/s", (RateTimesPeer("kafka", 1.0),), GROUP)
    for number, side in turns(sides, plan.rounds):
        topic = new_topic(side, plan.partitions, 3)
        records = int(plan.large.records * LIBRDKAFKA_SHARE)
        seconds = produce_librdkafka(side, topic, records, plan.large.value_bytes)
        _check_count(side, topic, plan.partitions, records, results)
        results.add(measure, side.name, records * plan.large.value_bytes / seconds / MB, number)
        side.drop(topic)


def measure_unforced(sides: Sequence[Side], plan: BrokerPlan, results: Results) -> None:
    """Measure both sizes with brokers that all leave it to the system when a disk has records."""
    for side in sides:
        produce_once(side, plan, plan.small, 3, results)  # until it is warm
    for replicas in (3, 1):
        for shape in (plan.small, plan.large):
            title = f"produce {shape.label}, RF {replicas}, the disk left to the system"
            measure = Measure(title, "MB/s", (RateTimesPeer("kafka", 1.0),), GROUP)
            for number, side in turns(sides, plan.rounds):
                produced = produce_once(side, plan, shape, replicas, results)
                rate = produced.records_per_s * shape.value_bytes / MB
                results.add(measure, side.name, rate, number)


def _ways(side: Side, replicas: int) -> Iterator[tuple[tuple[str, ...], Mapping[str, str]]]:
    """Yield what `commits_of` does, and the way in which both promise what `storage` does."""
    for endings, configs in commits_of(side, replicas):
        is_synced = side.name != "kafka" and endings != (ending("memory"),)
        yield ((*endings, SYNCED) if is_synced else endings), configs
    if side.name == "kafka":
        yield (SYNCED,), {"flush.messages": "1"}


def produce_once(
    side: Side,
    plan: BrokerPlan,
    shape: RecordShape,
    replicas: int,
    results: Results,
    configs: Mapping[str, str] | None = None,
) -> Produced:
    """Produce one topic full by Kafka's tool, check that all arrived, and drop it."""
    topic = new_topic(side, plan.partitions, replicas, configs)
    produced = produce(side.bootstrap, topic, shape.records, shape.value_bytes)
    _check_count(side, topic, plan.partitions, shape.records, results)
    side.drop(topic)
    return produced


def new_topic(
    side: Side, partitions: int, replicas: int, configs: Mapping[str, str] | None = None
) -> str:
    """Create a topic with a name of its own."""
    topic = f"bench-{next(_names)}"
    side.create(topic, partitions, replicas, configs)
    return topic


def produce_librdkafka(
    side: Side,
    topic: str,
    records: int,
    size_bytes: int,
    *,
    records_per_s: float = inf,
    latencies_s: list[float] | None = None,
) -> float:
    """Produce by confluent-kafka with its defaults (acks=all); returns the seconds it took.

    Not faster than `records_per_s`; each record's time from send to acknowledgement is added to
    `latencies_s`.
    """
    value = os.urandom(size_bytes)
    failed: list[object] = []

    def delivered(error: object, message: Any) -> None:
        if error is not None:
            failed.append(error)
        elif latencies_s is not None:
            latencies_s.append(message.latency())

    producer = Producer(
        {
            "bootstrap.servers": side.bootstrap,
            "queue.buffering.max.messages": QUEUE_RECORDS,
            "log_level": 2,
        }
    )
    start = time.perf_counter()
    for number in range(records):
        if number % PACED_TOGETHER == 0:
            while number > (time.perf_counter() - start) * records_per_s:
                producer.poll(PACE_S)
        while True:
            try:
                producer.produce(topic, value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
    left = producer.flush(2 * ANSWER_TIMEOUT_S)
    seconds = time.perf_counter() - start
    assert left == 0, f"{left} records were not acknowledged in time"
    assert not failed, f"{len(failed)} records failed, the first with {failed[0]}"
    return seconds


def _check_count(side: Side, topic: str, partitions: int, records: int, results: Results) -> None:
    found = side.records(topic, partitions)
    results.check_equal(f"{side.name}: every record once in {topic}", found, records)
