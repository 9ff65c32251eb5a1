"""A leader is killed with SIGKILL: how long until the next write is acknowledged.

One producer writes a record every few milliseconds, acks=all, to one partition with three
replicas. The figure is the time from the kill to the first acknowledgement of a record that was
sent after it. All acknowledged records must be there in the end, each once and in order. Once more
with a partition that holds much: taking over does not depend on it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.bench.broker.measures.producing import MB, new_topic
from tests.bench.broker.perf_tools import produce
from tests.bench.broker.plan import BrokerPlan
from tests.bench.common.results import Measure, Results
from tests.bench.common.rounds import turns
from tests.bench.common.side import ANSWER_TIMEOUT_S, Side
from tests.bench.common.targets import CostAtMost, CostAtMostPeer

GROUP = "failover, s"
LIMIT_S = 2.0
PAUSE_S = 0.005
CALM_S = 2.0
"""Writing before the kill, and after the first acknowledgement that follows it."""
CLIENT = {
    # A client that waits long before it asks again would be what is measured.
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 0,
    "log_level": 2,
}


class Writer:
    """Sends numbers, and keeps when each was sent and which were acknowledged when."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        """Write to partition 0 of a topic."""
        self._producer = Producer({"bootstrap.servers": bootstrap, **CLIENT})
        self._topic = topic
        self.sent_at: list[float] = []
        self.acknowledged_at: dict[int, float] = {}

    def run(self, until: float) -> None:
        """Send until a moment on the monotonic clock."""
        while time.monotonic() < until:
            self.send()

    def send(self) -> None:
        """Send one record, and take acknowledgements."""
        number = len(self.sent_at)

        def delivered(error: object, _: object) -> None:
            if error is None:
                self.acknowledged_at[number] = time.monotonic()

        self.sent_at.append(time.monotonic())
        self._producer.produce(self._topic, str(number), partition=0, on_delivery=delivered)
        self._producer.poll(PAUSE_S)

    def first_after(self, moment: float) -> float | None:
        """Return when the first record sent after a moment was acknowledged."""
        after = [at for number, at in self.acknowledged_at.items() if self.sent_at[number] > moment]
        return min(after, default=None)

    def finish(self) -> None:
        """Wait for the last acknowledgements."""
        self._producer.flush(ANSWER_TIMEOUT_S)


def measure_failover(sides: Sequence[Side], plan: BrokerPlan, results: Results) -> None:
    """Kill leaders, one after the other, every side in turn."""
    targets = (CostAtMost(LIMIT_S, "s"), CostAtMostPeer("kafka"))
    measure = Measure("kill -9 of a leader to the next acknowledgement", "s", targets, GROUP)
    for number, side in turns(sides, plan.kills):
        topic = new_topic(side, 1, 3)
        writer = _kill(side, topic, measure, number, results)
        found = read_numbers(side, topic, len(writer.acknowledged_at))
        _check(side, writer, found, results)
        side.drop(topic)
    title = f"the same, of a partition of {plan.large.total_bytes / MB:,.0f} MB"
    measure = Measure(title, "s", targets, GROUP)
    for side in sides:
        topic = new_topic(side, 1, 3)
        produce(side.bootstrap, topic, plan.large.records, plan.large.value_bytes)
        side.await_history(topic)
        _kill(side, topic, measure, 1, results)
        side.drop(topic)


def _kill(side: Side, topic: str, measure: Measure, number: int, results: Results) -> Writer:
    """Kill the leader while a writer writes; returns the writer once the broker is back."""
    writer = Writer(side.bootstrap, topic)
    writer.run(time.monotonic() + CALM_S)
    leader = side.leader(topic)
    moment = side.kill(leader)
    deadline = moment + ANSWER_TIMEOUT_S
    while (first := writer.first_after(moment)) is None and time.monotonic() < deadline:
        writer.send()
    results.check(f"{side.name}: writing goes on after a kill", first is not None)
    writer.run(time.monotonic() + CALM_S)
    writer.finish()
    if first is not None:
        results.add(measure, side.name, first - moment, number)
    side.restore(leader)
    side.await_in_sync(topic, 1, 3)
    return writer


def read_numbers(side: Side, topic: str, at_least: int) -> list[int]:
    """Return all records of partition 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": side.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "log_level": 2,
        }
    )
    try:
        place = TopicPartition(topic, 0, OFFSET_BEGINNING)
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0), ANSWER_TIMEOUT_S)[1]
        consumer.assign([place])
        found: list[int] = []
        position = 0
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while position < end and time.monotonic() < deadline:
            for one in consumer.consume(1000, 1.0):
                if one.error() is None:
                    found.append(int(one.value() or b"-1"))
                    position = (one.offset() or 0) + 1
            if len(found) >= at_least and position >= end - 1:
                break  # a marker may be what stands last
        return found
    finally:
        consumer.close()


def _check(side: Side, writer: Writer, found: list[int], results: Results) -> None:
    lost = set(writer.acknowledged_at) - set(found)
    results.check_equal(f"{side.name}: acknowledged records lost by a kill", len(lost), 0)
    results.check_equal(f"{side.name}: records twice after a kill", len(found) - len(set(found)), 0)
    results.check(f"{side.name}: records in order after a kill", found == sorted(found))
