"""Writes to partitions that brokers lead: real brokers in this process, no Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from uuid import uuid4

import pyarrow as pa
import pytest

from sparklog.client.consumer import Consumer
from sparklog.client.values import EARLIEST
from sparklog.cluster import publication
from sparklog.cluster.log import Log
from sparklog.cluster.publication import StagedPartition, append_once, publish
from sparklog.core.errors import NotServing, Unavailable, UnknownTopicOrPartition
from sparklog.core.types import TopicPartition
from sparklog.log.effects import run
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.leader_append import take_leadership
from sparklog.spark.access import log_access
from sparklog.spark.sink.leader_sink import LeaderAppends
from sparklog.spark.sink.options import SinkOptions
from sparklog.spark.sink.writer import SparklogWriter, stage_rows
from tests.harness.led_topics import LedTopic
from tests.harness.source_logs import new_log, numbered, rows_of
from tests.interop.brokers import Brokers


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers(f"memory://{uuid4()}") as running:
        yield running


@pytest.fixture
def topic(brokers: Brokers) -> LedTopic:
    return LedTopic(brokers, partitions=2)


def staged(log: Log, topic: str, values: Iterable[bytes]) -> tuple[StagedPartition, ...]:
    """Stage rows as a task does; their keys spread them over the partitions."""
    column = pa.array(list(values), pa.binary())
    batch = pa.RecordBatch.from_pydict({"key": column, "value": column})
    return stage_rows(log, SinkOptions("", topic), ["key", "value"], iter([batch]))


def consumed(topic: LedTopic, count: int, partitions: int = 2) -> list[bytes]:
    """Read with a Kafka client."""
    found: list[bytes] = []
    with Consumer(topic.brokers.bootstrap) as consumer:
        consumer.assign({TopicPartition(topic.name, n): EARLIEST for n in range(partitions)})
        while len(found) < count or len(consumer.ends_reached) < partitions:
            found += [record.value or b"" for record in consumer.poll()]
    return found


def values(topic: LedTopic) -> list[bytes]:
    return sorted((row[0] for row in rows_of(topic.log, ("value",), subscribe=topic.name)), key=int)


def test_a_batch_write_reaches_kafkas_clients_and_spark(topic: LedTopic) -> None:
    topic.send(0, 10)
    writer = SparklogWriter(
        SinkOptions("", topic.name),
        ("value",),
        lambda root: log_access.shared_log(topic.log.store.url),
    )
    rows = [pa.RecordBatch.from_pydict({"value": numbered(10, 2000)})]
    message = writer.write(iter(rows))
    writer.commit([message, None])
    writer.commit([message])  # a driver that is not sure does it again
    topic.send(2010, 5, partition=1)
    assert values(topic) == numbered(0, 2015)
    assert sorted(consumed(topic, 2015), key=int) == numbered(0, 2015)


def test_published_batch_is_there_once_after_another_attempt(topic: LedTopic) -> None:
    log, appends = topic.log, LeaderAppends(topic.log, None)
    first = staged(log, topic.name, numbered(0, 100))
    done = publish(log, "query", 0, first, append_led=appends)
    assert sorted(done) == [TopicPartition(topic.name, n) for n in range(2)]
    for attempt in (first, staged(log, topic.name, numbered(0, 100))):
        again = publish(log, "query", 0, attempt, append_led=appends)
        assert {p: (a.base_offset, a.end_offset) for p, a in again.items()} == {
            p: (a.base_offset, a.end_offset) for p, a in done.items()
        }
    publish(log, "query", 1, staged(log, topic.name, numbered(100, 50)), append_led=appends)
    publish(log, "query", 0, first, append_led=appends)
    assert values(topic) == numbered(0, 150)


def test_brokers_may_be_named_and_must_serve_this_log(topic: LedTopic) -> None:
    log, parts = topic.log, staged(topic.log, topic.name, numbered(0, 4))
    append_once(log, parts, append_led=LeaderAppends(log, topic.brokers.bootstrap))
    with Brokers(f"memory://{uuid4()}") as others:
        LedTopic(others)
        more = staged(log, topic.name, numbered(4, 4))
        asked = LeaderAppends(log, others.bootstrap)(more, None)
        assert all(isinstance(one, UnknownTopicOrPartition) for one in asked.values())
    assert values(topic) == numbered(0, 4)


def test_writes_go_on_while_brokers_come_and_go() -> None:
    """One query publishes batch after batch: directly, through leaders, and directly again."""
    root = f"memory://{uuid4()}"
    log = log_access.shared_log(root)
    log.create_topic("t", 2)
    stop = threading.Event()
    batches = 0
    failed: list[BaseException] = []

    def write() -> None:
        nonlocal batches
        try:
            while not stop.is_set():
                parts = staged(log, "t", numbered(batches * 10, 10))
                for _ in range(2):
                    publish(log, "query", batches, parts, append_led=LeaderAppends(log, None))
                batches += 1
        except BaseException as error:
            failed.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(2):
        with Brokers(root):
            before = batches
            while batches < before + 3 and not failed:
                stop.wait(0.05)
        before = batches
        while batches < before + 3 and not failed:
            stop.wait(0.05)
    stop.set()
    writer.join()
    assert not failed
    rows = [row[0] for row in rows_of(log, ("value",), subscribe="t")]
    assert sorted(rows, key=int) == numbered(0, batches * 10)


def test_led_partition_without_brokers_rejects_writes_with_a_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = new_log()
    log.create_topic("t")
    layout = log.partition("t", 0).layout
    run(take_leadership(PartitionView(layout), 1, "a" * 32), log.store)
    parts = staged(log, "t", numbered(0, 3))
    with pytest.raises(NotServing, match="led by a broker"):
        append_once(log, parts)
    monkeypatch.setattr(publication, "LED_PATIENCE_S", 0.3)
    with pytest.raises(Unavailable, match=r"none is registered.*kafka\.bootstrap\.servers"):
        publish(log, "q", 0, parts, append_led=LeaderAppends(log, None))
    with pytest.raises(Unavailable, match="no broker answers"):
        publish(log, "q", 0, parts, append_led=LeaderAppends(log, "127.0.0.1:1"))
    assert log.partition("t", 0).view().end_offset == 0
