"""Batches of records' states, as one share group has them stored for one partition. Pure.

Batches are in the order of their offsets, and no two have the same offset. Neighbours in one state
with one count are one batch. Source: Kafka's PersisterStateBatchCombiner.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from sparklog.coordinator.share.delivery_state import StateBatch


def merge(
    stored: Iterable[StateBatch], changed: Iterable[StateBatch], start_offset: int
) -> tuple[StateBatch, ...]:
    """Return the batches after a change; nothing before the start offset is kept.

    The changed batches replace the stored states of the same offsets. They may have any order, and
    of two with the same offset the later one counts. `merge` is associative: changes that were
    merged first give the same states. The start offset must not decrease meanwhile.
    """
    merged = list(stored)
    for batch in changed:
        _put(merged, batch)
    joined: list[StateBatch] = []
    for each in merged:
        if each.last_offset < start_offset:
            continue
        batch = each
        if batch.first_offset < start_offset:
            batch = batch._replace(first_offset=start_offset)
        if joined and _is_continued(joined[-1], batch):
            joined[-1] = joined[-1]._replace(last_offset=batch.last_offset)
        else:
            joined.append(batch)
    return tuple(joined)


def _put(merged: list[StateBatch], batch: StateBatch) -> None:
    """Replace the states of the batch's offsets."""
    if not merged or batch.first_offset > merged[-1].last_offset:
        merged.append(batch)
        return
    at = bisect_left(merged, batch.first_offset, key=_last_offset)
    until = bisect_right(merged, batch.last_offset, lo=at, key=_first_offset)
    parts = [batch]
    if at < until:
        before, after = merged[at], merged[until - 1]
        if before.first_offset < batch.first_offset:
            parts.insert(0, before._replace(last_offset=batch.first_offset - 1))
        if after.last_offset > batch.last_offset:
            parts.append(after._replace(first_offset=batch.last_offset + 1))
    merged[at:until] = parts


def _is_continued(before: StateBatch, batch: StateBatch) -> bool:
    return before.last_offset + 1 == batch.first_offset and before[2:] == batch[2:]


def _first_offset(batch: StateBatch) -> int:
    return batch.first_offset


def _last_offset(batch: StateBatch) -> int:
    return batch.last_offset
