"""Which partition a request means: by the topic's name, or by its id."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sparklog.cluster.image import MetadataImage, Topic
from sparklog.core.errors import InvalidRequest, SparklogError, UnknownTopicOrPartition
from sparklog.core.types import PartitionId
from sparklog.protocol.topic_ids import topic_id_of


class UnknownTopicId(InvalidRequest):
    """No topic has this id, any more or yet: refresh metadata."""

    kafka_code = 100


def topic_of(image: MetadataImage, asked: Any) -> Topic | SparklogError:
    """Return the topic that a part of a request names, or why there is none.

    The name is in `name` or `topic`, by message; the id, where the version has one, in `topic_id`.
    """
    uuid: UUID | None = getattr(asked, "topic_id", None)
    name: str | None = getattr(asked, "name", None) or getattr(asked, "topic", None)
    if name is None:
        found = None if uuid is None else image.topic_of(topic_id_of(uuid))
        return found or UnknownTopicId(f"no topic has this id; refresh metadata. topic_id={uuid}")
    topic = image.topics.get(name)
    return topic or UnknownTopicOrPartition(f"no such topic; refresh metadata. topic={name}")


def partition_of(topic: Topic | SparklogError, number: int) -> PartitionId | SparklogError:
    """Return one partition of a topic that was found, or why there is none."""
    if isinstance(topic, SparklogError):
        return topic
    if not 0 <= number < topic.partitions:
        return UnknownTopicOrPartition(
            f"no such partition; refresh metadata. topic={topic.name} partition={number}"
        )
    return PartitionId(topic.topic_id, number)
