"""Fetched batches as a share group sees them: what members may get, and what is skipped. Pure.

Members get no control batches, and with `read_committed` no batches of aborted transactions. The
offsets in between are skipped, as are those that compaction has removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sparklog.broker.fetch.read import FetchedPartition
from sparklog.coordinator.share.in_flight import AcquiredBatch
from sparklog.protocol.records.control import without_aborted
from sparklog.protocol.records.memory_records import BatchSlice, split_batches


class DeliverableBatches(NamedTuple):
    """Batches for members, and the ranges of offsets between them; both ends are included."""

    batches: Sequence[BatchSlice]
    skipped: Sequence[tuple[int, int]]

    @classmethod
    def of(cls, fetched: FetchedPartition, offset: int) -> DeliverableBatches:
        """Return what a fetch has found from `offset` on.

        Raises:
            DataCorrupt: a batch is damaged.
        """
        found = [one for data in fetched.batches for one in split_batches(data)]
        if fetched.aborted is None:
            kept = [one for one in found if not one.header.is_control]
        else:
            kept = without_aborted(found, fetched.aborted)
        skipped, at = [], offset
        for batch in kept:
            if batch.header.base_offset > at:
                skipped.append((at, batch.header.base_offset - 1))
            at = max(at, batch.header.end_offset)
        end = max((one.header.end_offset for one in found), default=offset)
        if end > at:
            skipped.append((at, end - 1))
        return cls(kept, skipped)

    def last_offset(self, offset: int, records: int) -> int:
        """Return the last offset of the batch in which `records` records from `offset` on end."""
        last = offset - 1
        for batch in self.batches:
            last = batch.header.last_offset
            records -= last - max(offset, batch.header.base_offset) + 1
            if records <= 0:
                break
        return last

    def bytes_of(self, acquired: Sequence[AcquiredBatch]) -> list[memoryview]:
        """Return the batches that have one of these records, whole and in order."""
        found, ranges = [], iter(acquired)
        current = next(ranges, None)
        for batch in self.batches:
            while current is not None and current.last_offset < batch.header.base_offset:
                current = next(ranges, None)
            if current is None:
                break
            if current.first_offset <= batch.header.last_offset:
                found.append(batch.data)
        return found
