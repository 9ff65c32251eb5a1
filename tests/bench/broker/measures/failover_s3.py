"""Brokers on S3 are killed with SIGKILL: how long until what they led can be written and read.

The store is versitygw, a real S3 server, and brokers wait for each request as long as for S3 in one
region (`distant_broker`). One client writes records to six partitions with three replicas, and
reads them. The figures are the times from the kill until a record that was sent after it is
acknowledged, or read, on every partition that moved. All acknowledged records must be there in the
end, each once and in order.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.bench.broker.distant_broker import OTHER_S, PUT_S
from tests.bench.broker.measures.failover import CLIENT, LIMIT_S
from tests.bench.broker.plan import BrokerPlan
from tests.bench.common.results import Measure, Results, progress
from tests.bench.common.side import ANSWER_TIMEOUT_S
from tests.bench.common.targets import CostAtMost
from tests.harness.broker_processes import BrokerProcesses
from tests.harness.store_servers import KEEP_ALIVE, s3_environment, versitygw
from tests.harness.waiting import eventually

GROUP = "failover on S3, s"
PROGRAM = "tests.bench.broker.distant_broker"
BUCKET = "bench"
PARTITIONS = 6
RECORD_BYTES = 1024
PAUSE_S = 0.005
CALM_S = 4.0
"""Writing before the kill: write-ahead logs have objects by then."""
DELAY = f"puts take {PUT_S * 1000:.0f} ms more, others {OTHER_S * 1000:.0f} ms more"
READER = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "fetch.wait.max.ms": 50,
    "fetch.error.backoff.ms": 20,
    # A consumer that saw a partition without a leader asks again after up to a second otherwise.
    "topic.metadata.refresh.interval.ms": 100,
    "log_level": 2,
}
QUICK = {k: v for k, v in CLIENT.items() if k.startswith(("retry", "reconnect", "topic.metadata"))}


class Load:
    """Writes numbers to every partition in turn, and reads them."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        """Begin with the first partition."""
        self.topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, **CLIENT})
        self._consumer = Consumer({"bootstrap.servers": bootstrap, **QUICK, **READER})
        places = [TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(PARTITIONS)]
        self._consumer.assign(places)
        self.sent_at: list[float] = []
        self.acknowledged_at: dict[int, float] = {}
        self.read_at: dict[int, float] = {}
        self.found: list[list[int]] = [[] for _ in range(PARTITIONS)]

    def run(self, until: float) -> None:
        """Write and read until a moment on the monotonic clock."""
        while time.monotonic() < until:
            self.step()

    def step(self) -> None:
        """Write a record to each partition; take acknowledgements and records."""
        for partition in range(PARTITIONS):
            number = len(self.sent_at)
            self.sent_at.append(time.monotonic())
            self._producer.produce(
                self.topic,
                str(number).ljust(RECORD_BYTES),
                partition=partition,
                on_delivery=partial(self._delivered, number),
            )
        self._producer.poll(PAUSE_S)
        self._read(0)

    def after(self, moment: float, seen: dict[int, float], where: Collection[int]) -> float | None:
        """Return when each of some partitions had a record seen that was sent after a moment."""
        first: dict[int, float] = {}
        for number, at in seen.items():
            if self.sent_at[number] > moment:
                partition = number % PARTITIONS
                first[partition] = min(at, first.get(partition, at))
        return max(first[one] for one in where) if set(where) <= first.keys() else None

    def finish(self) -> None:
        """Wait for the last acknowledgements, and read what was acknowledged."""
        self._producer.flush(ANSWER_TIMEOUT_S)
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while self.acknowledged_at.keys() - self.read_at.keys() and time.monotonic() < deadline:
            self._read(0.1)
        self._consumer.close()

    def _delivered(self, number: int, error: object, _message: object) -> None:
        if error is None:
            self.acknowledged_at[number] = time.monotonic()

    def _read(self, wait_s: float) -> None:
        records: list[Any] = self._consumer.consume(1000, wait_s)
        for one in records:
            if one.error() is None:
                number = int(one.value())
                self.found[one.partition()].append(number)
                self.read_at[number] = time.monotonic()


def measure_failover_s3(work: Path, plan: BrokerPlan, results: Results) -> None:
    """Kill the controller, another broker, and two of three brokers."""
    progress("starting brokers on versitygw")
    work.mkdir(parents=True)
    with (
        versitygw(work / "s3", BUCKET, KEEP_ALIVE) as port,
        BrokerProcesses(
            f"s3://{BUCKET}/log", work, environment=s3_environment(port), program=PROGRAM
        ) as brokers,
    ):
        for number in range(1, plan.kills + 1):
            for what, victims in (
                ("the controller", ["controller"]),
                ("another broker", ["other"]),
                ("two of three brokers, with the controller", ["controller", "other"]),
                ("two of three brokers, without the controller", ["other", "third"]),
            ):
                _kill(brokers, what, victims, number, results)


def _kill(
    brokers: BrokerProcesses, what: str, victims: list[str], number: int, results: Results
) -> None:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap, "log_level": 2})
    topic = f"t{time.monotonic_ns()}"
    wanted = NewTopic(topic, PARTITIONS, 3)
    admin.create_topics([wanted], operation_timeout=ANSWER_TIMEOUT_S)[topic].result()
    _await_in_sync(admin, topic)
    load = Load(brokers.bootstrap, topic)
    load.run(time.monotonic() + CALM_S)
    found = admin.list_topics(topic, ANSWER_TIMEOUT_S)
    leaders = {n: p.leader for n, p in found.topics[topic].partitions.items()}
    controller = int(found.controller_id)
    other, third = sorted({1, 2, 3} - {controller})
    names = {"controller": controller, "other": other, "third": third}
    killed = [names[victim] for victim in victims]
    moved = [n for n, leader in leaders.items() if leader in killed]
    moment = time.monotonic()
    for one in killed:  # at once: waiting for the end of a process takes a tenth of a second
        brokers.brokers[one - 1].signal(signal.SIGKILL)
    for one in killed:
        brokers.kill(one)
    deadline = moment + ANSWER_TIMEOUT_S
    while time.monotonic() < deadline:
        load.step()
        written = load.after(moment, load.acknowledged_at, moved)
        read = load.after(moment, load.read_at, moved)
        if written is not None and read is not None:
            for verb, at in (("written", written), ("read", read)):
                name = f"kill -9 of {what} until all it led is {verb}, {DELAY}"
                measure = Measure(name, "s", (CostAtMost(LIMIT_S, "s"),), GROUP)
                results.add(measure, "sparklog", at - moment, number)
            break
    else:
        results.check(f"writing goes on after a kill of {what}", False)
    load.run(time.monotonic() + 1)
    load.finish()
    lost = load.acknowledged_at.keys() - load.read_at.keys()
    results.check_equal(f"acknowledged records lost by a kill of {what}", len(lost), 0)
    in_order = all(one == sorted(set(one)) for one in load.found)
    results.check(f"records once and in order after a kill of {what}", in_order)
    for one in killed:
        brokers.brokers[one - 1].start()
    _await_in_sync(admin, topic)
    admin.delete_topics([topic])[topic].result()


def _await_in_sync(admin: AdminClient, topic: str) -> None:
    def in_sync() -> bool:
        found = admin.list_topics(topic, ANSWER_TIMEOUT_S).topics.get(topic)
        parts = found.partitions.values() if found is not None else []
        return len(parts) == PARTITIONS and all(len(p.isrs) == 3 for p in parts)

    eventually(in_sync, f"{topic} in sync", ANSWER_TIMEOUT_S)
