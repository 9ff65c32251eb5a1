"""Reads of partitions that brokers lead: real brokers in this process, no Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from uuid import uuid4

import pytest

from sparklog.spark.read_schema import ARROW_TYPES
from tests.interop.brokers import Brokers
from tests.unit.spark.led_topics import LedTopic
from tests.unit.spark.source_logs import batch_reader, numbered, read_all, rows_of, stream_reader

ALL = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers(f"memory://{uuid4()}") as running:
        yield running


@pytest.fixture
def topic(brokers: Brokers) -> LedTopic:
    return LedTopic(brokers)


def values(topic: LedTopic, **options: str) -> list[bytes]:
    return [row[0] for row in rows_of(topic.log, ("value",), subscribe=topic.name, **options)]


def test_segments_and_what_is_not_flushed_make_one_result(topic: LedTopic) -> None:
    stored_end = topic.flush(0, 5)
    topic.send(5, 5)
    assert topic.stored_end() == stored_end
    columns = ("partition", "offset", "value", "timestampType")
    rows = rows_of(topic.log, columns, subscribe=topic.name)
    assert rows == [(0, 1 + n, b"%d" % n, 0) for n in range(10)], "the leader's mark has offset 0"
    assert values(topic, includeUnflushed="false") == numbered(0, 5)


def test_batches_of_the_tail_are_as_spark_wants_them(topic: LedTopic) -> None:
    topic.send(0, 3)
    reader = batch_reader(topic.log, ALL, subscribe=topic.name)
    found = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert [batch.schema.types for batch in found] == [[ARROW_TYPES[name] for name in ALL]]
    assert found[0].column("topic").to_pylist() == [topic.name] * 3


def test_ranges_may_lie_in_segments_in_the_tail_or_across(topic: LedTopic) -> None:
    topic.flush(0, 5)
    topic.send(5, 5)

    def between(base: int, end: int) -> list[bytes]:
        limits = {"startingOffsets": base, "endingOffsets": end}
        return values(topic, **{k: json.dumps({topic.name: {"0": v}}) for k, v in limits.items()})

    for base in range(12):
        for end in range(base, 12):
            assert between(base, end) == numbered(max(base, 1) - 1, end - max(base, 1)), (base, end)


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
    assert middle == {topic.name: {"0": 7}}
    first = reader.partitions(start, middle)
    topic.flush(6, 3)
    end = reader.latestOffset(middle, reader.getDefaultReadLimit())
    again = reader.partitions(start, middle)
    second = reader.partitions(middle, end)
    assert [row[0] for row in read_all(reader, first)] == numbered(0, 6)
    assert [row[0] for row in read_all(reader, again)] == numbered(0, 6)
    assert [row[0] for row in read_all(reader, second)] == numbered(6, 3)
    reader.stop()
