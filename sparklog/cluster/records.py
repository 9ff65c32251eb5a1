"""The records of `__cluster_metadata`. Source: FORMAT.md 8; names as in Kafka's KRaft records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sparklog.core.errors import DataCorrupt

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic came into being."""

    name: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """A partition came into being, or its leadership changed."""

    topic_id: str
    partition: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    leader: int = NO_LEADER
    leader_epoch: int = 0


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """A setting of a topic was set, or removed when `value` is None."""

    topic_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True)
class RemoveTopicRecord:
    """A topic was deleted."""

    topic_id: str


Record = TopicRecord | PartitionRecord | ConfigRecord | RemoveTopicRecord

_TOPIC_RESOURCE = 2


def encode(records: Sequence[Record]) -> pa.RecordBatch:
    """Return the records as one batch to append."""
    texts = [json.dumps(_document(r), separators=(",", ":")).encode() for r in records]
    return pa.RecordBatch.from_pydict({"value": pa.array(texts, pa.binary())})


def decode(batch: pa.RecordBatch, base_offset: int) -> list[Record | None]:
    """Return the records of a batch read with column `value`; None for a type unknown here.

    Raises:
        DataCorrupt: a value that is not a metadata record.
    """
    found: list[Record | None] = []
    for row, text in enumerate(batch.column("value").to_pylist()):
        try:
            found.append(_record(json.loads(text)))
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise DataCorrupt(
                f"metadata record cannot be read: {error!r}; run verify. offset={base_offset + row}"
            ) from error
    return found


def _document(record: Record) -> dict[str, Any]:
    match record:
        case TopicRecord(name, topic_id):
            return {"type": "TopicRecord", "name": name, "topicId": topic_id}
        case PartitionRecord():
            return {
                "type": "PartitionRecord",
                "topicId": record.topic_id,
                "partitionId": record.partition,
                "replicas": list(record.replicas),
                "isr": list(record.isr),
                "leader": record.leader,
                "leaderEpoch": record.leader_epoch,
            }
        case ConfigRecord(topic_name, name, value):
            return {
                "type": "ConfigRecord",
                "resourceType": _TOPIC_RESOURCE,
                "resourceName": topic_name,
                "name": name,
                "value": value,
            }
        case RemoveTopicRecord(topic_id):
            return {"type": "RemoveTopicRecord", "topicId": topic_id}


def _record(document: dict[str, Any]) -> Record | None:
    match document["type"]:
        case "TopicRecord":
            return TopicRecord(str(document["name"]), str(document["topicId"]))
        case "PartitionRecord":
            return PartitionRecord(
                str(document["topicId"]),
                int(document["partitionId"]),
                tuple(document["replicas"]),
                tuple(document["isr"]),
                int(document["leader"]),
                int(document["leaderEpoch"]),
            )
        case "ConfigRecord" if document["resourceType"] == _TOPIC_RESOURCE:
            value = document["value"]
            return ConfigRecord(
                str(document["resourceName"]),
                str(document["name"]),
                value if value is None else str(value),
            )
        case "RemoveTopicRecord":
            return RemoveTopicRecord(str(document["topicId"]))
    return None
