"""MirrorMaker moves topics, records and groups from a Kafka to brokers, and from brokers back."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import confluent_kafka as ck
import pytest

from sparklog.client.admin import Admin
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers
from tests.interop.test_kafka_streams import running
from tests.peers.connect import MIRROR_MAKER, errors, mirroring, program
from tests.peers.jars import KAFKA_CONNECT
from tests.peers.kafka import KafkaCluster

pytestmark = pytest.mark.soak
PARTITIONS = 4
BEFORE, AFTER = range(2_000), range(2_000, 3_000)
"""Numbers of the records that are there before MirrorMaker runs, and of those sent later."""
ABORTED = range(10_000, 10_100)
DEADLINE_S = 150.0
BEGAN_MS = time.time_ns() // 1_000_000 - 3_600_000
SETTINGS = {
    "orders": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.25"},
    "notes": {"retention.ms": "86400000", "max.message.bytes": "2000000"},
}
CHANGED = {"retention.ms": "172800000"}
"""Of the notes, while MirrorMaker runs."""
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}


@dataclass(frozen=True)
class Record:
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: tuple[int, int]
    offset: int = field(compare=False)
    """Of its cluster: transactions leave markers of their own in each."""


Records = dict[tuple[str, int], list[Record]]
"""By topic and partition."""


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers(f"memory://{uuid4()}", 2, QUICK) as cluster:
        yield cluster


def send(producer: ck.Producer, topics: tuple[str, ...], numbers: range) -> None:
    """Send to each topic: keys come again, some without a value as one deletes a key."""
    for topic in topics:
        for number in numbers:
            producer.produce(
                topic,
                None if number % 13 == 0 else f"value {number}".encode() * (number % 7),
                None if topic.startswith("notes") and number % 3 == 0 else f"key {number % 40}",
                partition=number % PARTITIONS,
                timestamp=BEGAN_MS + number,
                headers=[("n", str(number).encode()), ("n", b""), ("none", None)],
            )
    assert producer.flush(DEADLINE_S) == 0


def send_in_transactions(bootstrap: str, topics: tuple[str, ...]) -> None:
    """Send records of aborted transactions, and then the later records."""
    producer = ck.Producer({"bootstrap.servers": bootstrap, "transactional.id": f"t-{uuid4()}"})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    send(producer, topics, ABORTED)
    producer.abort_transaction(DEADLINE_S)
    producer.begin_transaction()
    send(producer, topics, AFTER)
    producer.commit_transaction(DEADLINE_S)


def read(bootstrap: str, topics: tuple[str, ...], group: str = "", reset: str = "error") -> Records:
    """Return what is committed: all of it, or what a group has not read yet and now commits."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group or "nobody",
        "auto.offset.reset": reset,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = ck.Consumer(settings)
    places = [(topic, number) for topic in topics for number in range(PARTITIONS)]
    found: Records = {place: [] for place in places}
    at_end: set[tuple[str, int]] = set()
    if group:
        consumer.subscribe(list(topics))
    else:
        consumer.assign([ck.TopicPartition(*place, ck.OFFSET_BEGINNING) for place in places])
    deadline_s = time.monotonic() + DEADLINE_S
    while len(at_end) < len(places):
        assert time.monotonic() < deadline_s, f"read only {at_end} to the end"
        for message in consumer.consume(5_000, 0.2):
            place = (message.topic() or "", message.partition() or 0)
            if (error := message.error()) is None:
                found[place].append(record(message))
            elif error.code() == ck.KafkaError._PARTITION_EOF:
                at_end.add(place)
            else:
                raise ck.KafkaException(error)
    if group:
        consumer.commit(asynchronous=False)
    consumer.close()
    return found


def record(message: ck.Message) -> Record:
    headers: Any = message.headers()
    at = message.offset() or 0
    return Record(message.key(), message.value(), tuple(headers), message.timestamp(), at)


def arrived(bootstrap: str, topics: tuple[str, ...], numbers: range) -> Records | None:
    """Return what is there once it is as many records as were sent."""
    with Admin(bootstrap) as admin:
        if not set(topics) <= set(admin.topic_names()):
            return None
    found = read(bootstrap, topics)
    there = sum(map(len, found.values()))
    return found if there >= len(topics) * len(numbers) else None


def committed(
    bootstrap: str, group: str, places: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], int]:
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        asked = [ck.TopicPartition(*place) for place in places]
        return {(c.topic, c.partition): c.offset for c in consumer.committed(asked, DEADLINE_S)}
    finally:
        consumer.close()


def set_there(bootstrap: str, topics: tuple[str, ...]) -> list[Mapping[str, str]]:
    with Admin(bootstrap) as admin:
        return [admin.topic(topic).configs for topic in topics]


@pytest.mark.parametrize("to_brokers", [True, False], ids=["to brokers", "from brokers"])
def test_topics_records_and_groups_move(
    kafka: KafkaCluster, brokers: Brokers, tmp_path: Path, to_brokers: bool
) -> None:
    """A group reads at the old cluster, and goes on at the new one where it was."""
    old, new = kafka.bootstrap, brokers.bootstrap
    if not to_brokers:
        old, new = new, old
    run = uuid4().hex[:6]
    topics, group = tuple(f"{name}-{run}" for name in SETTINGS), f"readers-{run}"
    with Admin(old) as admin:
        for topic, configs in zip(topics, SETTINGS.values(), strict=True):
            admin.create_topic(topic, PARTITIONS, configs, 2)
    send(ck.Producer({"bootstrap.servers": old}), topics, BEFORE)
    log = tmp_path / "mirror-maker.log"
    words = program(MIRROR_MAKER, mirroring(old, new, topics, group), tmp_path)
    with running(KAFKA_CONNECT.class_path(), *words, log=log):
        first = eventually(lambda: arrived(new, topics, BEFORE), "what was sent before", every_s=1)
        assert first == read(old, topics, group, "earliest")
        nexts = {place: records[-1].offset + 1 for place, records in first.items()}
        eventually(lambda: committed(new, group, nexts) == nexts, "the group's offsets")
        with Admin(old) as admin:
            admin.alter_configs(topics[1], CHANGED)
        send_in_transactions(old, topics)
        eventually(
            lambda: arrived(new, topics, range(AFTER.stop)), "what was sent later", every_s=1
        )
        rest = read(new, topics, group)
        given = [SETTINGS["orders"], SETTINGS["notes"] | CHANGED]
        eventually(lambda: set_there(new, topics) == given, "the settings")
    assert errors(log) == []
    everything = read(new, topics)
    assert everything == read(old, topics)
    assert rest == {
        place: all_of_it[len(first[place]) :] for place, all_of_it in everything.items()
    }
    assert sum(map(len, rest.values())) == len(topics) * len(AFTER)
