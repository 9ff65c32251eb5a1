"""Share groups with unmodified clients: librdkafka's share consumer and Kafka's own tool."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import uuid4

import confluent_kafka as ck
import pytest

from sparklog.client.admin import Admin
from sparklog.client.values import ConfigResource
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers
from tests.peers.kafka_tools import KafkaTools

READ_S = 150.0
QUICK = {
    "group.share.min.heartbeat.interval.ms": "200",
    "group.share.heartbeat.interval.ms": "200",
    "offsets.topic.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
}
"""A member learns of its partitions by a heartbeat; Kafka's interval of 5 s only costs time."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers(f"memory://{uuid4()}", 2, QUICK) as cluster:
        yield cluster


@pytest.fixture
def topic(brokers: Brokers) -> str:
    """100 records in one partition."""
    name = f"t-{uuid4().hex[:8]}"
    with Admin(brokers.bootstrap) as admin:
        admin.create_topic(name, partitions=1)
    produce(brokers, name, range(100))
    return name


def produce(brokers: Brokers, topic: str, numbers: range) -> None:
    producer = ck.Producer({"bootstrap.servers": brokers.bootstrap, "linger.ms": 0})
    for number in numbers:
        producer.produce(topic, str(number).encode())
        if number % 5 == 4:
            producer.flush(READ_S)  # batches of five records, so that members can share them
    assert producer.flush(READ_S) == 0


def group_of(brokers: Brokers, topic: str, **settings: str) -> str:
    """Return a group that reads from the start, with further settings."""
    group = f"g-{topic}"
    changed = {"share.auto.offset.reset": "earliest"}
    changed |= {name.replace("_", "."): value for name, value in settings.items()}
    with Admin(brokers.bootstrap) as admin:
        admin.alter_configs(group, changed, kind=ConfigResource.GROUP)
    return group


@dataclass
class Worker:
    """A member of a share group that works in a thread until the test stops it."""

    brokers: Brokers
    group: str
    topic: str
    explicit: bool = False
    refused: frozenset[bytes] = frozenset()
    """Values that it rejects."""
    read: Counter[bytes] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self.failure: Exception | None = None
        mode = "explicit" if self.explicit else "implicit"
        self.consumer = ck.ShareConsumer(
            {
                "bootstrap.servers": self.brokers.bootstrap,
                "group.id": self.group,
                "share.acknowledgement.mode": mode,
            }
        )
        self.consumer.subscribe([self.topic])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                for message in self.consumer.poll(0.2):
                    assert message.error() is None, message.error()
                    value = message.value() or b""
                    self.read[value] += 1
                    if self.explicit:
                        kind = ck.AcknowledgeType
                        refused = value in self.refused
                        self.consumer.acknowledge(message, kind.REJECT if refused else kind.ACCEPT)
            self.consumer.close()
        except Exception as error:
            self.failure = error

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(READ_S)
        assert self.failure is None, self.failure


def test_workers_of_one_partition_share_its_records(brokers: Brokers, topic: str) -> None:
    group = group_of(brokers, topic)
    workers = [Worker(brokers, group, topic) for _ in range(3)]
    eventually(lambda: sum(sum(w.read.values()) for w in workers) >= 100, "all records", READ_S)
    produce(brokers, topic, range(100, 200))
    eventually(lambda: sum(sum(w.read.values()) for w in workers) >= 200, "all records", READ_S)
    for worker in workers:
        worker.stop()
    read = sum((w.read for w in workers), Counter[bytes]())
    assert read == Counter(str(n).encode() for n in range(200)), "each record once"
    late = Worker(brokers, group, topic)
    produce(brokers, topic, range(200, 205))
    eventually(lambda: sum(late.read.values()) >= 5, "the new records", READ_S)
    late.stop()
    assert set(late.read) == {str(n).encode() for n in range(200, 205)}


def test_rejected_record_goes_to_the_dead_letter_topic(brokers: Brokers, topic: str) -> None:
    dead = f"dlq.{topic}"
    with Admin(brokers.bootstrap) as admin:
        admin.create_topic(
            dead, partitions=1, configs={"errors.deadletterqueue.group.enable": "true"}
        )
    group = group_of(
        brokers,
        topic,
        errors_deadletterqueue_topic_name=dead,
        errors_deadletterqueue_copy_record_enable="true",
    )
    worker = Worker(brokers, group, topic, explicit=True, refused=frozenset({b"7"}))
    consumer = ck.Consumer(
        {"bootstrap.servers": brokers.bootstrap, "group.id": dead, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([dead])
    found = eventually(lambda: consumer.poll(1.0), "the dead letter", READ_S)
    worker.stop()
    consumer.close()
    assert found.value() == b"7"
    headers = dict(found.headers() or ())
    assert headers["__dlq.errors.topic"] == topic.encode()
    assert headers["__dlq.errors.offset"] == b"7"
    assert headers["__dlq.errors.group"] == group.encode()
    assert worker.read == Counter(str(n).encode() for n in range(100))


def test_records_of_a_member_that_leaves_come_again_at_once(brokers: Brokers, topic: str) -> None:
    group = group_of(brokers, topic)
    left = ck.ShareConsumer(
        {
            "bootstrap.servers": brokers.bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
        }
    )
    left.subscribe([topic])
    taken = eventually(lambda: left.poll(1.0), "some records", READ_S)
    assert len(taken) > 0
    left.close()
    worker = Worker(brokers, group, topic)
    eventually(lambda: len(worker.read) == 100, "all records", READ_S)
    worker.stop()
    assert set(worker.read.values()) == {1}


def test_committed_groups_get_no_aborted_record(brokers: Brokers, topic: str) -> None:
    producer = ck.Producer({"bootstrap.servers": brokers.bootstrap, "transactional.id": topic})
    producer.init_transactions(READ_S)
    for value, commits in ((b"aborted", False), (b"committed", True)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(READ_S)
        if commits:
            producer.commit_transaction(READ_S)
        else:
            producer.abort_transaction(READ_S)
    group = group_of(brokers, topic, share_isolation_level="read_committed")
    worker = Worker(brokers, group, topic)
    eventually(lambda: worker.read[b"committed"], "the committed record", READ_S)
    worker.stop()
    assert len(worker.read) == 101
    assert b"aborted" not in worker.read


def test_kafkas_console_share_consumer_reads(brokers: Brokers, topic: str) -> None:
    group = group_of(brokers, topic)
    lines = KafkaTools(brokers.bootstrap)(
        "consumer.ConsoleShareConsumer",
        *("--topic", topic, "--group", group, "--max-messages", "100"),
        *("--timeout-ms", "60000"),
    )
    assert sorted(lines) == sorted(str(n) for n in range(100))
