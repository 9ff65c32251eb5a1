"""Deciding changes of the registry: an image in, records out, or a clear refusal. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sparklog.cluster.image import MetadataImage, Topic
from sparklog.cluster.records import (
    ConfigRecord,
    PartitionRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
)
from sparklog.core.errors import (
    InvalidPartitions,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from sparklog.core.names import check_topic_name
from sparklog.core.settings import check_topic_config_names, parse_topic_configs

PARTITIONS_MAX = 100_000
"""Per topic: far above what one folder listing or one metadata append should carry."""


def create_topic(
    image: MetadataImage, name: str, topic_id: str, partitions: int, configs: Mapping[str, str]
) -> list[Record]:
    """Return the records that create a topic.

    Raises:
        InvalidTopic: illegal name. TopicAlreadyExists: pick another or delete it first.
        InvalidPartitions: none or too many. InvalidConfig: unknown setting or bad value.
    """
    check_topic_name(name)
    if name in image.topics:
        raise TopicAlreadyExists(f"topic exists already. topic={name}")
    clash = _colliding(image, name)
    if clash:
        raise TopicAlreadyExists(
            "topic name differs from an existing one only in '.' and '_', which metrics cannot "
            f"tell apart. topic={name} existing={clash}"
        )
    if not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidPartitions(
            f"a topic has from 1 to {PARTITIONS_MAX} partitions. "
            f"topic={name} partitions={partitions}"
        )
    parse_topic_configs(configs)
    return [
        TopicRecord(name, topic_id),
        *(PartitionRecord(topic_id, p) for p in range(partitions)),
        *(ConfigRecord(name, key, value) for key, value in configs.items()),
    ]


def delete_topic(image: MetadataImage, name: str) -> list[Record]:
    """Return the records that delete a topic.

    Raises:
        UnknownTopicOrPartition: no such topic.
    """
    return [RemoveTopicRecord(known_topic(image, name).topic_id)]


def add_partitions(image: MetadataImage, name: str, total: int) -> list[Record]:
    """Return the records that grow a topic to `total` partitions.

    Raises:
        UnknownTopicOrPartition: no such topic.
        InvalidPartitions: not more than before; records would be lost.
    """
    topic = known_topic(image, name)
    if total == topic.partitions:
        raise InvalidPartitions(
            f"topic already has this many partitions. topic={name} partitions={total}"
        )
    if total < topic.partitions:
        raise InvalidPartitions(
            "the number of partitions can only grow; make a new topic and copy into it. "
            f"topic={name} partitions={topic.partitions} wanted={total}"
        )
    if total > PARTITIONS_MAX:
        raise InvalidPartitions(f"a topic has at most {PARTITIONS_MAX} partitions. topic={name}")
    return [PartitionRecord(topic.topic_id, p) for p in range(topic.partitions, total)]


def alter_configs(
    image: MetadataImage, name: str, set_: Mapping[str, str], remove: Iterable[str]
) -> list[Record]:
    """Return the records that change a topic's settings; empty when nothing changes.

    Raises:
        UnknownTopicOrPartition: no such topic. InvalidConfig: unknown setting or bad value.
    """
    topic = known_topic(image, name)
    removed = list(remove)
    check_topic_config_names(removed)
    merged = {**{k: v for k, v in topic.configs.items() if k not in removed}, **set_}
    parse_topic_configs(merged)
    return [
        *(ConfigRecord(name, k, v) for k, v in set_.items() if topic.configs.get(k) != v),
        *(ConfigRecord(name, k, None) for k in removed if k in topic.configs and k not in set_),
    ]


def known_topic(image: MetadataImage, name: str) -> Topic:
    """Return a topic.

    Raises:
        UnknownTopicOrPartition: no such topic; the message says how to make or list topics.
    """
    topic = image.topics.get(name)
    if topic is None:
        raise UnknownTopicOrPartition(
            "no such topic; list them with `sparklog topics --list` or make it with "
            f"`sparklog topics --create --topic {name}`. topic={name}"
        )
    return topic


def _colliding(image: MetadataImage, name: str) -> str | None:
    folded = name.replace(".", "_")
    return next((t for t in image.topics if t.replace(".", "_") == folded), None)
