"""Publication: the record with the contents of a batch, `commits/<writer>/<sequence>.json`.

Source: FORMAT.md 7. `cluster.publication` creates and publishes such records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from crc32c import crc32c

from sparklog.core.errors import DataCorrupt, UnknownTopicOrPartition
from sparklog.core.types import TopicPartition
from sparklog.log.segment import Reference
from sparklog.log.segment_footer import reference_document, reference_from_document

FORMAT_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class StagedPartition:
    """The staged objects of one partition, in the order of the append."""

    topic: str
    topic_id: str
    partition: int
    staged: tuple[Reference, ...]

    @property
    def place(self) -> TopicPartition:
        """Return the partition's name."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication record."""

    writer: str
    sequence: int
    nonce: str
    timestamp_ms: int
    partitions: tuple[StagedPartition, ...]
    transactional: bool = False
    """True if only a transaction may append the batch (P5)."""


def merged(staged: Iterable[StagedPartition]) -> tuple[StagedPartition, ...]:
    """Return one entry per partition, the objects of each in the given order.

    Raises:
        UnknownTopicOrPartition: one topic has two ids.
    """
    objects: dict[TopicPartition, list[Reference]] = {}
    ids: dict[str, str] = {}
    for part in staged:
        if ids.setdefault(part.topic, part.topic_id) != part.topic_id:
            raise recreated(part.topic, part.topic_id, ids[part.topic])
        objects.setdefault(part.place, []).extend(r for r in part.staged if r.rows)
    return tuple(
        StagedPartition(place.topic, ids[place.topic], place.partition, tuple(found))
        for place, found in sorted(objects.items())
        if found
    )


def encode(publication: Publication) -> bytes:
    """Return the bytes of the record's object."""
    text = json.dumps(
        {
            "nonce": publication.nonce,
            "writer": publication.writer,
            "sequence": publication.sequence,
            "timestamp": publication.timestamp_ms,
            **({"transactional": True} if publication.transactional else {}),
            "partitions": [
                {
                    "topic": p.topic,
                    "topic_id": p.topic_id,
                    "partition": p.partition,
                    "staged": [reference_document(r) for r in p.staged],
                }
                for p in publication.partitions
            ],
        },
        separators=(",", ":"),
    )
    document = {"format": FORMAT_VERSION, "crc32c": crc32c(text.encode()), "commit": text}
    return json.dumps(document, separators=(",", ":")).encode()


def decode(data: bytes, name: str) -> Publication:
    """Return the record in an object.

    Raises:
        DataCorrupt: damaged, or of a newer format.
    """
    try:
        outer = json.loads(data)
        version, text = outer["format"], outer["commit"]
        if version > FORMAT_VERSION:
            raise DataCorrupt(
                "the batch's record was written by a newer sparklog; upgrade. "
                f"object={name} format={version} known={FORMAT_VERSION}"
            )
        if crc32c(text.encode()) != outer["crc32c"]:
            raise DataCorrupt(f"the batch's record fails its checksum. object={name}")
        return _publication(json.loads(text))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataCorrupt(
            f"the batch's record is not as the format says: {error!r}. object={name}"
        ) from error


def _publication(document: dict[str, Any]) -> Publication:
    return Publication(
        writer=str(document["writer"]),
        sequence=int(document["sequence"]),
        nonce=str(document["nonce"]),
        timestamp_ms=int(document["timestamp"]),
        partitions=tuple(
            StagedPartition(
                str(p["topic"]),
                str(p["topic_id"]),
                int(p["partition"]),
                tuple(reference_from_document(r) for r in p["staged"]),
            )
            for p in document["partitions"]
        ),
        transactional=bool(document.get("transactional", False)),
    )


def recreated(topic: str, staged_id: str, current_id: str) -> UnknownTopicOrPartition:
    """Return the error for records of a deleted topic whose name a new topic has."""
    return UnknownTopicOrPartition(
        "the topic was deleted and created again while records were being written to it, and the "
        "records went with the old one; write them again (a streaming query that stays at this "
        "batch needs a new checkpoint). "
        f"topic={topic} written_to_id={staged_id} current_id={current_id}"
    )
