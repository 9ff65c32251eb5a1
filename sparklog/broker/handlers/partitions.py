"""Which partition a request means: by the topic's name, or by its id."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sparklog.cluster.image import MetadataImage, Topic
from sparklog.core.errors import SparklogError, UnknownTopicOrPartition
from sparklog.core.types import PartitionId
from sparklog.protocol.topic_ids import topic_id_of


class UnknownTopicId(UnknownTopicOrPartition):
    """No topic has this id, any more or yet: refresh metadata."""

    kafka_code = 100


def topic_of(image: MetadataImage, asked: Any) -> Topic | SparklogError:
    """Return the topic that a part of a request names, or why there is none.

    The name is in `name` or `topic`, by message; the id, where the version has one, in `topic_id`.
    """
    return topic_known_as(image, _key_of(asked))


def _key_of(asked: Any) -> UUID | str | None:
    name: str | None = getattr(asked, "name", None) or getattr(asked, "topic", None)
    uuid: UUID | None = getattr(asked, "topic_id", None)
    return named_or_identified(name, uuid)


def named_or_identified(name: str | None, uuid: UUID | None) -> UUID | str | None:
    """Return what a request names a topic by. With an id, clients leave the name null or empty."""
    return uuid if uuid is not None and not name else name


def topic_known_as(image: MetadataImage, key: UUID | str | None) -> Topic | SparklogError:
    """Return the topic with this id or name, or why there is none; None is the id of none."""
    if isinstance(key, str):
        named = image.topics.get(key)
        return named or UnknownTopicOrPartition(f"no such topic; refresh metadata. topic={key}")
    found = None if key is None else image.topic_of(topic_id_of(key))
    return found or UnknownTopicId(f"no topic has this id; refresh metadata. topic_id={key}")


def asked_as(topic: Topic | SparklogError, asked: Any, number: int) -> PartitionId:
    """Return which partition a request means, known here or not: of an unknown one as it says."""
    if isinstance(topic, Topic):
        return PartitionId(topic.topic_id, number)
    key = _key_of(asked)
    return PartitionId(topic_id_of(key) if isinstance(key, UUID) else key or "", number)


def partition_of(topic: Topic | SparklogError, number: int) -> PartitionId | SparklogError:
    """Return one partition of a topic that was found, or why there is none."""
    if isinstance(topic, SparklogError):
        return topic
    if not 0 <= number < topic.partitions:
        return UnknownTopicOrPartition(
            f"no such partition; refresh metadata. topic={topic.name} partition={number}"
        )
    return PartitionId(topic.topic_id, number)
