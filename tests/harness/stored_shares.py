"""Share groups in the storage of a log without brokers, as their coordinators write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

import pyarrow as pa

from sparklog.cluster.log import Log
from sparklog.cluster.metadata.changes import alter_group_configs
from sparklog.coordinator.effects import CoordinatorRecord
from sparklog.coordinator.share.delivery_state import (
    NO_START_OFFSET,
    DeliveryState,
    SharePartitionKey,
    ShareState,
    StateBatch,
)
from sparklog.coordinator.share.records import (
    ShareGroupEpoch,
    ShareMemberAssignment,
    ShareMemberRecord,
    ShareRecord,
    StatefulPartitions,
    write_share_record,
)
from sparklog.coordinator.share.state_records import ShareSnapshot, encode_snapshot
from sparklog.core.config.broker import BROKER_SETTINGS
from sparklog.core.config.model import Config
from sparklog.protocol.topic_ids import uuid_of


def topic_uuid(log: Log, topic: str) -> UUID:
    return uuid_of(log.topic(topic).topic_id)


def store_records(log: Log, topic: str, records: Iterable[CoordinatorRecord]) -> None:
    """Append records to an internal topic, which this creates with one partition."""
    if topic not in log.refresh().topics:
        log.create_topic(topic, 1, by_cluster=True)
    found = list(records)
    rows = {
        "key": pa.array([record.key for record in found], pa.binary()),
        "value": pa.array([record.value for record in found], pa.binary()),
    }
    log.partition(topic, 0).append([pa.record_batch(rows)])


def store_state(
    log: Log, key: SharePartitionKey, start_offset: int, batches: Sequence[StateBatch] = ()
) -> None:
    """Append the snapshot of a state."""
    state = ShareState(1, start_offset, tuple(batches), leader_epoch=1)
    store_records(log, "__share_group_state", [encode_snapshot(ShareSnapshot(key, 1, state, 1, 1))])


def store_share_group(log: Log, group_id: str, topic: str) -> None:
    """Append a group with one member, and with states in two partitions of its topic.

    In partition 0 it has finished 2 records, then 1 is available, 3 are acknowledged and 2 are
    archived. In partition 1 it has not begun. It has partition 2 without a state.
    """
    topic_id = topic_uuid(log, topic)
    parts = frozenset((topic_id, number) for number in range(3))
    stored: tuple[ShareRecord, ...] = (
        ShareMemberRecord(group_id, "m-1", None, "<i>client", "/10.0.0.1", (topic,)),
        ShareGroupEpoch(group_id, 3, 1),
        ShareMemberAssignment(group_id, "m-1", 3, 2, frozenset({(topic_id, 0)})),
        StatefulPartitions(group_id, initialized=parts, names={topic_id: topic}),
    )
    store_records(log, "__consumer_offsets", map(write_share_record, stored))
    batches = (
        StateBatch(2, 2, DeliveryState.AVAILABLE, 4),
        StateBatch(3, 5, DeliveryState.ACKNOWLEDGED, 1),
        StateBatch(6, 7, DeliveryState.ARCHIVED, 5),
    )
    store_state(log, SharePartitionKey(group_id, topic_id, 0), 2, batches)
    store_state(log, SharePartitionKey(group_id, topic_id, 1), NO_START_OFFSET)


def configure_group(log: Log, group_id: str, settings: Mapping[str, str]) -> None:
    """Give a group settings of its own, as brokers do."""
    broker = Config(BROKER_SETTINGS, {})
    log._decide(lambda image: alter_group_configs(image, group_id, broker, settings, ()))


def dead_letter_headers(
    group_id: str, topic: str, partition: int, offset: int
) -> list[tuple[str, bytes | None]]:
    """Return the headers that a broker gives a dead letter."""
    texts = {
        "topic": topic,
        "partition": str(partition),
        "offset": str(offset),
        "group": group_id,
        "delivery.count": "5",
        "message": "rejected",
    }
    return [(f"__dlq.errors.{name}", text.encode()) for name, text in texts.items()]
