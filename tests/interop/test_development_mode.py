"""Three broker processes in Python's development mode, with unmodified clients.

That mode shows resources that are never closed, tasks that are never awaited, and calls of asyncio
from the wrong thread. Each log must be free of them at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import confluent_kafka as ck
import confluent_kafka.admin
import pytest

from tests.harness.broker_processes import BrokerProcesses
from tests.harness.waiting import eventually

rd: Any = confluent_kafka.admin
"""librdkafka's admin API, which ships no types."""
PARTITIONS = 50
TRANSACTIONS = 30
DEADLINE_S = 120.0
FAULTS = re.compile(
    r"never retrieved|was never awaited|ResourceWarning|RuntimeWarning|DeprecationWarning|"
    r"Non-thread-safe operation|Traceback|ERROR"
)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcesses]:
    """Three brokers; their logs are checked when they have stopped."""
    folder = tmp_path_factory.mktemp("brokers")
    root = str(tmp_path_factory.mktemp("root"))
    # The mode under test. No user needs to set it.
    environment = {"PYTHONDEVMODE": "1"}
    with BrokerProcesses(root, folder, environment=environment) as cluster:
        yield cluster
        for broker in cluster.brokers:
            broker.stop()
    faulty = [line for broker in cluster.brokers for line in broker.log.splitlines()]
    assert [line for line in faulty if FAULTS.search(line)] == []


def create(brokers: BrokerProcesses, partitions: int) -> str:
    """Create a topic of three replicas, and return its name."""
    name = f"t-{uuid4().hex[:8]}"
    admin = rd.AdminClient({"bootstrap.servers": brokers.bootstrap})
    (created,) = admin.create_topics([rd.NewTopic(name, partitions, 3)]).values()
    created.result(DEADLINE_S)
    return name


def test_log_lines_lead_from_a_leader_back_to_the_request(brokers: BrokerProcesses) -> None:
    create(brokers, PARTITIONS)
    appended = re.compile(
        r"metadata appended end_offset=(\d+) .*causes=\[CREATE_TOPICS id=\d+ client="
    )

    def leads_back() -> bool:
        text = "".join(broker.log for broker in brokers.brokers)
        ends = appended.findall(text)
        return any(
            re.search(rf"leading \d+ .* cause=\[metadata end_offset={end}\]", text) for end in ends
        )

    eventually(leads_back, "a leader's line names what its request appended", DEADLINE_S)


def test_first_record_of_a_new_partition_needs_no_retry(
    brokers: BrokerProcesses,
) -> None:
    topic = create(brokers, PARTITIONS)
    # Without retries NOT_LEADER_OR_FOLLOWER reaches the callback.
    producer = ck.Producer({"bootstrap.servers": brokers.bootstrap, "retries": 0})
    failed: list[str] = []
    done: list[int] = []

    def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
        done.append(message.partition() or 0)
        if error is not None:
            failed.append(str(error))

    for partition in range(PARTITIONS):
        producer.produce(topic, b"first", partition=partition, on_delivery=delivered)
    assert producer.flush(DEADLINE_S) == 0
    assert failed == []
    assert sorted(done) == list(range(PARTITIONS))


def test_next_transaction_begins_right_after_an_answered_commit(brokers: BrokerProcesses) -> None:
    topic = create(brokers, 3)
    settings = {"bootstrap.servers": brokers.bootstrap, "transactional.id": f"x-{topic}"}
    producer = ck.Producer(settings)
    producer.init_transactions(DEADLINE_S)
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        for partition in range(3):
            producer.produce(topic, b"%d" % number, partition=partition)
        if number % 3:
            producer.commit_transaction(DEADLINE_S)
        else:
            producer.abort_transaction(DEADLINE_S)
    expected = sorted([n for n in range(TRANSACTIONS) if n % 3] * 3)
    assert sorted(read(brokers, topic, len(expected), "classic")) == expected


def test_group_that_subscribes_by_pattern_reads_topics_by_their_ids(
    brokers: BrokerProcesses,
) -> None:
    topic = create(brokers, 3)
    producer = ck.Producer({"bootstrap.servers": brokers.bootstrap})
    for number in range(9):
        producer.produce(topic, b"%d" % number, partition=number % 3)
    assert producer.flush(DEADLINE_S) == 0
    assert sorted(read(brokers, f"^{topic}$", 9, "consumer")) == list(range(9))


def read(brokers: BrokerProcesses, pattern: str, count: int, protocol: str) -> list[int]:
    """Read committed records of a topic in a group, until there are `count`."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": brokers.bootstrap,
            "group.id": f"g-{uuid4().hex[:8]}",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([pattern])
    found: list[int] = []

    def all_read() -> bool:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(int(message.value() or b"-1"))
        return len(found) >= count

    try:
        eventually(all_read, f"{count} records of {pattern}", DEADLINE_S)
    finally:
        consumer.close()
    return found
