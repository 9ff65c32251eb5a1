"""A stream's progress as a group's offsets: real brokers in this process, no Spark."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import confluent_kafka as ck
import pytest

from sparklog.client.addresses import bootstrap_addresses
from sparklog.client.connections import BrokerConnections as Connections
from sparklog.client.groups import Groups
from sparklog.client.wire import CLIENT_ID
from sparklog.cluster.log import Log
from sparklog.core.clock import SYSTEM_CLOCK, ManualClock
from sparklog.core.errors import SparklogError
from sparklog.core.types import TopicPartition
from sparklog.spark.source.group_progress import AGAIN_S
from sparklog.testing.wire_proxy import WireProxy
from tests.harness.led_topics import LedTopic
from tests.harness.source_logs import append, new_log, numbered
from tests.interop.brokers import Brokers
from tests.unit.spark.source.test_source_stream_reader import Query


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers(f"memory://{uuid4()}", settings={"offsets.topic.num.partitions": "2"}) as running:
        yield running


class GroupQuery(Query):
    """A query that commits to a group; a context manager that stops it."""

    def __init__(
        self, log: Log, topic: str, group: str, clock: ManualClock | None = None, **options: str
    ) -> None:
        wanted = {"subscribe": topic, "startingOffsets": "earliest", "kafka.group.id": group}
        super().__init__(log, clock, **wanted, **options)

    def __enter__(self) -> GroupQuery:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.stop()


@contextmanager
def groups_of(brokers: Brokers) -> Iterator[Groups]:
    client = Connections(bootstrap_addresses(brokers.bootstrap))
    yield Groups(client, SYSTEM_CLOCK)
    client.close()


def committed(brokers: Brokers, group: str) -> dict[TopicPartition, int]:
    with groups_of(brokers) as groups:
        found = groups.offsets([group])[group]
    assert not isinstance(found, SparklogError), found
    return {tp: one.offset for tp, one in found.items()}


def test_group_commits_processed_offsets_and_lags_by_the_rest(brokers: Brokers) -> None:
    topic = LedTopic(brokers)
    topic.send(0, 10)
    group = f"g-{uuid4().hex[:8]}"
    place = TopicPartition(topic.name, 0)
    ended = []
    with GroupQuery(topic.log, topic.name, group, maxOffsetsPerTrigger="4") as running:
        for _ in range(4):
            running.trigger()
            ended.append(committed(brokers, group)[place])
    assert ended == [0, 4, 8, 10]
    topic.send(10, 5)
    assert committed(brokers, group) == {place: 10}
    consumer = ck.Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": group})
    _, end = consumer.get_watermark_offsets(ck.TopicPartition(topic.name, 0), timeout=10)
    consumer.close()
    assert end - 10 == 5


def test_query_continues_from_its_checkpoint_not_from_its_group(brokers: Brokers) -> None:
    topic = LedTopic(brokers)
    topic.send(0, 3)
    group = f"g-{uuid4().hex[:8]}"
    with GroupQuery(topic.log, topic.name, group) as running:
        running.trigger()
        running.trigger()
        with groups_of(brokers) as groups:
            groups.move_offsets(group, {TopicPartition(topic.name, 0): 0})
        running.reader.stop()
        running.start()
        topic.send(3, 2)
        assert running.trigger() == numbered(3, 2)
        running.trigger()
    assert committed(brokers, group) == {TopicPartition(topic.name, 0): 5}


class Mending(ManualClock):
    """A clock whose sleeper finds the way mended."""

    def __init__(self, way: WireProxy) -> None:
        super().__init__()
        self.way = way

    def sleep_s(self, seconds: float) -> None:
        super().sleep_s(seconds)
        self.way.heal()

    def __reduce__(self) -> tuple[type[ManualClock], tuple[()]]:
        return ManualClock, ()  # readers are pickled; the way stays here


def test_a_query_that_ends_waits_for_brokers_that_are_away(brokers: Brokers) -> None:
    topic = LedTopic(brokers)
    topic.send(0, 3)
    group = f"g-{uuid4().hex[:8]}"
    way = WireProxy()
    way.lead_to(int(brokers.bootstrap.rpartition(":")[2]))
    through = {"kafka.bootstrap.servers": f"127.0.0.1:{way.port}"}
    with GroupQuery(topic.log, topic.name, group, Mending(way), **through) as running:
        running.reader.prepareForTriggerAvailableNow()
        assert running.trigger() == numbered(0, 3)
        way.cut(CLIENT_ID)
        assert not running.plan()
    way.close()
    assert committed(brokers, group) == {TopicPartition(topic.name, 0): 3}


def test_query_that_ends_commits_to_the_present_brokers() -> None:
    root = f"memory://{uuid4()}"
    few = {"offsets.topic.num.partitions": "1"}
    group = "g"
    with Brokers(root, settings=few) as first:
        topic = LedTopic(first)
        topic.send(0, 3)
        running = GroupQuery(topic.log, topic.name, group)
        running.reader.prepareForTriggerAvailableNow()
        assert running.trigger() == numbered(0, 3)
    place = TopicPartition(topic.name, 0)
    with running, Brokers(root, settings=few) as second:
        assert committed(second, group) == {place: 0}  # the coordinator is there
        assert not running.plan()
        assert committed(second, group) == {place: 3}


def test_query_without_brokers_runs_and_commits_nothing() -> None:
    log = new_log()
    log.create_topic("t", 1)
    append(log, "t", 0, numbered(0, 3))
    with GroupQuery(log, "t", "g") as running:
        assert running.trigger() == numbered(0, 3)
        assert running.trigger() == []


def test_brokers_that_do_not_answer_are_left_alone_for_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = new_log()
    log.create_topic("t", 1)
    append(log, "t", 0, numbered(0, 3))
    clock = ManualClock()
    nobody = {"kafka.bootstrap.servers": "127.0.0.1:1"}
    with (
        caplog.at_level(logging.WARNING),
        GroupQuery(log, "t", "g", clock, **nobody) as running,
    ):
        for _ in range(5):
            running.trigger()
        assert len(running.rows) == 3
        assert len(caplog.records) == 1, caplog.text
        clock.sleep_s(AGAIN_S)
        running.trigger()
    assert len(caplog.records) == 2
    assert "group=g" in caplog.text
