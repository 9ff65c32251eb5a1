"""Stored states of share groups: Kafka's tools read our records, and a shard reads Kafka's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID, uuid4

from confluent_kafka import Consumer, Producer, TopicPartition

from sparklog.coordinator.effects import CoordinatorRecord
from sparklog.coordinator.internal_topics import SHARE_STATE_TOPIC, partition_for
from sparklog.coordinator.share.delivery_state import (
    DeliveryState,
    SharePartitionKey,
    ShareState,
    ShareStateUpdate,
    StateBatch,
)
from sparklog.coordinator.share.state_shard import ShareStateShard
from sparklog.protocol.topic_ids import topic_id_of
from tests.harness.waiting import eventually
from tests.peers.kafka import KafkaCluster
from tests.peers.kafka_tools import KafkaTools

FORMATTER = "org.apache.kafka.tools.consumer.group.share.ShareGroupStateMessageFormatter"
DEADLINE_S = 30.0


def written_records() -> list[CoordinatorRecord]:
    """Return a snapshot, and two updates of which the second has the changes of both."""
    key = SharePartitionKey("pay", UUID(int=7), 3)
    shard = ShareStateShard(500)
    records = [*shard.initialize(1, key, 4, 10, 1_000).records]
    for batches, start, count in [
        ((StateBatch(11, 12, DeliveryState.ACKNOWLEDGED, 1),), 10, 2),
        ((StateBatch(14, 14, DeliveryState.AVAILABLE, 2),), 11, 2),
    ]:
        update = ShareStateUpdate(key, 4, 6, start, batches, count)
        records += shard.write(1, update, 2_000).records
    return records


def batch_fields(first: int, last: int, state: int, count: int) -> Mapping[str, int]:
    return {
        "firstOffset": first,
        "lastOffset": last,
        "deliveryState": state,
        "deliveryCount": count,
    }


def objects_in(text: str) -> Iterator[Any]:
    """Yield the JSON objects that follow each other without a separator."""
    while text:
        found, at = json.JSONDecoder().raw_decode(text)
        yield found
        text = text[at:]


def test_kafkas_formatter_reads_the_records(kafka: KafkaCluster) -> None:
    topic, records = f"states-{uuid4().hex[:8]}", written_records()
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for record in records:
        producer.produce(topic, key=record.key, value=record.value, partition=0)
    assert producer.flush(DEADLINE_S) == 0
    lines = KafkaTools(kafka.bootstrap)(
        "consumer.ConsoleConsumer", "--topic", topic, "--partition", "0", "--offset", "earliest",
        "--max-messages", str(len(records)), "--timeout-ms", "20000", "--formatter", FORMATTER,
    )  # fmt: skip
    found = list(objects_in("".join(lines)))
    key = {"groupId": "pay", "topicId": topic_id_of(UUID(int=7)), "partition": 3}
    assert [one["key"]["data"] for one in found] == [key] * 3
    assert [one["key"]["type"] for one in found] == [0, 1, 1]
    snapshot, _, update = (one["value"]["data"] for one in found)
    assert snapshot["stateEpoch"] == 4
    assert (snapshot["startOffset"], snapshot["stateBatches"]) == (10, [])
    assert (update["leaderEpoch"], update["startOffset"]) == (6, 11)
    assert update["deliveryCompleteCount"] == 2
    assert update["stateBatches"] == [batch_fields(11, 12, 2, 1), batch_fields(14, 14, 0, 2)]


def stored_state(kafka: KafkaCluster, group: str) -> tuple[SharePartitionKey, ShareState] | None:
    """Replay the records that Kafka has written; return the state of a group, if there is one."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": uuid4().hex})
    partitions = len(consumer.list_topics(timeout=DEADLINE_S).topics[SHARE_STATE_TOPIC].partitions)
    found: dict[SharePartitionKey, ShareState] = {}
    try:
        for partition in range(partitions):
            shard = replayed(consumer, partition)
            for key, kept in shard.states.items():
                assert partition_for(key.coordinator_key, partitions) == partition
                found[key] = kept.state
    finally:
        consumer.close()
    return next(((key, found[key]) for key in found if key.group_id == group), None)


def replayed(consumer: Any, partition: int) -> ShareStateShard:
    shard = ShareStateShard(500)
    where = TopicPartition(SHARE_STATE_TOPIC, partition, 0)
    _, end = consumer.get_watermark_offsets(where, timeout=DEADLINE_S)
    if end == 0:
        return shard
    consumer.assign([where])
    offset = -1
    while offset + 1 < end:
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert message.error() is None
        offset = message.offset()
        shard.replay(
            CoordinatorRecord(message.key(), message.value()),
            offset=offset,
            timestamp_ms=0,
            producer_id=-1,
            producer_epoch=-1,
            transactional=False,
        )
    return shard


def test_a_shard_replays_the_records_of_kafka(kafka: KafkaCluster) -> None:
    tool, name = KafkaTools(kafka.bootstrap), uuid4().hex[:8]
    topic, group = f"queue-{name}", f"g-{name}"
    tool("TopicCommand", "--create", "--topic", topic, "--partitions", "1")
    tool(
        "ConfigCommand", "--alter", "--entity-type", "groups", "--entity-name", group,
        "--add-config", "share.auto.offset.reset=earliest",
    )  # fmt: skip
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(30):
        producer.produce(topic, value=str(number), partition=0)
    assert producer.flush(DEADLINE_S) == 0
    tool(
        "consumer.ConsoleShareConsumer", "--topic", topic, "--group", group,
        "--max-messages", "30", "--timeout-ms", "60000",
    )  # fmt: skip

    def finished() -> tuple[SharePartitionKey, ShareState] | None:
        found = stored_state(kafka, group)
        return found if found is not None and found[1].batches else None

    key, state = eventually(finished, "the records are finished", DEADLINE_S)
    assert key.partition == 0
    assert state.state_epoch > 0
    assert state.start_offset == 0
    assert state.batches == (StateBatch(0, 29, DeliveryState.ACKNOWLEDGED, 1),)
    assert state.delivery_complete_count == 30
