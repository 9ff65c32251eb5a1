"""EarlyLook: look-ups by key find what is there, also where the guess of the partition is wrong."""

from __future__ import annotations

import pytest

from sparklog.core.errors import UnknownTopicOrPartition
from sparklog.core.types import TopicPartition
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.view import PartitionView
from sparklog.protocol.partitioner.partitioner import partition_for_key
from sparklog.spark.source import early_look
from sparklog.spark.source.early_look import EarlyLook
from sparklog.spark.source.selection import Assign, OfKey, Selection, Subscribe
from sparklog.sql.queryable_log import QueryableLog
from sparklog.store.kept_ends import KeptEnds
from sparklog.store.memory import MemoryStore
from tests.harness.log_records import batch

LONG_NAME = "n" * 240
"""The folders of such topics have a part of the name."""


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore("early")


@pytest.fixture
def writer(store: MemoryStore) -> QueryableLog:
    return QueryableLog(store)


def append(log: QueryableLog, topic: str, key: bytes, value: bytes, partition: int = 0) -> None:
    log.partition(topic, partition).append([batch([value], keys=[key])])


def layout_of(log: QueryableLog, topic: str, partition: int = 0) -> PartitionLayout:
    return log.partition(topic, partition).layout


def looked(
    log: QueryableLog, selection: Selection, layout: PartitionLayout
) -> PartitionView | None:
    with EarlyLook(log, selection, KeptEnds(log.store)) as early:
        return early.view(layout)


def test_look_of_a_new_process_finds_the_partition(
    store: MemoryStore, writer: QueryableLog
) -> None:
    writer.create_topic("t", 3)
    writer.create_topic("t2", 1)
    append(writer, "t2", b"k", b"of another topic")
    for partition in range(3):
        append(writer, "t", b"k", b"v%d" % partition, partition)
    of_key = partition_for_key(b"k", 3)
    for selection, partition in (
        (OfKey("t", b"k"), of_key),
        (Assign((TopicPartition("t", 1),)), 1),
    ):
        layout = layout_of(writer, "t", partition)
        found = looked(QueryableLog(store), selection, layout)
        assert found == writer.partition("t", partition).view()
    assert QueryableLog(store).get("t", b"k") == b"v%d" % of_key
    assert QueryableLog(store).get("t", b"k", 1) == b"v1"


def test_view_of_another_partition_is_not_returned(
    store: MemoryStore, writer: QueryableLog
) -> None:
    writer.create_topic("t", 64)
    key = next(k for k in (b"%d" % n for n in range(999)) if partition_for_key(k, 64) > 9)
    append(writer, "t", key, b"v", partition_for_key(key, 64))
    append(writer, "t", key, b"elsewhere", 0)
    some = next(k for k in (b"%d" % n for n in range(999)) if partition_for_key(k, 64) == 63)
    layout = layout_of(writer, "t", 63)
    assert looked(QueryableLog(store), OfKey("t", some), layout) is None
    assert QueryableLog(store).get("t", some) is None
    assert QueryableLog(store).get("t", key) == b"v"


@pytest.mark.parametrize("opened_before", [False, True])
def test_topic_created_again_has_its_own_records(
    store: MemoryStore, writer: QueryableLog, opened_before: bool
) -> None:
    writer.create_topic("t", 1)
    append(writer, "t", b"k", b"of the old topic")
    reader = QueryableLog(store)
    if opened_before:
        assert reader.get("t", b"k") == b"of the old topic"
    writer.delete_topic("t")
    with pytest.raises(UnknownTopicOrPartition):
        (reader if opened_before else QueryableLog(store)).get("t", b"k")
    writer.create_topic("t", 1)
    assert reader.get("t", b"k") is None
    append(writer, "t", b"k", b"of the new topic")
    assert reader.get("t", b"k") == b"of the new topic"
    assert QueryableLog(store).get("t", b"k") == b"of the new topic"


def test_partitions_added_since_the_last_look_are_found(
    store: MemoryStore, writer: QueryableLog
) -> None:
    key = next(k for k in (b"%d" % n for n in range(99)) if partition_for_key(k, 5))
    writer.create_topic("t", 1)
    append(writer, "t", key, b"before")
    reader = QueryableLog(store)
    assert reader.get("t", key) == b"before"
    writer.add_partitions("t", 5)
    assert reader.get("t", key) is None
    append(writer, "t", key, b"after", partition_for_key(key, 5))
    assert reader.get("t", key) == b"after"


def test_topics_that_cannot_be_guessed_are_found(
    store: MemoryStore, writer: QueryableLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.create_topic(LONG_NAME, 1)
    writer.create_topic("empty", 1)
    writer.create_topic("large", 1)
    append(writer, LONG_NAME, b"k", b"long")
    append(writer, "large", b"k", b"first")
    append(writer, "large", b"k", b"second")
    monkeypatch.setattr(early_look, "LISTED_MAX", 2)
    for topic, value in ((LONG_NAME, b"long"), ("empty", None), ("large", b"second")):
        layout = layout_of(writer, topic)
        assert looked(QueryableLog(store), OfKey(topic, b"k"), layout) is None
        assert QueryableLog(store).get(topic, b"k") == value
    several = Subscribe(("large",))
    assert looked(QueryableLog(store), several, layout_of(writer, "large")) is None


def test_look_returns_nothing_for_a_damaged_log(store: MemoryStore, writer: QueryableLog) -> None:
    writer.create_topic("t", 1)
    append(writer, "t", b"k", b"first")
    append(writer, "t", b"k", b"second")
    layout = layout_of(writer, "t")
    store.delete(layout.key(layout.chain_name(0)))
    assert looked(QueryableLog(store), OfKey("t", b"k"), layout) is None


def test_record_of_a_moment_before_the_look_up_is_found(
    store: MemoryStore, writer: QueryableLog
) -> None:
    writer.create_topic("t", 1)
    append(writer, "t", b"k", b"0")
    reader = QueryableLog(store)
    for number in range(1, 6):
        append(writer, "t", b"k", b"%d" % number)
        if number == 3:
            writer.partition("t", 0).absorb_tail()
        assert reader.get("t", b"k") == b"%d" % number
        assert QueryableLog(store).get("t", b"k") == b"%d" % number
