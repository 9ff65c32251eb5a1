"""DescribeQuorum (55): the metadata log as Kafka's quorum. Source: KIP-595, KIP-836, KIP-853.

There is no quorum: the storage decides what is appended, and every broker reads it. So the leader
is the controller, and all live brokers are voters that have everything.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import controller_id
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.cluster.image import MetadataImage
from sparklog.log.layout import METADATA_TOPIC
from sparklog.protocol.building import Answer


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer for the one partition of the metadata log; others are unknown."""
    answer = Answer.to(request)
    image = node.metadata.image
    return answer.response(
        error_code=ErrorCode.none,
        error_message=None,
        topics=tuple(_topic(answer, image, topic) for topic in request.topics),
        nodes=tuple(
            answer.entity(
                "Node",
                node_id=one.broker_id,
                listeners=(
                    answer.entity("Listener", name="PLAINTEXT", host=one.host, port=one.port),
                ),
            )
            for one in image.live_brokers()
        )
        if answer.version >= NODES_SINCE
        else (),
    )


NODES_SINCE = 2


def _topic(answer: Answer, image: MetadataImage, asked: Any) -> Any:
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


def _partition(answer: Answer, image: MetadataImage, number: int, *, known: bool) -> Any:
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
