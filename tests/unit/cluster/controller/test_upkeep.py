"""The controller's upkeep of topics: what it decides, and which topics it reads for that."""

from __future__ import annotations

from collections.abc import ItemsView, ValuesView
from dataclasses import replace

from sparklog.cluster.controller.controller import upkeep
from sparklog.cluster.metadata.image import MetadataImage, Topic
from sparklog.cluster.metadata.records import (
    ConfigRecord,
    PartitionRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
)

BROKERS = 3
PARTITIONS = 4


class ReadTopics(dict[str, Topic]):
    """Topics by name that keep the names of those that were read."""

    def __init__(self, topics: dict[str, Topic]) -> None:
        super().__init__(topics)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Topic:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: object = None) -> Topic | None:  # type: ignore[override]
        self.read.add(name)
        return super().get(name)

    def values(self) -> ValuesView[Topic]:  # type: ignore[override]
        self.read.update(self)
        return super().values()

    def items(self) -> ItemsView[str, Topic]:  # type: ignore[override]
        self.read.update(self)
        return super().items()


def topic_id(name: str) -> str:
    return name * 22


def applied(image: MetadataImage, *records: Record) -> MetadataImage:
    return image.applied(records, image.end_offset + len(records))


def created(image: MetadataImage, name: str, replicas: tuple[int, ...]) -> MetadataImage:
    leader = replicas[0] if replicas else -1
    states = [
        PartitionRecord(topic_id(name), number, replicas, replicas, leader, 0)
        for number in range(PARTITIONS)
    ]
    return applied(image, TopicRecord(name, topic_id(name)), *states)


def brokers() -> MetadataImage:
    registered = [RegisterBrokerRecord(b, f"{b:032x}", "host", 9092) for b in range(BROKERS)]
    return applied(MetadataImage(), *registered)


def test_upkeep_reads_only_the_named_topics_when_all_have_replicas() -> None:
    image = brokers()
    for name in "abc":
        image = created(image, name, (0,))
    topics = ReadTopics(dict(image.topics))
    assert upkeep(replace(image, topics=topics), ["b"], 1) == []
    assert topics.read == {"b"}


def test_upkeep_places_missing_replicas_after_all_partitions() -> None:
    placed = created(created(brokers(), "a", (0,)), "b", ())
    records = upkeep(placed, ["b"], 1)
    leaders = [record.leader for record in records if isinstance(record, PartitionRecord)]
    assert leaders == [(PARTITIONS + n) % BROKERS for n in range(PARTITIONS)]


def test_changed_topics_are_found_by_object_identity() -> None:
    before = created(created(brokers(), "a", (0,)), "b", (0,))
    after = applied(before, ConfigRecord("b", "retention.ms", "1"))
    assert [topic.name for topic in after.changed_topics(before)] == ["b"]
    added = created(before, "c", (0,))
    assert [topic.name for topic in added.changed_topics(before)] == ["c"]
    assert [topic.name for topic in before.changed_topics(MetadataImage())] == ["a", "b"]


def test_changed_topics_reads_none_when_no_topic_changed() -> None:
    before = created(brokers(), "a", (0,))
    topics = ReadTopics(dict(before.topics))
    before = replace(before, topics=topics)
    after = applied(before, RegisterBrokerRecord(BROKERS, "f" * 32, "host", 9092))
    assert after.changed_topics(before) == []
    assert topics.read == set()
