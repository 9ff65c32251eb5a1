"""Checking what lies beside a partition's log: hints, which the log tells as well, and pins.

A snapshot of producers is compared with what the batch tables of the segments before its offset
say: who wrote last, with which sequence, and which transactions were open. It may know more, of
segments that are gone, and less, of producers that were forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from crc32c import crc32c

from sparklog.core.errors import DataCorrupt
from sparklog.log import manifest as manifests
from sparklog.log.layout import METADATA_TOPIC_ID, PartitionLayout
from sparklog.log.manifest import Entry
from sparklog.log.producer_rebuild import replay_segment
from sparklog.log.producer_snapshot import decode
from sparklog.log.producer_state import ProducerStates
from sparklog.log.segment import Segment
from sparklog.store.base import ObjectInfo, ObjectNotFound, ObjectStore

_TEXTS = ("producers", "image")
"""Fields of which a hint's CRC is: of a snapshot of producers, and of the registry."""


class HintCheck:
    """Compares a partition's hints with its segments, which it is shown in order."""

    def __init__(
        self, store: ObjectStore, layout: PartitionLayout, listed: Sequence[ObjectInfo]
    ) -> None:
        """Read the hints in this listing."""
        self._bad: list[tuple[str, str]] = []
        self._known: dict[int, tuple[str, ProducerStates, ProducerStates]] = {}
        """By end offset: key, what the hint says, what the segments say."""
        for info in listed:
            end = layout.snapshot_end(info.key)
            if end is None:
                continue
            try:
                data = store.get(info.key)
            except ObjectNotFound:
                continue
            if not _is_whole(data, end):
                self._bad.append((info.key, "a snapshot is damaged (the log tells the same)"))
            elif layout.topic_id != METADATA_TOPIC_ID:
                said = decode(data, end)
                if said is None:
                    self._bad.append((info.key, "a snapshot of producers cannot be read"))
                else:
                    self._known[end] = info.key, said, ProducerStates()

    def take(self, entry: Entry, segment: Segment) -> None:
        """Take in a segment that the log has, the next one.

        Raises:
            DataCorrupt: a marker in it cannot be read.
        """
        for end, (_, _, found) in self._known.items():
            if entry.base_offset < end:
                replay_segment(found, _until(segment, entry.object_base, end), 0)

    def problems(self, *, complete: bool) -> Iterator[tuple[str, str]]:
        """Yield the keys of hints that are wrong, and how; `complete`: all segments were seen."""
        yield from self._bad
        for key, said, found in self._known.values() if complete else ():
            what = _difference(said, found)
            if what:
                yield key, f"a snapshot of producers contradicts the segments: {what}"


def pin_problems(
    store: ObjectStore,
    layout: PartitionLayout,
    listed: Sequence[ObjectInfo],
    wanted: Collection[str],
) -> Iterator[tuple[str, str]]:
    """Yield the keys of pins that are damaged, or name what is not there, and what is wrong.

    `wanted`: the pins that snapshots have.
    """
    names = {layout.relative(info.key) for info in listed}
    for name in sorted(set(map(layout.pin_name, wanted)) - names):
        yield layout.key(name), "a pin that a snapshot names is missing; it cannot be read here"
    for info in listed:
        if layout.pin_nonce(info.key) is None:
            continue
        try:
            pinned = manifests.decode(store.get(info.key), layout, info.key)
        except ObjectNotFound:
            continue
        except DataCorrupt as error:
            yield info.key, f"a pin is damaged; its snapshot cannot be read here: {error}"
            continue
        for entry in pinned.entries:
            if entry.object not in names:
                where = f"offsets {entry.base_offset} to {entry.end_offset}"
                yield info.key, f"a snapshot misses {where}. object={layout.key(entry.object)}"


def _is_whole(data: bytes, end_offset: int) -> bool:
    try:
        whole = json.loads(data)
        text = next(whole[name] for name in _TEXTS if name in whole)
        return bool(whole["end_offset"] == end_offset and whole["crc32c"] == crc32c(text.encode()))
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        return False


def _until(segment: Segment, base_offset: int, end: int) -> Segment:
    """Return the segment at its place, without what comes at or after `end`."""
    return replace(
        segment,
        base_offset=base_offset,
        producers=tuple(p for p in segment.producers if p.base + base_offset < end),
        markers=tuple(m for m in segment.markers if m.base + base_offset < end),
    )


def _difference(said: ProducerStates, found: ProducerStates) -> str:
    told = dict(said)
    for producer_id, known in found:
        other = told.get(producer_id)
        if other is None or not known.batches:
            continue
        mine, theirs = known.batches[-1].end_offset, other.batches
        if theirs and theirs[-1].end_offset < mine:
            return (
                f"producer {producer_id} wrote up to offset {mine}, "
                f"and it says {theirs[-1].end_offset}"
            )
        if other.epoch == known.epoch and other.last_sequence != known.last_sequence:
            return (
                f"producer {producer_id} came to sequence {known.last_sequence}, "
                f"and it says {other.last_sequence}"
            )
    began = dict(said.transactions.open())
    for producer_id, first_offset in found.transactions.open():
        # What began in a segment that is gone looks younger than it is.
        if producer_id in told and began.get(producer_id, first_offset + 1) > first_offset:
            return f"a transaction of producer {producer_id} is open from offset {first_offset}"
    return ""
