"""A group whose coordinator is killed: members stay, commits are kept, and soon go on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import confluent_kafka.admin
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.harness.broker_processes import BrokerProcesses

rd: Any = confluent_kafka.admin
"""librdkafka's admin API, which ships no types."""
DEADLINE_S = 120.0
PARTITIONS = 4
RECORDS = 400
SETTINGS = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "100"}


def consumer(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 300,
        }
    )


def commit(member: Consumer, topic: str, offset: int) -> None:
    """Commit for all partitions that a member has, until it is acknowledged."""
    offsets = [TopicPartition(topic, p.partition, offset) for p in member.assignment()]
    began = time.monotonic()
    while True:
        try:
            done = member.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            assert time.monotonic() - began < DEADLINE_S
            member.poll(0.02)
        else:
            assert all(p.error is None for p in done or ())
            return


def test_a_group_goes_on_after_its_coordinator_was_killed(tmp_path: Path) -> None:
    with BrokerProcesses((tmp_path / "log").as_uri(), tmp_path, SETTINGS) as brokers:
        topic, group = f"t-{uuid4().hex[:8]}", f"g-{uuid4().hex[:8]}"
        admin = rd.AdminClient({"bootstrap.servers": brokers.bootstrap})
        for future in admin.create_topics([rd.NewTopic(topic, PARTITIONS, 3)]).values():
            future.result(DEADLINE_S)
        producer = Producer({"bootstrap.servers": brokers.bootstrap})
        for number in range(RECORDS):
            producer.produce(topic, str(number), partition=number % PARTITIONS)
        assert producer.flush(DEADLINE_S) == 0

        members = [consumer(brokers.bootstrap, group) for _ in range(2)]
        revoked: list[Any] = []
        for member in members:
            member.subscribe([topic], on_revoke=lambda _, parts: revoked.append(parts))
        began = time.monotonic()
        while sorted(len(m.assignment()) for m in members) != [2, 2]:
            assert time.monotonic() - began < DEADLINE_S
            for member in members:
                member.poll(0.1)
        owned = [m.assignment() for m in members]
        for offset in range(1, 30):
            for member in members:
                commit(member, topic, offset)
        revoked.clear()

        found = admin.describe_consumer_groups([group])[group].result(DEADLINE_S)
        brokers.kill(found.coordinator.id)
        killed = time.monotonic()
        for member in members:
            commit(member, topic, 30)
        for offset in range(31, 40):
            for member in members:
                commit(member, topic, offset)
        asked = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        assert [p.offset for p in members[0].committed(asked, DEADLINE_S)] == [39] * PARTITIONS
        while time.monotonic() - killed < 5.0:  # heartbeats go on too: no member joins again
            for member in members:
                member.poll(0.1)
        assert [m.assignment() for m in members] == owned
        assert revoked == []
        for member in members:
            member.close()
