"""Offsets of published batches: by their objects, by their writer, and when neither is left."""

from __future__ import annotations

import pyarrow as pa

from sparklog.cluster.log import Log
from sparklog.cluster.publication import StagedPartition, publish
from sparklog.cluster.published import published_offsets
from sparklog.core.types import TopicPartition
from sparklog.store.memory import MemoryStore


def staged(log: Log, partition: int, rows: int) -> StagedPartition:
    columns = pa.record_batch({"value": pa.array([b"v"] * rows, pa.binary())})
    topic = log.topic("t")
    reference = log.partition("t", partition).stage([columns])
    return StagedPartition("t", topic.topic_id, partition, (reference,))


def test_each_batch_has_the_offsets_of_its_partitions() -> None:
    log = Log(MemoryStore("published"))
    log.create_topic("t", partitions=2)
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    publish(log, "w", 0, [staged(log, 0, 3), staged(log, 0, 2), staged(log, 1, 1)])
    publish(log, "other", 0, [staged(log, 0, 7)])
    publish(log, "w", 1, [staged(log, 0, 4)])
    assert published_offsets(log, "w", 0) == {first: (0, 5), second: (0, 1)}
    assert published_offsets(log, "w", 1) == {first: (12, 16)}
    assert published_offsets(log, "w", 2) == {}, "no record, no batch"


def test_batch_of_a_deleted_topic_has_no_offsets() -> None:
    log = Log(MemoryStore("deleted"))
    log.create_topic("t")
    publish(log, "w", 0, [staged(log, 0, 1)])
    log.delete_topic("t")
    assert published_offsets(log, "w", 0) == {TopicPartition("t", 0): None}
    log.create_topic("t")
    assert published_offsets(log, "w", 0) == {TopicPartition("t", 0): None}
