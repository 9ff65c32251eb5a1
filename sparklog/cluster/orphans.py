"""Leftovers: objects beside the partitions of a log that are no longer needed.

These are publication records, write-ahead logs of removed brokers, strays in the folders of deleted
topics, and old snapshots of the registry. The log itself decides about each one; the age only
protects recent objects.

ORPHANS-1: The newest publication record of a writer stays: a writer that returns finds it.
    Retention deletes an older one when the partitions no longer remember the writers of its time.
ORPHANS-2: Retention deletes a write-ahead log, except its seal, if no registration and no
    partition names it.
ORPHANS-3: A deleted topic keeps the tombstone manifest of each partition, and the objects in pins
    of snapshots. Without a tombstone, retention deletes nothing there.

Times are milliseconds. Source: FORMAT.md 6 and 7, WAL.md 5.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.publication import Publication, decode
from sparklog.core.errors import DataCorrupt
from sparklog.core.types import PartitionId
from sparklog.log.cleanup.garbage import ORPHAN_AGE_MS
from sparklog.log.effects import Program, Range, get_many, list_after
from sparklog.log.layout import (
    COMMITS_PREFIX,
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    TOPICS_PREFIX,
    WALS_PREFIX,
    PartitionLayout,
    WalLayout,
    commit_of_key,
    wal_of_key,
)
from sparklog.log.manifest import manifest as manifests
from sparklog.log.manifest.pins import left_pins
from sparklog.log.manifest.tombstone import unpinned
from sparklog.log.segment.segment import CommitKey
from sparklog.log.wal.sealing import clear, seal
from sparklog.store.base import ObjectInfo, ObjectStore

RECORDS_READ_AT_ONCE = 64
REGISTRY_SNAPSHOTS_KEPT = 2
"""A reader with a slightly older listing reads the newest; the one before it replaces a damaged
one.
"""

_PARTITION_FOLDER = re.compile(r"topics/([A-Za-z0-9._-]{1,249})~([A-Za-z0-9_-]{22})/(0|[1-9]\d*)/")
_TOPIC_FOLDER = re.compile(r"topics/[^/]+/")


@dataclass(frozen=True, slots=True)
class PublicationRecords:
    """The publication records of a log."""

    newest: tuple[Publication, ...] = ()
    """The last record of each writer; earlier ones were published before it was created."""
    doomed: tuple[ObjectInfo, ...] = ()
    damaged: tuple[str, ...] = ()
    """Keys of unreadable records; while there are any, retention must not delete staged objects."""

    def unpublished(self) -> Mapping[PartitionId, list[tuple[CommitKey, tuple[str, ...]]]]:
        """Return the staged objects that each partition may still have to append, by commit key."""
        found: defaultdict[PartitionId, list[tuple[CommitKey, tuple[str, ...]]]] = defaultdict(list)
        for record in self.newest:
            key = CommitKey(record.writer, record.sequence)
            for part in record.partitions:
                objects = tuple(r.object for r in part.staged)
                found[PartitionId(part.topic_id, part.partition)].append((key, objects))
        return found


@dataclass(frozen=True, slots=True)
class DeletedTopics:
    """Strays in the folders of topics that the registry does not know."""

    doomed: tuple[ObjectInfo, ...] = ()
    unknown: tuple[str, ...] = field(default=())
    """Folders without a tombstone: half deleted, or of unknown origin."""
    problems: tuple[str, ...] = field(default=())
    """Reasons why objects stay that may be unneeded."""


def publication_records(now_ms: int) -> Program[PublicationRecords]:
    """Read the publication records. One listing, one GET per writer.

    `doomed` has the records older than `ORPHAN_AGE_MS`, except the newest of each writer.
    """
    writers: defaultdict[str, list[tuple[int, ObjectInfo]]] = defaultdict(list)
    for info in (yield from list_after(COMMITS_PREFIX, "")):
        found = commit_of_key(info.key)
        if found is not None:
            writers[found[0]].append((found[1], info))
    last = [max(records)[1].key for records in writers.values()]
    newest: list[Publication] = []
    damaged: list[str] = []
    for at in range(0, len(last), RECORDS_READ_AT_ONCE):
        keys = last[at : at + RECORDS_READ_AT_ONCE]
        stored = yield from get_many(tuple(Range(key) for key in keys))
        for key, data in zip(keys, stored, strict=True):
            try:
                newest += [decode(data, key)] if data is not None else []
            except DataCorrupt:
                damaged.append(key)
    kept = {*last}
    doomed = [
        info
        for records in writers.values()
        for _, info in records
        if info.key not in kept and info.modified_ms < now_ms - ORPHAN_AGE_MS
    ]
    # An expired record can no longer be published, by its own time (see `publication`).
    live = tuple(r for r in newest if r.timestamp_ms >= now_ms - ORPHAN_AGE_MS)
    return PublicationRecords(live, tuple(doomed), tuple(damaged))


def left_wals(
    listed: Iterable[ObjectInfo], image: MetadataImage, now_ms: int, age_ms: int = ORPHAN_AGE_MS
) -> list[WalLayout]:
    """Return the write-ahead logs of removed brokers that hold more than a seal.

    Args:
        listed: everything under `WALS_PREFIX`, listed before `image` was read.
        image: the registry.
        now_ms: current time.
        age_ms: minimum age.

    A starting broker has a write-ahead log before its registration, hence the minimum age.
    """
    found: defaultdict[WalLayout, list[ObjectInfo]] = defaultdict(list)
    for info in listed:
        one = wal_of_key(info.key)
        if one is not None:
            found[one[0]].append(info)
    named = {f"{b.broker_id}-{b.incarnation}" for b in image.brokers.values()}
    for _, state in image.partitions():
        named.update(state.wals)
    return [
        layout
        for layout, infos in found.items()
        if len(infos) > 1
        and f"{layout.broker_id}-{layout.incarnation}" not in named
        and max(info.modified_ms for info in infos) < now_ms - age_ms
    ]


def clear_wal(layout: WalLayout, nonce: str) -> Program[None]:
    """Delete a write-ahead log except its seal; seal it first if necessary.

    Raises:
        Unavailable: a broker still writes to the log. DataCorrupt: the log is damaged.
    """
    sealed = yield from seal(layout, nonce)
    yield from clear(layout, sealed)


def old_registry_snapshots() -> Program[list[ObjectInfo]]:
    """Return the registry's snapshots except the newest few. One listing."""
    layout = PartitionLayout(METADATA_TOPIC, METADATA_TOPIC_ID, 0)
    listed = yield from list_after(layout.snapshot_prefix, "")
    # Names sort as their offsets do.
    found = [info for info in listed if layout.snapshot_end(info.key) is not None]
    return found[:-REGISTRY_SNAPSHOTS_KEPT]


