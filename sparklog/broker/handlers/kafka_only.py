"""AlterReplicaLogDirs (34): move replicas between directories. A broker here has one: the storage.

Source: KIP-113.

UpdateFeatures (57): which levels of features are in force. Source: KIP-584.

The level of `sparklog.version` can be raised. Those of Kafka's features are part of the brokers'
version, so an update of them succeeds if it changes nothing.

DescribeQuorum (55): the metadata log as Kafka's quorum. Source: KIP-595, KIP-836, KIP-853.

There is no quorum: the storage decides what is appended, and every broker reads it. So the leader
is the controller, and all live brokers are voters that have everything.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.cluster import LOG_DIR
from sparklog.broker.handlers.responses import NO_THROTTLE, controller_id, error_fields
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.request import RequestContext
from sparklog.cluster.metadata import features
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import BrokerEndpoint, Record
from sparklog.log.layout import METADATA_TOPIC
from sparklog.protocol.messages.builder import ResponseBuilder


async def alter_replica_log_dirs(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Answer with a code for every partition: replicas are where they are, or cannot be moved."""
    answer = ResponseBuilder.to(request)
    image = node.metadata.image
    held = {(image.names.get(w.topic_id), w.partition) for w in node.replicas.sizes()}

    def code_of(path: str, topic: str, number: int) -> ErrorCode:
        if path != LOG_DIR:
            return ErrorCode.log_dir_not_found
        found = (topic, number) in held
        return ErrorCode.none if found else ErrorCode.replica_not_available

    return answer.response(
        throttle_time=NO_THROTTLE,
        results=tuple(
            answer.entity(
                "AlterReplicaLogDirTopicResult",
                topic_name=topic.name,
                partitions=tuple(
                    answer.entity(
                        "AlterReplicaLogDirPartitionResult",
                        partition_index=number,
                        error_code=code_of(directory.path, topic.name, int(number)),
                    )
                    for number in topic.partitions
                ),
            )
            for directory in request.dirs
            for topic in directory.topics
        ),
    )


async def update_features(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Finalize levels, all or none. Answer for every feature; from version 2 on, once for all."""
    answer = ResponseBuilder.to(request)
    levels = {one.feature: int(one.max_version_level) for one in request.feature_updates}
    outcomes = features.finalize(node.metadata.image, levels)[1]
    if not getattr(request, "validate_only", False):

        def decide(image: MetadataImage) -> list[Record]:
            records, found = features.finalize(image, levels)
            outcomes.update(found)
            return records

        await node.metadata.decide(decide)
    failed = next((error for error in outcomes.values() if error is not None), None)
    return answer.response(
        throttle_time=NO_THROTTLE,
        **error_fields(failed),
        results=tuple(
            answer.entity("UpdatableFeatureResult", feature=name, **error_fields(error))
            for name, error in outcomes.items()
        )
        if answer.version < WHOLE_SINCE
        else (),
    )


WHOLE_SINCE = 2
"""The first version without a result of each feature."""


async def describe_quorum(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Answer for the one partition of the metadata log; others are unknown."""
    answer = ResponseBuilder.to(request)
    image = node.metadata.image
    return answer.response(
        error_code=ErrorCode.none,
        error_message=None,
        topics=tuple(_topic(answer, image, topic) for topic in request.topics),
        nodes=tuple(
            answer.entity(
                "Node",
                node_id=one.broker_id,
                listeners=tuple(
                    answer.entity("Listener", name=name, host=host, port=port)
                    for name, _, host, port in one.endpoints
                    or (BrokerEndpoint("PLAINTEXT", "PLAINTEXT", one.host, one.port),)
                ),
            )
            for one in image.live_brokers()
        )
        if answer.version >= NODES_SINCE
        else (),
    )


NODES_SINCE = 2


def _topic(answer: ResponseBuilder, image: MetadataImage, asked: Any) -> Any:
    return answer.entity(
        "TopicData",
        topic_name=asked.topic_name,
        partitions=tuple(
            _partition(
                answer,
                image,
                int(one.partition_index),
                known=asked.topic_name == METADATA_TOPIC and one.partition_index == 0,
            )
            for one in asked.partitions
        ),
    )


def _partition(answer: ResponseBuilder, image: MetadataImage, number: int, *, known: bool) -> Any:
    epoch = -1 if image.controller is None else image.controller.epoch
    return answer.entity(
        "PartitionData",
        partition_index=number,
        error_code=ErrorCode.none if known else ErrorCode.unknown_topic_or_partition,
        error_message=None if known else "only the metadata log has a quorum",
        leader_id=controller_id(image) if known else -1,
        leader_epoch=epoch if known else -1,
        high_watermark=image.end_offset if known else -1,
        current_voters=tuple(
            answer.entity(
                "ReplicaState",
                replica_id=one.broker_id,
                replica_directory_id=None,
                log_end_offset=image.end_offset,
                last_fetch_timestamp=-1,
                last_caught_up_timestamp=-1,
            )
            for one in image.live_brokers()
        )
        if known
        else (),
        observers=(),
    )
