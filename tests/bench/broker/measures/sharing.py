"""Share groups: members that share the records of one partition, with librdkafka's share consumer.

The records are there before. A member accepts what it gets by its next poll, as the consumer does
by default. The time is from the first record to the last one; each record must come once.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from itertools import count
from threading import Lock, Thread

from confluent_kafka import ShareConsumer

from sparklog.client.admin import Admin
from sparklog.client.values import ConfigResource
from tests.bench.broker.measures.producing import MB, new_topic
from tests.bench.broker.perf_tools import produce
from tests.bench.broker.plan import BrokerPlan
from tests.bench.common.results import Measure, Results
from tests.bench.common.rounds import turns
from tests.bench.common.side import ANSWER_TIMEOUT_S, Side
from tests.bench.common.targets import RateTimesPeer

GROUP = "share groups, one partition, RF 3, MB/s"
MEMBERS = (1, 4)
POLL_S = 0.5

_names = count(1)


def measure_sharing(sides: Sequence[Side], plan: BrokerPlan, results: Results) -> None:
    """Measure one member, and four, every side in turn."""
    peer = (RateTimesPeer("kafka", 1.0),)
    shape = plan.large
    for members in MEMBERS:
        for number, side in turns(sides, plan.rounds):
            topic = new_topic(side, 1, 3)
            produce(side.bootstrap, topic, shape.records, shape.value_bytes)
            seconds = share(side, topic, members, shape.records)
            title = f"share {shape.label}, {members} member{'s' if members > 1 else ''}"
            rate = shape.total_bytes / seconds / MB
            results.add(Measure(title, "MB/s", peer, GROUP), side.name, rate, number)
            side.drop(topic)


def share(side: Side, topic: str, members: int, records: int) -> float:
    """Have members accept each record; return the seconds from the first record to the last.

    Raises:
        TimeoutError: records stopped coming.
    """
    group = f"share-{next(_names)}"
    with Admin(side.bootstrap) as admin:
        earliest = {"share.auto.offset.reset": "earliest"}
        admin.alter_configs(group, earliest, kind=ConfigResource.GROUP)
    seen: Counter[int] = Counter()
    times: list[float] = []
    lock = Lock()
    failures: list[BaseException] = []

    def work() -> None:
        consumer = ShareConsumer(
            {"bootstrap.servers": side.bootstrap, "group.id": group, "log_level": 2}
        )
        try:
            consumer.subscribe([topic])
            deadline = time.perf_counter() + ANSWER_TIMEOUT_S
            while len(seen) < records:
                found = consumer.poll(POLL_S)
                now = time.perf_counter()
                if len(found):
                    deadline = now + ANSWER_TIMEOUT_S
                    offsets = [offset for one in found if (offset := one.offset()) is not None]
                    with lock:
                        seen.update(offsets)
                        times.append(now)
                elif now > deadline:
                    raise TimeoutError(f"records stopped coming. seen={len(seen)} of={records}")
            consumer.commit_sync(ANSWER_TIMEOUT_S)  # else `close` gives the last records back
        except BaseException as error:
            failures.append(error)
            raise
        finally:
            consumer.close()

    threads = [Thread(target=work) for _ in range(members)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    repeated = sum(one - 1 for one in seen.values())
    assert not repeated, f"records came more than once: {repeated} of {records}"
    return max(times) - min(times)
