"""Unmodified clients as members of groups: librdkafka's consumers, eager and cooperative."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import confluent_kafka
import confluent_kafka.admin
import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.interop.brokers import Brokers

rd: Any = confluent_kafka.admin
"""librdkafka's admin API, which ships no types."""
RECORDS = 120
PARTITIONS = 6
END = RECORDS // PARTITIONS
DEADLINE_S = 120.0
SESSION_MS = 2_000
QUICK = {"group.initial.rebalance.delay.ms": "100", "group.min.session.timeout.ms": "500"}


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers(f"memory://{uuid4()}", count=2, settings=QUICK) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(brokers: Brokers) -> Any:
    return rd.AdminClient({"bootstrap.servers": brokers.bootstrap})


@pytest.fixture
def topic(brokers: Brokers, admin: Any) -> str:
    name = f"t-{uuid4().hex[:8]}"
    for future in admin.create_topics([rd.NewTopic(name, PARTITIONS, 2)]).values():
        future.result(DEADLINE_S)
    write(brokers, name, 0)
    return name


def write(brokers: Brokers, topic: str, first: int) -> None:
    """Write RECORDS numbers over all partitions."""
    producer = confluent_kafka.Producer({"bootstrap.servers": brokers.bootstrap})
    for number in range(first, first + RECORDS):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0


class Member:
    """One consumer of a group, and what it has read."""

    def __init__(self, brokers: Brokers, group: str, topic: str, **settings: Any) -> None:
        self.values: list[int] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": brokers.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 200,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self.consumer.subscribe([topic])

    @property
    def partitions(self) -> set[int]:
        return {p.partition for p in self.consumer.assignment()}

    def poll(self) -> None:
        for message in self.consumer.consume(RECORDS, 0.05):
            if message.error() is None:
                self.values.append(int(message.value() or b""))

    def committed(self, topic: str) -> list[int]:
        asked = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        return [p.offset for p in self.consumer.committed(asked, DEADLINE_S)]


def until(holds: Any, *members: Member) -> None:
    """Poll until something holds."""
    began = time.monotonic()
    while not holds():
        assert time.monotonic() - began < DEADLINE_S, [(m.partitions, m.values) for m in members]
        for member in members:
            member.poll()


def shared(*members: Member) -> bool:
    """Return True if every partition has one owner, and every member has a partition."""
    owned = [p for m in members for p in m.partitions]
    return sorted(owned) == list(range(PARTITIONS)) and all(m.partitions for m in members)


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_partitions_as_they_come_and_go(
    brokers: Brokers, topic: str, assignor: str
) -> None:
    group = f"g-{uuid4().hex[:8]}"
    settings = {"partition_assignment_strategy": assignor}
    first = Member(brokers, group, topic, **settings)
    until(lambda: len(first.values) == RECORDS, first)
    first.consumer.commit(asynchronous=False)
    second, third = (Member(brokers, group, topic, **settings) for _ in range(2))
    until(lambda: shared(first, second, third), first, second, third)
    second.consumer.close()
    until(lambda: shared(first, third), first, third)
    write(brokers, topic, RECORDS)
    until(lambda: len(first.values) + len(third.values) == 2 * RECORDS, first, third)
    assert sorted(first.values + third.values) == list(range(2 * RECORDS))
    assert second.values == []
    first.consumer.close()
    third.consumer.close()


