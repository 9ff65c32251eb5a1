"""Requests as clients send them, by Kafka's names for their parts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part

SOON = timedelta(seconds=10)


def metadata(*names: str | None, version: int = 12, create: bool = False, **more: Any) -> Any:
    topics = tuple(
        build_request_part(Api.METADATA, version, "MetadataRequestTopic", name=n, topic_id=None)
        for n in names
    )
    return build_request(
        Api.METADATA,
        version,
        topics=None if names == (None,) else topics,
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=False,
        **more,
    )


def create_topics(
    *names: str,
    version: int = 7,
    partitions: int = 1,
    factor: int = -1,
    configs: dict[str, str | None] | None = None,
    assignments: dict[int, tuple[int, ...]] | None = None,
    validate_only: bool = False,
) -> Any:
    def part(structure: str, **values: Any) -> Any:
        return build_request_part(Api.CREATE_TOPICS, version, structure, **values)

    return build_request(
        Api.CREATE_TOPICS,
        version,
        timeout=SOON,
        validate_only=validate_only,
        topics=tuple(
            part(
                "CreatableTopic",
                name=name,
                num_partitions=partitions,
                replication_factor=factor,
                assignments=tuple(
                    part("CreatableReplicaAssignment", partition_index=p, broker_ids=ids)
                    for p, ids in (assignments or {}).items()
                ),
                configs=tuple(
                    part("CreatableTopicConfig", name=k, value=v)
                    for k, v in (configs or {}).items()
                ),
            )
            for name in names
        ),
    )


def delete_topics(*names: str, ids: tuple[Any, ...] = (), version: int = 6) -> Any:
    if version < 6:
        return build_request(Api.DELETE_TOPICS, version, topic_names=names, timeout=SOON)
    states = [(name, None) for name in names] + [(None, uuid) for uuid in ids]
    return build_request(
        Api.DELETE_TOPICS,
        version,
        timeout=SOON,
        topics=tuple(
            build_request_part(
                Api.DELETE_TOPICS, version, "DeleteTopicState", name=name, topic_id=uuid
            )
            for name, uuid in states
        ),
    )


def create_partitions(
    name: str, count: int, assignments: tuple[tuple[int, ...], ...] | None = None
) -> Any:
    api, version = Api.CREATE_PARTITIONS, 3
    placed = None
    if assignments is not None:
        placed = tuple(
            build_request_part(api, version, "CreatePartitionsAssignment", broker_ids=ids)
            for ids in assignments
        )
    topic = build_request_part(
        api, version, "CreatePartitionsTopic", name=name, count=count, assignments=placed
    )
    return build_request(api, version, topics=(topic,), timeout=SOON, validate_only=False)


def describe_configs(kind: int, name: str, keys: tuple[str, ...] | None = None) -> Any:
    api, version = Api.DESCRIBE_CONFIGS, 4
    resource = build_request_part(
        api,
        version,
        "DescribeConfigsResource",
        resource_type=kind,
        resource_name=name,
        configuration_keys=keys,
    )
    return build_request(
        api,
        version,
        resources=(resource,),
        include_synonyms=True,
        include_documentation=True,
    )


def alter_configs(
    kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> Any:
    api, version = Api.INCREMENTAL_ALTER_CONFIGS, 1
    configs = tuple(
        build_request_part(
            api, version, "AlterableConfig", name=key, config_operation=operation, value=value
        )
        for key, operation, value in changes
    )
    resource = build_request_part(
        api,
        version,
        "AlterConfigsResource",
        resource_type=kind,
        resource_name=name,
        configs=configs,
    )
    return build_request(api, version, resources=(resource,), validate_only=validate_only)


def replace_configs(name: str, configs: dict[str, str], kind: int = 2) -> Any:
    api, version = Api.ALTER_CONFIGS, 2
    resource = build_request_part(
        api,
        version,
        "AlterConfigsResource",
        resource_type=kind,
        resource_name=name,
        configs=tuple(
            build_request_part(api, version, "AlterableConfig", name=k, value=v)
            for k, v in configs.items()
        ),
    )
    return build_request(api, version, resources=(resource,), validate_only=False)


def produce(
    topic: Any, *parts: tuple[int, bytes], acks: int = -1, version: int = 9, **more: Any
) -> Any:
    api = Api.PRODUCE
    data = tuple(
        build_request_part(api, version, "PartitionProduceData", index=p, records=records)
        for p, records in parts
    )
    key = "topic_id" if version >= 13 else "name"
    named = build_request_part(
        api, version, "TopicProduceData", partition_data=data, **{key: topic}
    )
    return build_request(api, version, acks=acks, timeout=SOON, topic_data=(named,), **more)


def fetch(topic: Any, *parts: tuple[int, int], version: int = 12, **more: Any) -> Any:
    api = Api.FETCH
    asked = tuple(
        build_request_part(
            api, version, "FetchPartition", partition=p, fetch_offset=at, partition_max_bytes=1000
        )
        for p, at in parts
    )
    key = "topic_id" if version >= 13 else "topic"
    named = build_request_part(api, version, "FetchTopic", partitions=asked, **{key: topic})
    values: dict[str, Any] = {"max_bytes": 10**9, "replica_id": -1, "forgotten_topics_data": ()}
    values |= {"max_wait": timedelta(0), "min_bytes": 1} | more
    return build_request(api, version, topics=(named,), **values)


def list_offsets(topic: str, *parts: tuple[int, int], version: int = 7) -> Any:
    api = Api.LIST_OFFSETS
    asked = tuple(
        build_request_part(api, version, "ListOffsetsPartition", partition_index=p, timestamp=t)
        for p, t in parts
    )
    named = build_request_part(api, version, "ListOffsetsTopic", name=topic, partitions=asked)
    return build_request(api, version, replica_id=-1, isolation_level=0, topics=(named,))


def broker_heartbeat(broker_id: int, broker_epoch: int) -> Any:
    return build_request(
        Api.BROKER_HEARTBEAT,
        1,
        broker_id=broker_id,
        broker_epoch=broker_epoch,
        current_metadata_offset=1,
        want_fence=False,
        want_shut_down=False,
    )


def write_txn_marker(
    topic: str,
    *partitions: int,
    producer: tuple[int, int] = (7, 1),
    is_commit: bool = False,
    coordinator_epoch: int = 99,
) -> Any:
    api = Api.WRITE_TXN_MARKERS
    marked = build_request_part(
        api, 1, "WritableTxnMarkerTopic", name=topic, partition_indexes=partitions
    )
    marker = build_request_part(
        api,
        1,
        "WritableTxnMarker",
        producer_id=producer[0],
        producer_epoch=producer[1],
        transaction_result=is_commit,
        coordinator_epoch=coordinator_epoch,
        topics=(marked,),
    )
    return build_request(api, 1, markers=(marker,))


def marked_codes(answer: Any) -> list[Any]:
    return [p.error_code for m in answer.markers for t in m.topics for p in t.partitions]


def add_partitions_for(topic: str, transactional_id: str, *, verify_only: bool = False) -> Any:
    """As the leader of partition 0 asks, for a producer."""
    api = Api.ADD_PARTITIONS_TO_TXN
    added = build_request_part(api, 5, "AddPartitionsToTxnTopic", name=topic, partitions=(0,))
    transaction = build_request_part(
        api,
        5,
        "AddPartitionsToTxnTransaction",
        transactional_id=transactional_id,
        producer_id=7,
        producer_epoch=1,
        verify_only=verify_only,
        topics=(added,),
    )
    return build_request(api, 5, transactions=(transaction,))
