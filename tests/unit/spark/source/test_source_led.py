"""Reads of partitions that brokers lead: real brokers in this process, no Spark."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from uuid import uuid4

import confluent_kafka as ck
import pytest

from sparklog.client.batch_fetcher import FetchedSpan
from sparklog.core.errors import Unavailable
from sparklog.core.types import TopicPartition
from sparklog.log.effects import run
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.leader_append import take_leadership
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.log.partition.segment_reader import SegmentReader
from sparklog.spark.source import partition_states
from sparklog.spark.source.live_tail import LiveTailReader, TailRequest
from sparklog.spark.source.schema import ARROW_TYPES
from tests.harness.led_topics import LedTopic
from tests.harness.source_logs import (
    append,
    batch_reader,
    new_log,
    numbered,
    read_all,
    rows_of,
    stream_reader,
)
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers

ALL = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    few = {"transaction.state.log.num.partitions": "2"}
    with Brokers(f"memory://{uuid4()}", settings=few) as running:
        yield running


@pytest.fixture
def topic(brokers: Brokers) -> LedTopic:
    return LedTopic(brokers)


def values(topic: LedTopic, **options: str) -> list[bytes]:
    return [row[0] for row in rows_of(topic.log, ("value",), subscribe=topic.name, **options)]


def test_segments_and_unflushed_records_make_one_result(topic: LedTopic) -> None:
    stored_end = topic.flush(0, 5)
    topic.send(5, 5)
    assert topic.stored_end() == stored_end
    columns = ("partition", "offset", "value", "timestampType")
    rows = rows_of(topic.log, columns, subscribe=topic.name)
    assert rows == [(0, n, b"%d" % n, 0) for n in range(10)]
    assert values(topic, includeUnflushed="false") == numbered(0, 5)


def test_batches_of_the_tail_are_as_spark_wants_them(topic: LedTopic) -> None:
    topic.send(0, 3)
    reader = batch_reader(topic.log, ALL, subscribe=topic.name)
    found = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert [batch.schema.types for batch in found] == [[ARROW_TYPES[name] for name in ALL]]
    assert found[0].column("topic").to_pylist() == [topic.name] * 3


def test_counting_needs_no_columns(topic: LedTopic) -> None:
    topic.flush(0, 5)
    topic.send(5, 5)
    reader = batch_reader(topic.log, (), subscribe=topic.name)
    counts = [batch.num_rows for part in reader.partitions() for batch in reader.read(part)]
    assert sum(counts) == 10


def test_ranges_may_lie_in_segments_in_the_tail_or_across(topic: LedTopic) -> None:
    topic.flush(0, 5)
    topic.send(5, 5)

    def between(base: int, end: int) -> list[bytes]:
        limits = {"startingOffsets": base, "endingOffsets": end}
        return values(topic, **{k: json.dumps({topic.name: {"0": v}}) for k, v in limits.items()})

    for base in range(11):
        for end in range(base, 11):
            assert between(base, end) == numbered(base, end - base), (base, end)


def test_times_are_found_in_the_tail_too(topic: LedTopic) -> None:
    topic.flush(0, 5)
    topic.send(5, 5)
    assert values(topic, startingTimestamp="1007") == numbered(7, 3)
    assert values(topic, startingTimestamp="1003") == numbered(3, 7)
    assert values(topic, startingTimestamp="1002", endingTimestamp="1008") == numbered(2, 6)


def test_a_plan_holds_while_all_is_flushed_under_it(topic: LedTopic) -> None:
    topic.flush(0, 3)
    topic.send(3, 3)
    reader = batch_reader(topic.log, ("value",), subscribe=topic.name)
    plan = reader.partitions()
    topic.flush(6, 3)
    assert [row[0] for row in read_all(reader, plan)] == numbered(0, 6)


def test_a_stream_follows_the_tail_and_batches_repeat_alike(topic: LedTopic) -> None:
    topic.flush(0, 3)
    reader = stream_reader(topic.log, ("value",), subscribe=topic.name, startingOffsets="earliest")
    start = reader.initialOffset()
    topic.send(3, 3)
    middle = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert middle[topic.name] == {"0": 6}
    first = reader.partitions(start, middle)
    topic.flush(6, 3)
    end = reader.latestOffset(middle, reader.getDefaultReadLimit())
    again = reader.partitions(start, middle)
    second = reader.partitions(middle, end)
    assert [row[0] for row in read_all(reader, first)] == numbered(0, 6)
    assert [row[0] for row in read_all(reader, again)] == numbered(0, 6)
    assert [row[0] for row in read_all(reader, second)] == numbered(6, 3)
    reader.stop()


def test_records_are_complete_and_single_while_a_flusher_runs(topic: LedTopic) -> None:
    """Each read is all that was acknowledged before it, and a whole beginning of the rest."""
    topic.flush_always()
    acknowledged = 0
    done = threading.Event()

    def write() -> None:
        nonlocal acknowledged
        for first in range(0, 300, 20):
            topic.send(first, 20)
            acknowledged = first + 20
        done.set()

    stream = stream_reader(topic.log, ("value",), subscribe=topic.name, startingOffsets="earliest")
    at = stream.initialOffset()
    followed: list[bytes] = []
    writer = threading.Thread(target=write)
    writer.start()
    reads = 0
    while not done.is_set() or reads < 3 or len(followed) < 300:
        known = acknowledged
        found = values(topic)
        assert found == numbered(0, len(found))
        assert len(found) >= known
        end = stream.latestOffset(at, stream.getDefaultReadLimit())
        followed += [row[0] for row in read_all(stream, stream.partitions(at, end))]
        assert followed == numbered(0, len(followed))
        at, reads = end, reads + 1
    writer.join()
    stream.stop()


def test_transactions_are_read_by_the_isolation_level(topic: LedTopic) -> None:
    """Committed, aborted and open ones, in segments, in the tail and across."""

    def read_committed() -> list[bytes]:
        return values(topic, **{"kafka.isolation.level": "read_committed"})

    transactional = {
        "bootstrap.servers": topic.brokers.bootstrap,
        "transactional.id": topic.name,
        "log_level": 0,
    }
    producer = ck.Producer(transactional)
    producer.init_transactions(20)

    def transaction(first: int) -> None:
        producer.begin_transaction()
        for value in numbered(first, 3):
            producer.produce(topic.name, value, partition=0)
        producer.flush()

    def shows(expected: list[bytes]) -> None:
        # An end is answered once it is decided; its markers follow.
        eventually(lambda: read_committed() == expected, f"{expected} is read", 20.0)

    for first, end in ((0, producer.commit_transaction), (10, producer.abort_transaction)):
        transaction(first)
        end(20)
    transaction(20)
    topic.flush(30, 1)
    assert read_committed() == numbered(0, 3), "a transaction is open since before the flush"
    producer.abort_transaction(20)
    shows([*numbered(0, 3), b"30"])
    transaction(40)
    producer.abort_transaction(20)
    transaction(50)
    producer.commit_transaction(20)
    transaction(60)
    topic.send(70, 1)
    shows([*numbered(0, 3), b"30", *numbered(50, 3)])
    everything = [n for first in (0, 10, 20) for n in numbered(first, 3)] + [b"30"]
    everything += [n for first in (40, 50, 60) for n in numbered(first, 3)] + [b"70"]
    assert values(topic) == everything
    producer.abort_transaction(20)


def test_a_plan_outlives_the_brokers_it_was_made_with() -> None:
    with Brokers(f"memory://{uuid4()}") as first:
        topic = LedTopic(first)
        topic.flush(0, 3)
        topic.send(3, 3)
        reader = batch_reader(topic.log, ("value",), subscribe=topic.name)
        plan = reader.partitions()
    assert [row[0] for row in read_all(reader, plan)] == numbered(0, 6)
    assert values(topic) == numbered(0, 6), "handed back: no broker is asked"
    with Brokers(first.root):
        assert values(topic) == numbered(0, 6)


def test_missing_leader_is_reported_after_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    log = new_log()
    topic = log.create_topic("t")
    view = run(take_leadership(PartitionView(log.partition("t", 0).layout), 1, "a" * 32), log.store)
    monkeypatch.setattr(partition_states, "LEADER_PATIENCE_S", 0.3)
    with pytest.raises(Unavailable, match="includeUnflushed=false"):
        rows_of(log, subscribe="t")
    assert view.is_led
    assert rows_of(log, subscribe="t", includeUnflushed="false") == []
    lost: list[str] = []
    stretch = FetchedSpan(TopicPartition("t", 0), topic.topic_id, 1, 5)
    reading = LiveTailReader(
        TailRequest(stretch, ("value",), "127.0.0.1:1"),
        lambda: log,
        no_reader,
        lost.append,
        patience_s=0.3,
    )
    with pytest.raises(Unavailable, match="handed out by no broker and are in no segment"):
        list(reading.read())
    assert not lost


def test_damage_beyond_the_remaining_records_does_not_fail_the_task() -> None:
    log = new_log()
    topic = log.create_topic("t")
    append(log, "t", 0, numbered(0, 8))
    partition = log.partition("t", 0)
    partition.delete_records(6)
    log.store.put(partition.layout.key(partition.layout.chain_name(8)), b"no segment")
    lost: list[str] = []
    place = TopicPartition("t", 0)

    def reading(end_offset: int) -> LiveTailReader:
        wanted = TailRequest(
            FetchedSpan(place, topic.topic_id, 1, end_offset), ("value",), "127.0.0.1:1"
        )
        return LiveTailReader(wanted, lambda: log, no_reader, lost.append, patience_s=0.3)

    assert list(reading(5).read()) == []
    assert len(lost) == 1
    assert "the log starts at 6" in lost[0]


def no_reader(partition: PartitionLog) -> SegmentReader:
    raise AssertionError("there is nothing to read in segments")
