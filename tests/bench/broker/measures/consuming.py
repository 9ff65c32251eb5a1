"""Consuming: what is being produced, as it comes, and what was produced before, from storage.

The consumer is librdkafka with partitions assigned, no group. It counts and drops what it gets.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from threading import Thread

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.bench.broker.measures.commits import commits_of
from tests.bench.broker.measures.producing import MB, new_topic
from tests.bench.broker.perf_tools import produce
from tests.bench.broker.plan import BrokerPlan
from tests.bench.common.results import Measure, Results
from tests.bench.common.rounds import turns
from tests.bench.common.side import ANSWER_TIMEOUT_S, Side
from tests.bench.common.targets import RateTimesPeer

GROUP = "consuming, MB/s"
AT_ONCE = 10_000


def measure_consuming(sides: Sequence[Side], plan: BrokerPlan, results: Results) -> None:
    """Measure the tail while it is produced, then the same records as history."""
    peer = (RateTimesPeer("kafka", 1.0),)
    for shape in (plan.small, plan.large):
        for number, side in turns(sides, plan.rounds):
            for endings, configs in commits_of(side, 3):
                topic = new_topic(side, plan.partitions, 3, configs)
                producer = Thread(
                    target=produce, args=(side.bootstrap, topic, shape.records, shape.value_bytes)
                )
                producer.start()
                seconds = consume(side, topic, plan.partitions, shape.records)
                producer.join()
                rate = shape.total_bytes / seconds / MB
                for ending in endings:
                    title = f"consume {shape.label} while produced{ending}"
                    results.add(Measure(title, "MB/s", peer, GROUP), side.name, rate, number)
                if configs != {"sparklog.commit": "memory"}:  # history is the same
                    side.await_history(topic)
                    seconds = consume(side, topic, plan.partitions, shape.records)
                    measure = Measure(f"consume {shape.label}, history", "MB/s", peer, GROUP)
                    rate = shape.total_bytes / seconds / MB
                    results.add(measure, side.name, rate, number)
                side.drop(topic)


def consume(
    side: Side,
    topic: str,
    partitions: int,
    records: int,
    bootstrap: str = "",
    settings: Mapping[str, str] | None = None,
) -> float:
    """Read a topic from its beginning; returns the seconds from the first record to the last.

    Raises:
        TimeoutError: records stopped coming.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap or side.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 256 * 1024,
            "log_level": 2,
            **(settings or {}),
        }
    )
    try:
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(partitions)])
        seen, start = 0, 0.0
        deadline = time.perf_counter() + ANSWER_TIMEOUT_S
        while seen < records:
            # It waits for as many as it is asked for: more than are left would cost a second.
            found = consumer.consume(min(AT_ONCE, records - seen), 1.0)
            now = time.perf_counter()
            if found:
                failed = next((one.error() for one in found if one.error() is not None), None)
                assert failed is None, f"the consumer met an error: {failed}"
                start = start or now
                deadline = now + ANSWER_TIMEOUT_S
                seen += len(found)
            elif now > deadline:
                raise TimeoutError(f"records stopped coming. seen={seen} of={records}")
        seconds = time.perf_counter() - start
        seen += len(consumer.consume(1, 0.5))
    finally:
        consumer.close()
    assert seen == records, f"more records than were produced: {seen}"
    return seconds
