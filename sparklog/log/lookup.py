"""Finding a record by time: as in Kafka, the first offset whose timestamp is not before it.

Cost: one footer and one small range, whatever the size of the log; the next segment's too when the
log start hides the match.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from sparklog.log.manifest import Entry
from sparklog.log.reading import SegmentReader
from sparklog.log.unread import Unread
from sparklog.log.view import PartitionView


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
            low, high = entry.object_base + batch.base, entry.object_base + batch.end
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