def test_committed_offsets_are_where_the_next_member_goes_on(brokers: Brokers, topic: str) -> None:
    group = f"g-{uuid4().hex[:8]}"
    first = Member(brokers, group, topic, enable_auto_commit=True, auto_commit_interval_ms=100)
    until(lambda: len(first.values) == RECORDS, first)
    until(lambda: -1001 not in first.committed(topic), first)
    first.consumer.close()
    write(brokers, topic, RECORDS)
    second = Member(brokers, group, topic)
    until(lambda: len(second.values) >= RECORDS, second)
    assert sorted(second.values) == list(range(RECORDS, 2 * RECORDS))
    second.consumer.commit(asynchronous=False)
    assert second.committed(topic) == [END + RECORDS // PARTITIONS] * PARTITIONS
    second.consumer.close()


def test_partitions_of_a_crashed_member_move_within_its_session(
    brokers: Brokers, topic: str
) -> None:
    group = f"g-{uuid4().hex[:8]}"
    member = Member(brokers, group, topic)
    code = Path(__file__).with_name("group_member.py")
    child = subprocess.Popen(
        [sys.executable, str(code), brokers.bootstrap, group, topic, str(SESSION_MS)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        until(lambda: member.partitions and len(member.partitions) < PARTITIONS, member)
        assert child.stdout.readline() == "assigned\n"
        child.kill()
        # A member is also removed after five minutes without a poll, longer than this waits.
        until(lambda: shared(member), member)
    finally:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()
    until(lambda: set(member.values) == set(range(RECORDS)), member)
    member.consumer.close()


def test_a_static_member_comes_back_without_a_rebalance(brokers: Brokers, topic: str) -> None:
    group = f"g-{uuid4().hex[:8]}"
    settings = {"session_timeout_ms": 30_000}
    stays = Member(brokers, group, topic, group_instance_id="stays", **settings)
    leaves = Member(brokers, group, topic, group_instance_id="leaves", **settings)
    until(lambda: shared(stays, leaves), stays, leaves)
    had, kept = leaves.partitions, stays.partitions
    leaves.consumer.close()  # says nothing: a static member does not leave
    back = Member(brokers, group, topic, group_instance_id="leaves", **settings)
    until(lambda: bool(back.partitions), back, stays)
    assert (back.partitions, stays.partitions) == (had, kept)
    stays.consumer.close()
    back.consumer.close()


def test_groups_are_described_listed_and_deleted(brokers: Brokers, admin: Any, topic: str) -> None:
    group = f"g-{uuid4().hex[:8]}"
    member = Member(brokers, group, topic, client_id="me")
    until(lambda: shared(member), member)
    described = admin.describe_consumer_groups([group])[group].result(DEADLINE_S)
    assert described.state.name == "STABLE"
    assert described.partition_assignor == "range"
    (seen,) = described.members
    assert (seen.client_id, seen.host) == ("me", "/127.0.0.1")
    assert {p.partition for p in seen.assignment.topic_partitions} == set(range(PARTITIONS))
    listed = admin.list_consumer_groups().result(DEADLINE_S)
    assert group in {g.group_id for g in listed.valid}
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result(DEADLINE_S)
    assert refused.value.args[0].name() == "NON_EMPTY_GROUP"
    until(lambda: len(member.values) == RECORDS, member)
    member.consumer.commit(asynchronous=False)
    member.consumer.close()

    def state() -> str:
        found = admin.describe_consumer_groups([group])[group].result(DEADLINE_S)
        return str(found.state.name)

    until(lambda: state() == "EMPTY")
    asked = confluent_kafka.ConsumerGroupTopicPartitions(group)
    found = admin.list_consumer_group_offsets([asked])[group].result(DEADLINE_S)
    assert [p.offset for p in found.topic_partitions] == [END] * PARTITIONS
    moved = confluent_kafka.ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 3)])
    admin.alter_consumer_group_offsets([moved])[group].result(DEADLINE_S)
    one = confluent_kafka.ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    found = admin.list_consumer_group_offsets([one])[group].result(DEADLINE_S)
    assert found.topic_partitions[0].offset == 3
    admin.delete_consumer_groups([group])[group].result(DEADLINE_S)
    listed = admin.list_consumer_groups().result(DEADLINE_S)
    assert group not in {g.group_id for g in listed.valid}


def test_sparklog_consume_goes_on_where_its_group_stopped(brokers: Brokers, topic: str) -> None:
    group = f"g-{uuid4().hex[:8]}"
    words = [sys.executable, "-m", "sparklog.cli", "consume", "--topic", topic, "--group", group]
    words += ["--bootstrap-server", brokers.bootstrap, "--from-beginning", "--max-messages"]
    seen: list[int] = []
    for count in (50, RECORDS - 50):
        done = subprocess.run(
            [*words, str(count)],
            capture_output=True,
            text=True,
            timeout=4 * DEADLINE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        seen += map(int, done.stdout.split())
    assert sorted(seen) == list(range(RECORDS))


@pytest.mark.parametrize("client", ["kafka_python", "aiokafka"])
def test_python_clients_share_and_commit(brokers: Brokers, topic: str, client: str) -> None:
    code = Path(__file__).with_name(f"{client}_group.py")
    group = f"g-{uuid4().hex[:8]}"
    done = subprocess.run(
        [sys.executable, str(code), brokers.bootstrap, group, topic, str(RECORDS)],
        capture_output=True,
        text=True,
        timeout=4 * DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert sorted(seen["values"]) == list(range(RECORDS))
    assert seen["owned"] == [PARTITIONS // 2, PARTITIONS // 2]
    assert seen["committed"] == [END] * PARTITIONS
