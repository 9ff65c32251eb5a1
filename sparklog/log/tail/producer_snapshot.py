"""Snapshots of producer state, stored beside the log, so that no leader replays the whole log.

A snapshot is valid for one offset; the partition's own log has all records below it. A snapshot may
be missing or damaged, because the log has the same data. The leader then reads the footers of all
segments that leaders wrote.

The object is a checked JSON document (`log.checked_json`). Source: FORMAT.md 9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sparklog.core.errors import DataCorrupt, Unavailable
from sparklog.core.types import UNLED_EPOCH
from sparklog.log.checked_json import decode_checked, encode_checked
from sparklog.log.effects import Program, delete, get, list_after, put
from sparklog.log.layout import PartitionLayout, is_staged_name
from sparklog.log.manifest.manifest import Entry
from sparklog.log.manifest.refresh import read_segments
from sparklog.log.manifest.view import PartitionView
from sparklog.log.segment.segment import Segment
from sparklog.log.tail.producer_rebuild import Document, replay_segment, restored
from sparklog.log.tail.producer_state import ProducerStates

SNAPSHOTS_KEPT: Final = 2
SEGMENTS_READ_AT_ONCE: Final = 32


def save_producers(layout: PartitionLayout, end_offset: int, document: Document) -> Program[None]:
    """Store the result of `producer_rebuild.snapshot` for a log that ended at `end_offset`.

    Call it only after the partition's own log reaches that offset. It deletes all older snapshots
    except the newest of them.
    Cost: one put, one listing.
    """
    data = encode(end_offset, document)
    # A faster writer stored the same object. If the put gets no answer, the older ones stay.
    yield from put(layout.key(layout.snapshot_name(end_offset)), data)
    ends = yield from _snapshots(layout)
    for end in ends[:-SNAPSHOTS_KEPT]:
        yield from delete(layout.key(layout.snapshot_name(end)))


def load_producers(view: PartitionView, now_ms: int) -> Program[ProducerStates]:
    """Return the state of the partition's producers at the end of `view`.

    All replayed batches count as written now, so that a late replay expires no producer.
    Cost: a listing, the newest snapshot, and a footer for each segment since. There is no cost if
    `view` has every segment, as for a log that no manifest covers yet.

    Raises:
        Unavailable: an object was replaced meanwhile; refresh the view.
        DataCorrupt: a segment is damaged.
    """
    start, states = 0, ProducerStates()
    ends = (yield from _snapshots(view.layout)) if view.manifest.end_offset else []
    for end in reversed([end for end in ends if end <= view.end_offset]):
        data = yield from get(view.layout.key(view.layout.snapshot_name(end)))
        known = decode(data, end) if data is not None else None
        if known is not None:
            start, states = end, known
            break
    entries = [e for e in view.manifest.entries if e.end_offset > start and _has_producers(e)]
    for at in range(0, len(entries), SEGMENTS_READ_AT_ONCE):
        some = entries[at : at + SEGMENTS_READ_AT_ONCE]
        for entry, segment in (yield from _segments(view, some)):
            replay_segment(states, _since(segment, entry.base_offset, start), now_ms)
    for one in view.tail:
        if one.segment.end_offset > start:
            replay_segment(states, _since(one.segment, one.segment.base_offset, start), now_ms)
    return states


def encode(end_offset: int, document: Document) -> bytes:
    """Return the object of a snapshot."""
    return encode_checked(document, end_offset=end_offset)


def decode(data: bytes, end_offset: int) -> ProducerStates | None:
    """Return the state in a snapshot object, or None if unreadable: the log has the same data."""
    try:
        return restored(decode_checked(data, "snapshot of producers", end_offset=end_offset))
    except (ValueError, KeyError, TypeError, AttributeError, DataCorrupt):
        return None


def _has_producers(entry: Entry) -> bool:
    """Return True if a segment may have producers: direct appends and staged objects have none."""
    return entry.leader_epoch > UNLED_EPOCH and not is_staged_name(entry.object)


def _snapshots(layout: PartitionLayout) -> Program[list[int]]:
    listed = yield from list_after(layout.snapshot_prefix, "")
    return sorted(end for info in listed if (end := layout.snapshot_end(info.key)) is not None)


def _segments(
    view: PartitionView, entries: Sequence[Entry]
) -> Program[list[tuple[Entry, Segment]]]:
    found = yield from read_segments(view.layout, [entry.object for entry in entries])
    pairs = []
    for entry, segment in zip(entries, found, strict=True):
        if segment is None:
            raise Unavailable(
                "an object was replaced while producers were read; look again. "
                f"object={view.layout.key(entry.object)}"
            )
        pairs.append((entry, segment))
    return pairs


def _since(segment: Segment, base_offset: int, offset: int) -> Segment:
    """Return the segment at its offsets, without the batches that the snapshot covers."""
    start = offset - base_offset
    return replace(
        segment,
        base_offset=base_offset,
        producers=tuple(p for p in segment.producers if p.base >= start),
        markers=tuple(m for m in segment.markers if m.base >= start),
    )