def list_wals() -> Program[list[ObjectInfo]]:
    """Return every object of a write-ahead log."""
    return (yield from list_after(WALS_PREFIX, ""))


def unknown_folders(store: ObjectStore, known: Collection[str]) -> Iterator[str]:
    """Yield the topic folders that are not `known`. One request per folder, known or not."""
    after = ""
    while True:
        info = next(iter(store.list(TOPICS_PREFIX, after)), None)
        if info is None:
            return
        match = _TOPIC_FOLDER.match(info.key)
        if match is None:
            after = info.key
            continue
        folder = match.group()
        if folder not in known:
            yield folder
        # '0' follows '/': continue behind everything in the folder.
        after = folder[:-1] + "0"


def strays(
    folder: str, snapshots: Collection[str] | None = None, pinned_before_ms: int = 0
) -> Program[DeletedTopics]:
    """Return the strays in the folder of a topic that the registry does not have.

    Args:
        folder: the topic's folder.
        snapshots: pins of named snapshots; None keeps every pin.
        pinned_before_ms: creation time before which other pins are strays.
    """
    partitions: defaultdict[PartitionLayout, list[ObjectInfo]] = defaultdict(list)
    unknown = False
    for info in (yield from list_after(folder, "")):
        match = _PARTITION_FOLDER.match(info.key)
        if match is None:
            unknown = True
            continue
        name, topic_id, number = match.groups()
        partitions[PartitionLayout(name, topic_id, int(number))].append(info)
    doomed: list[ObjectInfo] = []
    problems: list[str] = []
    for layout, infos in partitions.items():
        if len(infos) == 1 and layout.manifest_version(infos[0].key) is not None:
            continue
        versions = {v: i for i in infos if (v := layout.manifest_version(i.key)) is not None}
        tombstone = versions[max(versions)] if versions else None
        if tombstone is None or not (yield from _is_tombstone(layout, tombstone.key)):
            unknown = True
            continue
        left = (
            left_pins(layout, infos, snapshots, pinned_before_ms) if snapshots is not None else []
        )
        names = [layout.relative(info.key) for info in left]
        found, problem = yield from unpinned(layout, infos, {tombstone.key}, names)
        doomed += found
        problems += [problem] if problem else []
    return DeletedTopics(tuple(doomed), (folder,) if unknown else (), tuple(problems))


def _is_tombstone(layout: PartitionLayout, key: str) -> Program[bool]:
    stored = yield from get_many((Range(key),))
    try:
        return stored[0] is not None and manifests.decode(stored[0], layout, key).deleted
    except DataCorrupt:
        return False
