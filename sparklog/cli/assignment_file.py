"""JSON files with the replicas of partitions, in kafka-reassign-partitions' format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from sparklog.cli.partition_file import VERSION, entries_of, named_partition, once_each
from sparklog.core.errors import InvalidRequest
from sparklog.core.types import TopicPartition

EXAMPLE = '{"version": 1, "partitions": [{"topic": "foo", "partition": 1, "replicas": [1, 2, 3]}]}'
TOPICS_EXAMPLE = '{"version": 1, "topics": [{"topic": "foo"}]}'


def parse_assignment(text: str) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas of each partition in a file.

    Raises:
        InvalidRequest: another format, a partition twice, or a replica twice.
    """
    wanted: list[tuple[TopicPartition, tuple[int, ...]]] = []
    for entry in entries_of(text, EXAMPLE):
        tp, replicas = named_partition(entry, EXAMPLE), entry.get("replicas")
        if not isinstance(replicas, list) or not all(type(r) is int for r in replicas):
            raise InvalidRequest(
                f"the file must look like {EXAMPLE}. problem=replicas are {replicas!r}"
            )
        if not replicas or len(set(replicas)) != len(replicas):
            raise InvalidRequest(
                f"a partition needs replicas, each once. partition={tp} replicas={replicas}"
            )
        directories = entry.get("log_dirs", [])
        if not isinstance(directories, list) or directories != ["any"] * len(directories):
            raise InvalidRequest(
                f'log_dirs may only be "any": brokers have one place each. partition={tp}'
            )
        wanted.append((tp, tuple(replicas)))
    once_each(tp for tp, _ in wanted)
    if not wanted:
        raise InvalidRequest("the file names no partitions")
    return dict(wanted)


def parse_topics(text: str) -> list[str]:
    """Return the topics in a file.

    Raises:
        InvalidRequest: another format.
    """
    names = [entry.get("topic") for entry in entries_of(text, TOPICS_EXAMPLE, under="topics")]
    topics = [name for name in names if isinstance(name, str)]
    if not topics or len(topics) < len(names):
        raise InvalidRequest(f"the file must look like {TOPICS_EXAMPLE}. topics={names}")
    return topics


def spelled_assignment(assignment: Mapping[TopicPartition, Sequence[int]]) -> str:
    """Return the JSON of an assignment, as Kafka writes it."""
    document = {
        "version": VERSION,
        "partitions": [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "replicas": list(replicas),
                "log_dirs": ["any"] * len(replicas),
            }
            for tp, replicas in sorted(assignment.items())
        ],
    }
    return json.dumps(document, separators=(",", ":"))
