"""Lookups in a partition's own log: a record by its time, and leader epochs.

As in Kafka, a lookup by time returns the first record whose timestamp is not before that time. It
costs one footer and one small range for a log of any size. If the log start hides the match, it
also reads the next segment.

The functions for leader epochs are pure: the epoch at an offset, and the end of an epoch. A direct
append has no leader; it counts for the epoch before it. So epochs never fall from offset to offset,
as clients expect. Source: FORMAT.md 9; KIP-320.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from sparklog.core.types import UNLED_EPOCH
from sparklog.log.manifest.manifest import Entry
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.segment_reader import SegmentReader
from sparklog.log.segment.unread_batches import Unread


@dataclass(frozen=True, slots=True)
class TimedOffset:
    """A record's offset and its timestamp."""

    offset: int
    timestamp_ms: int


def offset_for_time(
    reader: SegmentReader, view: PartitionView, timestamp_ms: int
) -> TimedOffset | None:
    """Return the first record at or after `timestamp_ms`, or None when there is none."""
    for entry in view.entries:
        if entry.rows and entry.max_timestamp_ms >= timestamp_ms:
            for low, high in _candidate_ranges(reader, entry, timestamp_ms):
                found = _scan(reader, view, max(low, view.log_start_offset), high, timestamp_ms)
                if found is not None:
                    return found
    return None


def offset_of_max_timestamp(reader: SegmentReader, view: PartitionView) -> TimedOffset | None:
    """Return the first record that has the highest timestamp (Kafka's ListOffsets with -3)."""
    entries = [e for e in view.entries if e.rows]
    if not entries:
        return None
    return offset_for_time(reader, view, max(e.max_timestamp_ms for e in entries))


def _candidate_ranges(
    reader: SegmentReader, entry: Entry, timestamp_ms: int
) -> Iterator[tuple[int, int]]:
    for batch in reader.footer(entry).batches:
        if batch.max_timestamp_ms >= timestamp_ms:
            low, high = entry.base_offset + batch.base, entry.base_offset + batch.end
            yield max(low, entry.base_offset), min(high, entry.end_offset)


def _scan(
    reader: SegmentReader, view: PartitionView, low: int, high: int, timestamp_ms: int
) -> TimedOffset | None:
    if low >= high:
        return None
    for batch in reader.read(view, low, high, ("offset", "timestamp"), unread=Unread.PASS_OVER):
        stamps = batch.column("timestamp").cast(pa.int64()).to_numpy()
        hits = (stamps >= timestamp_ms).nonzero()[0]
        if len(hits):
            row = int(hits[0])
            return TimedOffset(batch.column("offset")[row].as_py(), int(stamps[row]))
    return None


def epoch_at(view: PartitionView, offset: int) -> int:
    """Return the leader epoch of the record at `offset`; UNLED_EPOCH before the first leader."""
    if view.leader_epoch == UNLED_EPOCH:
        return UNLED_EPOCH
    return _highest(e for e in view.entries if e.base_offset <= offset)


def end_of_epoch(view: PartitionView, leader_epoch: int) -> tuple[int, int]:
    """Return the highest epoch of the log that is at most `leader_epoch`, and its end offset.

    The end is the start of the next epoch, or the end of the log. If the log has no such epoch, the
    result is UNLED_EPOCH and the end of the records without a leader.
    """
    found = UNLED_EPOCH
    for entry in view.entries:
        if entry.leader_epoch > leader_epoch:
            return found, entry.base_offset
        found = max(found, entry.leader_epoch)
    return found, view.end_offset


def _highest(entries: Iterable[Entry]) -> int:
    return max((entry.leader_epoch for entry in entries), default=UNLED_EPOCH)
