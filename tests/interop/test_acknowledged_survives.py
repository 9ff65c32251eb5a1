"""Failures that acknowledged records survive: README's table, cell by cell, with killed brokers.

Brokers are real processes and end by SIGKILL. Nothing is flushed, so what survives was in a
write-ahead log or in another broker's memory. Power cuts are in `test_unforced_log.py` and
`tests/unit/broker/test_power_cut.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.harness.broker_processes import BrokerProcesses
from tests.harness.waiting import eventually

rd: Any = confluent_kafka.admin
"""librdkafka's admin API, which ships no types."""
DEADLINE_S = 120.0
SESSION = {"broker.session.timeout.ms": "1500"}
ACKNOWLEDGED_MIN = 300
RECORDS_AT_ONCE = 20


@dataclass
class Cell:
    """A topic with one commit setting, and a producer with one acks setting."""

    commit: str
    acks: str
    acknowledged: set[int] = field(default_factory=set)
    producer: Any = None
    sent: int = 0

    @property
    def topic(self) -> str:
        return f"{self.commit}-{self.acks}"

    def begin(self, bootstrap: str) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "acks": self.acks,
            "linger.ms": 0,
            "enable.idempotence": False,
            "retries": 0,
            "message.timeout.ms": 30_000,
        }
        self.producer = Producer(settings)

    def send(self) -> None:
        for _ in range(RECORDS_AT_ONCE):
            value, self.sent = self.sent, self.sent + 1
            self.producer.produce(
                self.topic,
                str(value),
                partition=0,
                on_delivery=lambda error, _, value=value: self._ended(value, error),
            )
        self.producer.poll(0.001)

    def _ended(self, value: int, error: Any) -> None:
        if error is None:
            self.acknowledged.add(value)


def cells() -> list[Cell]:
    return [Cell(commit, acks) for commit in ("storage", "memory") for acks in ("1", "all")]


def create(bootstrap: str, topics: Iterable[Cell], replicas: int) -> None:
    admin = rd.AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics(
        [
            rd.NewTopic(
                one.topic,
                1,
                replicas,
                config={"sparklog.commit": one.commit, "flush.ms": "3600000"},
            )
            for one in topics
        ]
    )
    for one in made.values():
        one.result(DEADLINE_S)


def send_until(topics: list[Cell], kill: Any) -> None:
    """Send to all until enough is acknowledged everywhere; kill with records under way."""
    goals = [len(one.acknowledged) + ACKNOWLEDGED_MIN for one in topics]
    while any(
        len(one.acknowledged) < goal or one.sent == len(one.acknowledged)
        for one, goal in zip(topics, goals, strict=True)
    ):
        for one in topics:
            one.send()
    kill()
    for one in topics:
        one.producer.flush(DEADLINE_S)


def read(bootstrap: str, topic: str) -> list[int]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "enable.partition.eof": True}
    consumer = Consumer(settings)
    values: list[int] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(DEADLINE_S)
            assert message is not None, f"nothing more after {len(values)}"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return values
            value = message.value()
            assert isinstance(value, bytes)
            values.append(int(value))
    finally:
        consumer.close()


def lost(bootstrap: str, one: Cell) -> set[int]:
    """Return what was acknowledged and is gone: nothing, or the newest records only."""
    values = read(bootstrap, one.topic)
    gone = one.acknowledged - set(values)
    kept = one.acknowledged - gone
    assert not gone or max(kept, default=-1) < min(gone), (
        f"{one.topic}: not only the newest are gone"
    )
    return gone


@pytest.mark.parametrize("fsync", ["true", "false"])
def test_killed_broker_of_one_replica_loses_no_acknowledged_record(
    tmp_path: Path, fsync: str
) -> None:
    settings = {**SESSION, "wal.fsync": fsync}
    root = (tmp_path / "root").as_uri()
    with BrokerProcesses(root, tmp_path, settings, count=1, proxied=True) as brokers:
        topics = cells()
        create(brokers.bootstrap, topics, 1)
        for one in topics:
            one.begin(brokers.bootstrap)
        send_until(topics, brokers.brokers[0].kill)
        brokers.brokers[0].start()
        assert {one.topic: lost(brokers.bootstrap, one) for one in topics} == {
            one.topic: set() for one in topics
        }


def test_three_replicas_lose_nothing_that_acks_all_was_answered_for(tmp_path: Path) -> None:
    root = (tmp_path / "root").as_uri()
    with BrokerProcesses(root, tmp_path, SESSION, count=3, proxied=True) as brokers:
        topics = cells()
        create(brokers.bootstrap, topics, 3)
        for one in topics:
            one.begin(brokers.bootstrap)
        admin = rd.AdminClient({"bootstrap.servers": brokers.bootstrap})
        leaders = {
            name: found.partitions[0].leader
            for name, found in admin.list_topics(timeout=DEADLINE_S).topics.items()
        }
        by_leader = {one.topic: leaders[one.topic] for one in topics}
        killed = by_leader["memory-all"]
        send_until(topics, brokers.brokers[killed - 1].kill)
        for one in topics:
            gone = lost(brokers.bootstrap, one)
            if one.acks == "all" or by_leader[one.topic] != killed:
                assert not gone, f"{one.topic}: one broker of three was killed"
        brokers.heal()

        def in_sync() -> bool:
            found = admin.list_topics(timeout=DEADLINE_S).topics
            return all(len(found[one.topic].partitions[0].isrs) == 3 for one in topics)

        eventually(in_sync, "all replicas are in sync", DEADLINE_S)
        for one in topics:
            one.acknowledged.clear()

        def kill_all() -> None:
            for number in (1, 2, 3):
                brokers.kill(number)

        send_until(topics, kill_all)
        brokers.heal()
        missing = {one.topic: lost(brokers.bootstrap, one) for one in topics}
        assert not missing["storage-all"], "storage has what all brokers lost"
