"""A coordinator is killed with SIGKILL: how long until the next commit, or the next transaction.

The topic is led by another broker than the one that is killed, so that only coordinating fails
over. The figure is the time from the kill to the first answer to a request that began after it. All
acknowledged data must be there in the end: the last committed offset, and every transaction once.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from sparklog.coordinator.internal_topics import GROUPS_TOPIC, TRANSACTIONS_TOPIC, partition_for
from tests.bench.broker.measures.failover import CLIENT as PATIENCE
from tests.bench.broker.measures.failover import LIMIT_S, read_numbers
from tests.bench.common.results import Measure, Results
from tests.bench.common.rounds import turns
from tests.bench.common.side import ANSWER_TIMEOUT_S, Side
from tests.bench.common.targets import CostAtMost, CostAtMostPeer
from tests.bench.groups.members import joined
from tests.bench.groups.plan import Plan
from tests.harness.waiting import eventually

GROUP = "coordinator failover, s"
CALM_S = 2.0
"""Working before the kill, and after the first success that follows it."""
PAUSE_S = 0.005
BACKOFF_S = 0.02
"""As long as the client itself waits."""
QUICK_RETRIES: Final = {
    name: value for name, value in PATIENCE.items() if name.startswith(("retry.", "reconnect."))
}
TARGETS = (CostAtMost(LIMIT_S, "s"), CostAtMostPeer("kafka"))

_names = count(1)


def measure_failover(sides: Sequence[Side], plan: Plan, results: Results) -> None:
    """Kill coordinators of groups, then of transactions, every side in turn."""
    topic = "coordinated"
    for side in sides:
        side.create(topic, 1, 3)
    for title, work in (("offset commit", _Commits), ("transaction", _Transactions)):
        measure = Measure(f"kill -9 of a coordinator to the next {title}", "s", TARGETS, GROUP)
        for number, side in turns(sides, plan.kills):
            _kill(side, work(side, topic), measure, number, results)
            side.await_in_sync(topic, 1, 3)


def _kill(side: Side, worker: _Worker, measure: Measure, number: int, results: Results) -> None:
    """Kill the coordinator of what works, and wait until its broker is back."""
    worker.run(time.monotonic() + CALM_S, lambda: False)
    coordinator = side.leader(worker.internal, worker.partition)
    killed = side.kill(coordinator)
    worker.run(killed + ANSWER_TIMEOUT_S, lambda: worker.first_after(killed) is not None)
    first = worker.first_after(killed)
    results.check(f"{side.name}: it goes on: {measure.name}", first is not None)
    worker.run(time.monotonic() + CALM_S, lambda: False)
    if first is not None:
        results.add(measure, side.name, first - killed, number)
    worker.check(results)
    worker.close()
    side.restore(coordinator)
    side.await_in_sync(worker.internal, _partitions(side, worker.internal), 3)


class _Worker(ABC):
    """Something that a coordinator answers, done again and again."""

    internal: str
    partition: int

    def __init__(self, side: Side, topic: str) -> None:
        self.side, self.topic = side, topic
        self.done: list[tuple[float, float, int]] = []
        """When what succeeded was begun, when it was answered, and its number."""
        self.begun = 0

    def first_after(self, moment: float) -> float | None:
        """Return when the first success was that began after a moment."""
        return min((ended for began, ended, _ in self.done if began > moment), default=None)

    def run(self, until: float, enough: Callable[[], bool]) -> None:
        while time.monotonic() < until and not enough():
            self.work()

    @abstractmethod
    def work(self) -> None:
        """Have something answered, or fail to."""

    @abstractmethod
    def check(self, results: Results) -> None:
        """See whether all that was acknowledged is there."""

    @abstractmethod
    def close(self) -> None:
        """Leave nothing behind."""


class _Commits(_Worker):
    """Commits of rising offsets by a member of a group."""

    internal = GROUPS_TOPIC

    def __init__(self, side: Side, topic: str) -> None:
        super().__init__(side, topic)
        _make_topic_of_groups(side, topic)
        group_id, self.partition = _coordinated_elsewhere(side, topic, self.internal)
        self._sent: dict[int, float] = {}
        settings = {**QUICK_RETRIES, "on_commit": self._answered}
        self._consumer = joined(side.bootstrap, group_id, topic, settings)

    def work(self) -> None:
        self.begun += 1
        self._sent[self.begun] = time.monotonic()
        self._consumer.commit(
            offsets=[TopicPartition(self.topic, 0, self.begun)], asynchronous=True
        )
        self._consumer.poll(PAUSE_S)

    def check(self, results: Results) -> None:
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while self._sent and time.monotonic() < deadline:
            self._consumer.poll(PAUSE_S)
        last = max(number for *_, number in self.done)
        found = self._consumer.committed([TopicPartition(self.topic, 0)], ANSWER_TIMEOUT_S)
        stands = last <= found[0].offset <= self.begun
        told = f"accepted={last} found={found[0].offset} sent={self.begun}"
        results.check(f"{self.side.name}: no commit is lost by a kill", stands, told)

    def close(self) -> None:
        self._consumer.close()

    def _answered(self, error: Any, offsets: list[TopicPartition]) -> None:
        began = self._sent.pop(offsets[0].offset)
        if error is None and offsets[0].error is None:
            self.done.append((began, time.monotonic(), offsets[0].offset))


class _Transactions(_Worker):
    """Transactions of one record."""

    internal = TRANSACTIONS_TOPIC

    def __init__(self, side: Side, topic: str) -> None:
        super().__init__(side, topic)
        self._producer = _producer(side, "makes-the-topic")
        self.topic = f"{topic}-{next(_names)}"
        side.create(self.topic, 1, 3)
        transactional_id, self.partition = _coordinated_elsewhere(side, self.topic, self.internal)
        self._producer = _producer(side, transactional_id)

    def work(self) -> None:
        self.begun += 1
        began = time.monotonic()
        try:
            self._producer.begin_transaction()
            self._producer.produce(self.topic, str(self.begun), partition=0)
            _until_done(lambda: self._producer.commit_transaction(ANSWER_TIMEOUT_S))
            self.done.append((began, time.monotonic(), self.begun))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            _until_done(lambda: self._producer.abort_transaction(ANSWER_TIMEOUT_S))

    def check(self, results: Results) -> None:
        name, numbers = self.side.name, [number for *_, number in self.done]
        found = read_numbers(self.side, self.topic, len(numbers))
        lost = len(set(numbers) - set(found))
        results.check_equal(f"{name}: committed transactions lost by a kill", lost, 0)
        twice = len(found) - len(set(found))
        results.check_equal(f"{name}: transactions twice after a kill", twice, 0)

    def close(self) -> None:
        self.side.drop(self.topic)


def _make_topic_of_groups(side: Side, topic: str) -> None:
    """Ask for a committed offset until there is an answer."""
    probe = Consumer({"bootstrap.servers": side.bootstrap, "group.id": "makes-the-topic"})

    def is_answered() -> bool:
        try:
            probe.committed([TopicPartition(topic, 0)], ANSWER_TIMEOUT_S)
        except KafkaException:
            return False
        return True

    eventually(is_answered, "groups have a topic")
    probe.close()


def _producer(side: Side, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": side.bootstrap,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            "log_level": 2,
            **QUICK_RETRIES,
        }
    )
    producer.init_transactions(ANSWER_TIMEOUT_S)
    return producer


def _until_done(call: Callable[[], object]) -> None:
    """Call again while the client says that it may be."""

    def is_done() -> bool:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            return False
        return True

    eventually(is_done, "the transaction ends", ANSWER_TIMEOUT_S, every_s=BACKOFF_S)


def _coordinated_elsewhere(side: Side, topic: str, internal: str) -> tuple[str, int]:
    """Return a name whose coordinator does not lead the topic, and its partition."""
    leader, partitions = side.leader(topic), _partitions(side, internal)
    while True:
        name = f"coordinated-{next(_names)}"
        partition = partition_for(name, partitions)
        if side.leader(internal, partition) not in (leader, -1):
            return name, partition


def _partitions(side: Side, topic: str) -> int:
    return len(side.admin.list_topics(topic, ANSWER_TIMEOUT_S).topics[topic].partitions)
