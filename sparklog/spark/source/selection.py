"""The partitions that a read selects, as its options or its FROM clause name them."""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.core.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of these topics, also those added later."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of the topics in whose name the pattern is found, also of later ones."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Assign:
    """These partitions and no others."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class OfKey:
    """The one partition in which Kafka's producers put a key."""

    topic: str
    key: bytes


Selection = Subscribe | SubscribePattern | Assign | OfKey
