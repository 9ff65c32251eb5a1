"""The metadata image: what the registry says at one offset. An immutable value.

I1  topic names and topic ids are unique
I2  partitions of a topic are numbered from 0 without gaps
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sparklog.cluster.records import (
    NO_LEADER,
    ConfigRecord,
    PartitionRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
)


@dataclass(frozen=True, slots=True)
class Partition:
    """Who holds a partition; nobody leads it while `leader` is -1."""

    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    leader: int = NO_LEADER
    leader_epoch: int = 0


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic."""

    name: str
    topic_id: str
    partition_states: tuple[Partition, ...] = ()
    configs: Mapping[str, str] = field(default_factory=dict)
    """What was set explicitly, under Kafka's names."""

    @property
    def partitions(self) -> int:
        """Return the number of partitions."""
        return len(self.partition_states)


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The registry as of `end_offset` of the metadata log."""

    end_offset: int = 0
    topics: Mapping[str, Topic] = field(default_factory=dict)

    def applied(self, records: Iterable[Record | None], end_offset: int) -> MetadataImage:
        """Return the image after these records; the log then ends at `end_offset`."""
        topics = dict(self.topics)
        names = {t.topic_id: t.name for t in topics.values()}
        for record in records:
            match record:
                case TopicRecord(name, topic_id):
                    topics[name] = Topic(name, topic_id)
                    names[topic_id] = name
                case PartitionRecord() if record.topic_id in names:
                    name = names[record.topic_id]
                    topics[name] = _with_partition(topics[name], record)
                case ConfigRecord(name, key, value) if name in topics:
                    configs = {k: v for k, v in topics[name].configs.items() if k != key}
                    if value is not None:
                        configs[key] = value
                    topics[name] = replace(topics[name], configs=configs)
                case RemoveTopicRecord(topic_id) if topic_id in names:
                    del topics[names.pop(topic_id)]
                case _:
                    pass  # of a type, or about a topic, that this image does not know
        return MetadataImage(end_offset, topics)


def _with_partition(topic: Topic, record: PartitionRecord) -> Topic:
    state = Partition(record.replicas, record.isr, record.leader, record.leader_epoch)
    states = list(topic.partition_states)
    if record.partition == len(states):
        states.append(state)
    elif record.partition < len(states):
        states[record.partition] = state
    return replace(topic, partition_states=tuple(states))


def to_document(image: MetadataImage) -> dict[str, Any]:
    """Return the image as JSON values."""
    return {
        "topics": [
            {
                "name": t.name,
                "topicId": t.topic_id,
                "configs": dict(t.configs),
                "partitions": [
                    [list(p.replicas), list(p.isr), p.leader, p.leader_epoch]
                    for p in t.partition_states
                ],
            }
            for t in image.topics.values()
        ]
    }


def from_document(document: dict[str, Any], end_offset: int) -> MetadataImage:
    """Return the image that `to_document` wrote.

    Raises:
        ValueError, KeyError, TypeError: it is not one.
    """
    topics = {}
    for entry in document["topics"]:
        states = tuple(
            Partition(tuple(replicas), tuple(isr), int(leader), int(epoch))
            for replicas, isr, leader, epoch in entry["partitions"]
        )
        topics[entry["name"]] = Topic(entry["name"], entry["topicId"], states, entry["configs"])
    return MetadataImage(end_offset, topics)
