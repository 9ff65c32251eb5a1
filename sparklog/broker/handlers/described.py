"""A topic as clients see it, in the two messages that describe one: fields have the same names."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import offline
from sparklog.cluster.image import MetadataImage, Topic
from sparklog.cluster.records import NO_LEADER
from sparklog.core.names import TOLD_AS_INTERNAL
from sparklog.protocol.building import Answer
from sparklog.protocol.topic_ids import uuid_of


def described(
    answer: Answer,
    message: str,
    image: MetadataImage,
    topic: Topic,
    operations: int,
    *,
    partitions: range,
    **more: Any,
) -> Any:
    """Return a topic with some of its partitions.

    Args:
        answer: builds the structures.
        message: what the names of the structures begin with.
        image: the metadata.
        topic: what to describe.
        operations: that are authorized.
        partitions: which of them.
        more: further fields of a partition.
    """
    states = [(number, topic.partition_states[number]) for number in partitions]
    return answer.entity(
        f"{message}Topic",
        error_code=ErrorCode.none,
        name=topic.name,
        topic_id=uuid_of(topic.topic_id),
        is_internal=topic.name in TOLD_AS_INTERNAL,
        partitions=tuple(
            answer.entity(
                f"{message}Partition",
                error_code=ErrorCode.leader_not_available
                if state.leader == NO_LEADER
                else ErrorCode.none,
                partition_index=number,
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=state.replicas,
                isr_nodes=state.isr,
                offline_replicas=offline(image, state.replicas),
                **more,
            )
            for number, state in states
        ),
        topic_authorized_operations=operations,
    )
