"""Requests about records, offsets and topics, with the rights that they need.

Older versions are here where their shape is another one.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from sparklog.protocol.api_keys import Api
from sparklog.protocol.records.columns import TIMESTAMP_TYPE
from sparklog.protocol.records.record_batch import BatchSettings, encode
from sparklog.security.acls import AclOperation as Do
from sparklog.security.acls import ResourceType
from tests.harness.access_case import (
    CONFIG_CODES,
    GROUP,
    PART,
    SOON,
    TOPIC,
    TOPIC_0,
    TRANSACTION,
    AccessCase,
    config_grants,
    config_resources,
    on_cluster,
    on_group,
    on_topic,
    on_transaction,
)
from tests.harness.plain_requests import plain_request
from tests.harness.replica_cluster import batch

MEMBER: Final = {"group_id": "g", "member_id": "bWVtYmVyLW9uZQ"}


def transactional_batch() -> bytes:
    """Return a batch of one record in a transaction."""
    values = [pa.array([1], pa.int64()).view(TIMESTAMP_TYPE), *[pa.array([b"x"], pa.binary())] * 2]
    rows = pa.RecordBatch.from_arrays(values, names=["timestamp", "key", "value"])
    settings = BatchSettings(
        producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    return bytes(encode(rows, settings, base_offset=0))


def record_cases(topic_id: Any) -> list[AccessCase]:
    """Return the requests that write and read records; `topic_id` is the id of `t`."""
    produced = {"partition_data": [{"index": 0, "records": batch(b"x")}]}
    transactional = {"partition_data": [{"index": 0, "records": transactional_batch()}]}
    fetched = {"partitions": [{"partition": 0, "partition_max_bytes": 100}]}
    consumer = {"replica_state": {"replica_id": -1, "replica_epoch": -1}}
    return [
        AccessCase(
            plain_request(
                Api.PRODUCE, 13, acks=-1, topic_data=[{"topic_id": topic_id, **produced}]
            ),
            [TOPIC],
            on_topic(Do.WRITE),
        ),
        AccessCase(
            plain_request(
                Api.PRODUCE,
                9,
                acks=1,
                transactional_id="x",
                topic_data=[{"name": "t", **transactional}, {"name": "u", **produced}],
            ),
            [TRANSACTION, TRANSACTION],
            (*on_transaction(Do.WRITE), *on_topic(Do.WRITE), (Do.WRITE, ResourceType.TOPIC, "u")),
        ),
        AccessCase(
            plain_request(Api.PRODUCE, 8, acks=1, topic_data=[{"name": "t", **transactional}]),
            [TRANSACTION],
        ),
        AccessCase(
            plain_request(
                Api.PRODUCE,
                8,
                acks=1,
                transactional_id="x",
                topic_data=[{"name": "t", **produced}],
            ),
            [TOPIC],
            on_topic(Do.WRITE),
        ),
        AccessCase(
            plain_request(
                Api.FETCH, 18, max_bytes=100, topics=[{"topic_id": topic_id, **fetched}], **consumer
            ),
            [0, TOPIC],
            on_topic(Do.READ),
        ),
        AccessCase(
            plain_request(
                Api.FETCH,
                12,
                max_bytes=100,
                replica_id=-1,
                session_epoch=-1,
                topics=[{"topic": "t", **fetched}],
            ),
            [0, TOPIC],
            on_topic(Do.READ),
        ),
    ]


def share_cases(topic_id: Any) -> list[AccessCase]:
    """Return the requests for records of share groups."""
    return [
        AccessCase(
            plain_request(
                Api.SHARE_FETCH,
                2,
                share_session_epoch=0,
                max_bytes=100,
                max_records=1,
                topics=[{"topic_id": topic_id, "partitions": [PART]}],
                **MEMBER,
            ),
            [GROUP],
            on_group(Do.READ) + on_topic(Do.READ),
        ),
        AccessCase(
            plain_request(Api.SHARE_ACKNOWLEDGE, 2, share_session_epoch=1, **MEMBER),
            [GROUP],
            on_group(Do.READ),
        ),
    ]


def offset_cases(topic_id: Any) -> list[AccessCase]:
    """Return the requests about offsets."""
    by_id = [{"topic_id": topic_id, "partitions": [PART]}]
    committed = on_group(Do.READ) + on_topic(Do.READ)
    described = on_group(Do.DESCRIBE) + on_topic(Do.DESCRIBE)
    asked = [{"name": "t", "partition_indexes": [0]}]
    asked_by_id = [{"topic_id": topic_id, "partition_indexes": [0]}]
    return [
        AccessCase(
            plain_request(Api.LIST_OFFSETS, 11, replica_id=-1, topics=TOPIC_0),
            [TOPIC],
            on_topic(Do.DESCRIBE),
        ),
        AccessCase(
            plain_request(
                Api.OFFSET_FOR_LEADER_EPOCH,
                4,
                replica_id=-1,
                topics=[{"topic": "t", "partitions": [{"partition": 0}]}],
            ),
            [TOPIC],
            on_topic(Do.DESCRIBE),
        ),
        AccessCase(
            plain_request(Api.DELETE_RECORDS, 2, topics=TOPIC_0, timeout=SOON),
            [TOPIC],
            on_topic(Do.DELETE),
        ),
        AccessCase(
            plain_request(Api.OFFSET_COMMIT, 10, group_id="g", topics=by_id), [GROUP], committed
        ),
        AccessCase(
            plain_request(Api.OFFSET_COMMIT, 9, group_id="g", topics=TOPIC_0), [GROUP], committed
        ),
        AccessCase(
            plain_request(Api.OFFSET_FETCH, 10, groups=[{"group_id": "g", "topics": asked_by_id}]),
            [GROUP],
            described,
        ),
        AccessCase(
            plain_request(Api.OFFSET_FETCH, 7, group_id="g", topics=asked), [GROUP], described
        ),
        AccessCase(
            plain_request(Api.OFFSET_FETCH, 1, group_id="g", topics=asked), [GROUP], described
        ),
        AccessCase(
            plain_request(Api.OFFSET_DELETE, 0, group_id="g", topics=TOPIC_0),
            [GROUP],
            on_group(Do.DELETE) + on_topic(Do.READ),
        ),
        *share_offset_cases(),
        AccessCase(
            plain_request(
                Api.DESCRIBE_PRODUCERS, 0, topics=[{"name": "t", "partition_indexes": [0, 1]}]
            ),
            [TOPIC, TOPIC],
            on_topic(Do.READ),
        ),
    ]


def share_offset_cases() -> list[AccessCase]:
    """Return the requests about the offsets of share groups."""
    shown = [{"group_id": "g", "topics": [{"topic_name": "t", "partitions": [0]}]}]
    moved = [{"topic_name": "t", "partitions": [{"partition_index": 0, "start_offset": 5}]}]
    return [
        AccessCase(
            plain_request(Api.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=shown),
            [GROUP],
            on_group(Do.DESCRIBE) + on_topic(Do.DESCRIBE),
        ),
        AccessCase(
            plain_request(Api.ALTER_SHARE_GROUP_OFFSETS, 0, group_id="g", topics=moved),
            [GROUP],
            on_group(Do.READ) + on_topic(Do.READ),
        ),
        AccessCase(
            plain_request(
                Api.DELETE_SHARE_GROUP_OFFSETS, 0, group_id="g", topics=[{"topic_name": "t"}]
            ),
            [GROUP],
            on_group(Do.DELETE) + on_topic(Do.READ),
        ),
    ]


def topic_cases(topic_id: Any) -> list[AccessCase]:
    """Return the requests about topics and their settings."""
    t, described = [{"name": "t"}], on_topic(Do.DESCRIBE)
    created = {"name": "t", "num_partitions": 1, "replication_factor": 1}
    return [
        AccessCase(plain_request(Api.METADATA, 13, topics=t), [TOPIC, 0], described),
        AccessCase(plain_request(Api.METADATA, 0, topics=t), [TOPIC], described),
        AccessCase(plain_request(Api.METADATA, 13, topics=None), [0], described),
        AccessCase(
            plain_request(Api.METADATA, 12, topics=[{"topic_id": topic_id}]), [TOPIC], described
        ),
        AccessCase(
            plain_request(Api.DESCRIBE_TOPIC_PARTITIONS, 0, topics=t, response_partition_limit=9),
            [TOPIC],
            described,
        ),
        AccessCase(
            plain_request(Api.CREATE_TOPICS, 7, topics=[created], timeout=SOON),
            [TOPIC, 0],
            on_topic(Do.CREATE),
        ),
        AccessCase(
            plain_request(Api.CREATE_TOPICS, 4, topics=[created], timeout=SOON),
            [TOPIC],
            on_cluster(Do.CREATE),
        ),
        AccessCase(
            plain_request(Api.DELETE_TOPICS, 5, topic_names=["t"], timeout=SOON),
            [TOPIC],
            on_topic(Do.DELETE),
        ),
        AccessCase(
            plain_request(Api.DELETE_TOPICS, 6, topics=[{"topic_id": topic_id}], timeout=SOON),
            [TOPIC],
            on_topic(Do.DELETE),
        ),
        AccessCase(
            plain_request(
                Api.CREATE_PARTITIONS, 3, topics=[{"name": "t", "count": 1}], timeout=SOON
            ),
            [TOPIC],
            on_topic(Do.ALTER),
        ),
        AccessCase(
            plain_request(Api.DESCRIBE_CONFIGS, 4, resources=config_resources()),
            CONFIG_CODES,
            config_grants(Do.DESCRIBE_CONFIGS),
        ),
        AccessCase(
            plain_request(Api.ALTER_CONFIGS, 2, resources=config_resources()),
            CONFIG_CODES,
            config_grants(Do.ALTER_CONFIGS),
        ),
        AccessCase(
            plain_request(Api.INCREMENTAL_ALTER_CONFIGS, 1, resources=config_resources()),
            CONFIG_CODES,
            config_grants(Do.ALTER_CONFIGS),
        ),
    ]
