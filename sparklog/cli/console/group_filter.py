"""Partitions of `--topic`: `topic` for all of a topic's, `topic:0,1` for some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparklog.cli.arguments import UsageError
from sparklog.core.errors import UnknownTopicOrPartition
from sparklog.core.types import TopicPartition

if TYPE_CHECKING:
    from sparklog.client.admin import Admin


def parse_topic(word: str) -> tuple[str, tuple[int, ...] | None]:
    """Return a topic and its partitions; None for all.

    Raises:
        UsageError: neither `topic` nor `topic:0,1`.
    """
    topic, colon, partitions = word.partition(":")
    if not colon:
        return topic, None
    numbers = partitions.split(",")
    if not topic or not all(n.isascii() and n.isdigit() for n in numbers):
        raise UsageError(f"--topic takes a topic, or topic:0,1 with partitions, not {word!r}")
    return topic, tuple(int(n) for n in numbers)


def chosen_partitions(admin: Admin, words: Sequence[str]) -> list[TopicPartition]:
    """Return the named partitions.

    Raises:
        UsageError: as `parse_topic`. UnknownTopicOrPartition: one does not exist.
    """
    topics = admin.topics()
    chosen: dict[TopicPartition, None] = {}
    for word in words:
        name, numbers = parse_topic(word)
        if name not in topics:
            raise UnknownTopicOrPartition(f"no such topic. topic={name}")
        there = range(topics[name].partitions)
        for number in there if numbers is None else numbers:
            if number not in there:
                raise UnknownTopicOrPartition(
                    f"no such partition. partition={TopicPartition(name, number)}"
                )
            chosen[TopicPartition(name, number)] = None
    return sorted(chosen)
