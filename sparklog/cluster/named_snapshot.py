"""NamedSnapshot: a value, and its encoding as a stored object. Source: FORMAT.md 12."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from crc32c import crc32c

from sparklog.cluster.image import Partition, Topic
from sparklog.core.errors import DataCorrupt
from sparklog.core.types import PartitionId, TopicPartition
from sparklog.log.effects import Protocol, Range, get_many, list_after
from sparklog.log.layout import (
    SNAPSHOTS_PREFIX,
    PartitionLayout,
    name_of_snapshot_key,
    named_snapshot_key,
)

FORMAT_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class PinnedPartition:
    """One partition in a snapshot."""

    topic: str
    topic_id: str
    partition: int
    pin: str
    """The nonce of its pin."""
    log_start_offset: int
    end_offset: int
    objects: int
    rows: int
    size_bytes: int

    @property
    def layout(self) -> PartitionLayout:
        """Return the names of its objects."""
        return PartitionLayout(self.topic, self.topic_id, self.partition)

    @property
    def place(self) -> TopicPartition:
        """Return the partition's name."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True)
class NamedSnapshot:
    """One snapshot: a name and its pinned partitions."""

    name: str
    timestamp_ms: int
    partitions: tuple[PinnedPartition, ...]

    @cached_property
    def by_place(self) -> Mapping[TopicPartition, PinnedPartition]:
        """Return its partitions by topic and number."""
        return {one.place: one for one in self.partitions}

    @property
    def topics(self) -> list[str]:
        """Return the names of its topics, sorted."""
        return sorted({one.topic for one in self.partitions})

    def as_topics(self) -> dict[str, Topic]:
        """Return its topics by name, with the partition counts of that time."""
        states: dict[str, tuple[str, tuple[Partition, ...]]] = {}
        for one in self.partitions:
            _, before = states.get(one.topic, ("", ()))
            states[one.topic] = one.topic_id, (*before, Partition())
        return {name: Topic(name, topic_id, some) for name, (topic_id, some) in states.items()}


@dataclass(frozen=True, slots=True)
class SnapshotRecords:
    """All snapshots of a log."""

    snapshots: tuple[NamedSnapshot, ...] = ()
    """Sorted by name."""
    damaged: tuple[str, ...] = ()
    """Keys of unreadable snapshots; while there are any, retention must not delete pins."""

    def pins(self) -> Mapping[PartitionId, frozenset[str]] | None:
        """Return the pins of snapshots by partition; None if a snapshot cannot be read."""
        if self.damaged:
            return None
        found: defaultdict[PartitionId, set[str]] = defaultdict(set)
        for snapshot in self.snapshots:
            for one in snapshot.partitions:
                found[PartitionId(one.topic_id, one.partition)].add(one.pin)
        return {where: frozenset(pins) for where, pins in found.items()}

    def all_pins(self) -> frozenset[str] | None:
        """Return all pins of snapshots; None if a snapshot cannot be read."""
        pins = self.pins()
        return None if pins is None else frozenset().union(*pins.values())


def snapshot_records() -> Protocol[SnapshotRecords]:
    """Return every snapshot. One listing, and one GET for each."""
    names = sorted(
        name
        for info in (yield from list_after(SNAPSHOTS_PREFIX, ""))
        if (name := name_of_snapshot_key(info.key)) is not None
    )
    if not names:
        return SnapshotRecords()
    stored = yield from get_many(tuple(Range(named_snapshot_key(name)) for name in names))
    found: list[NamedSnapshot] = []
    damaged: list[str] = []
    for name, data in zip(names, stored, strict=True):
        try:
            found += [decode(data, name)] if data is not None else []
        except DataCorrupt:
            damaged.append(named_snapshot_key(name))
    return SnapshotRecords(tuple(found), tuple(damaged))


def encode(snapshot: NamedSnapshot) -> bytes:
    """Return the bytes of a snapshot's object."""
    document = {
        "name": snapshot.name,
        "timestamp": snapshot.timestamp_ms,
        "partitions": [
            [getattr(one, field) for field in PinnedPartition.__slots__]
            for one in snapshot.partitions
        ],
    }
    text = json.dumps(document, separators=(",", ":"))
    told = {"format": FORMAT_VERSION, "crc32c": crc32c(text.encode()), "snapshot": text}
    return json.dumps(told).encode()


def decode(data: bytes, name: str) -> NamedSnapshot:
    """Return the snapshot in an object.

    Raises:
        DataCorrupt: damaged, of another name, or of a newer format.
    """
    key = named_snapshot_key(name)
    try:
        told = json.loads(data)
        text = told["snapshot"]
        if told["format"] != FORMAT_VERSION:
            raise DataCorrupt(
                f"snapshot is of another format; use a newer sparklog. format={told['format']} "
                f"object={key}"
            )
        if told["crc32c"] != crc32c(text.encode()):
            raise DataCorrupt(f"snapshot fails its checksum. object={key}")
        document = json.loads(text)
        if document["name"] != name:
            raise DataCorrupt(f"snapshot has another name. object={key}")
        return NamedSnapshot(
            name,
            int(document["timestamp"]),
            tuple(_partition(values) for values in document["partitions"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataCorrupt(f"snapshot is not as the format says: {error!r}. object={key}") from error


def _partition(values: Sequence[Any]) -> PinnedPartition:
    topic, topic_id, partition, nonce, *numbers = values
    if len(numbers) != 5:
        raise ValueError("a partition has another number of fields")
    return PinnedPartition(
        str(topic), str(topic_id), int(partition), str(nonce), *(int(n) for n in numbers)
    )
