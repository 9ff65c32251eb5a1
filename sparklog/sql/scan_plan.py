"""The plan of a scan for one partition: objects, offsets and the leader's records. Pure.

An entry without a record that can match is skipped. `PartitionPlan` keeps the counts for EXPLAIN.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sparklog.core.types import TopicPartition
from sparklog.log.manifest.manifest import Entry
from sparklog.log.segment.segment import Segment
from sparklog.spark.source.readable_partition import ReadablePartition
from sparklog.sql.filters import Condition, Interval, Known, hull, may_match

Spans = list[tuple[int, int]]
"""Offsets [base, end), in order, without overlap."""


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The part of a scan that reads one partition."""

    place: TopicPartition
    state: ReadablePartition
    low: int
    """The first offset to read."""
    high: int
    """The offset after the last."""
    entries: tuple[Entry, ...]
    """Objects with records that may match, by the bounds in the manifest."""
    skipped: int
    """Objects with records that cannot match."""
    tail: tuple[int, int]
    """Offsets [base, end) that only a leader has; empty if base is end."""

    @property
    def known(self) -> Known:
        """Return what is known of each of its records."""
        return {"partition": Interval(self.place.partition, self.place.partition)}

    def after(self, offset: int, state: ReadablePartition, condition: Condition) -> PartitionPlan:
        """Return the plan for the records from `offset` on, in a newer state of the partition."""
        end = min(self.high, self.tail[0])
        newer = plan_partition(self.place, state, condition, (offset, end))
        return replace(newer, high=self.high, tail=self.tail)


def plan_partition(
    place: TopicPartition,
    state: ReadablePartition,
    condition: Condition,
    offsets: tuple[int, int] | None = None,
) -> PartitionPlan:
    """Return what to read of a partition for records that meet a condition.

    Args:
        place: its name.
        state: its objects and its end.
        condition: of the scan.
        offsets: read only these offsets [base, end); None is all.
    """
    start, end = state.log_start_offset, state.readable_end
    if offsets is not None:
        start, end = max(start, offsets[0]), min(end, offsets[1])
    here: dict[str, Interval] = {"partition": Interval(place.partition, place.partition)}
    bounds = hull(condition, "offset", here)
    low = int(max(start, min(bounds.low, end)))
    high = int(min(end, max(bounds.high + 1, low)))
    if not may_match(condition, here):
        high = low
    stored = state.covering(start, min(state.stored_end, end))
    filled = [entry for entry in stored if entry.rows]
    kept = tuple(
        entry
        for entry in filled
        if entry.end_offset > low
        and entry.base_offset < high
        and may_match(condition, here | _known_of(entry))
    )
    beyond = max(low, min(high, state.stored_end))
    tail = (max(beyond, low), max(high, beyond))
    if not may_match(condition, here | {"offset": Interval(tail[0], tail[1] - 1)}):
        tail = (tail[0], tail[0])
    return PartitionPlan(place, state, low, high, kept, len(filled) - len(kept), tail)


def spans_of(plan: PartitionPlan, entry: Entry, segment: Segment, condition: Condition) -> Spans:
    """Return the offsets of an entry's record batches that may have matching records."""
    low = max(plan.low, entry.base_offset)
    high = min(plan.high, plan.tail[0], entry.end_offset)
    found: Spans = []
    for batch in segment.batches:
        base = max(low, entry.base_offset + batch.base)
        end = min(high, entry.base_offset + batch.end)
        if base < end and may_match(
            condition,
            {
                **plan.known,
                "offset": Interval(base, end - 1),
                "timestamp": _times(batch.min_timestamp_ms, batch.max_timestamp_ms),
            },
        ):
            found.append((base, end))
    if segment.unread:  # batches that cannot be read are reported by the reader
        return [(low, high)] if low < high else []
    return joined_spans(found)


def joined_spans(spans: Spans) -> Spans:
    """Return the same offsets in as few spans as possible."""
    found: Spans = []
    for base, end in spans:
        if found and found[-1][1] >= base:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((base, end))
    return found


def _known_of(entry: Entry) -> dict[str, Interval]:
    return {
        "offset": Interval(entry.base_offset, entry.end_offset - 1),
        "timestamp": _times(entry.min_timestamp_ms, entry.max_timestamp_ms),
    }


def _times(low_ms: int, high_ms: int) -> Interval:
    return Interval(low_ms * 1000, high_ms * 1000 + 999)
