"""PinnedRecords: the records of a named snapshot, for the pages of records.

Time travel: the page is the same as for the present log, and so are its positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from sparklog.cli.console.record_sources import PartitionExtent
from sparklog.client.values import EARLIEST, LATEST, ListedOffset
from sparklog.cluster.log import Log
from sparklog.cluster.named_snapshots import SnapshotReader, read_snapshot
from sparklog.console.cluster_view import RECORD_COLUMNS, Arrival, PartitionRange
from sparklog.core.errors import UnknownTopicOrPartition
from sparklog.core.types import NO_TIMESTAMP_MS, Closeable, TopicPartition
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.log.segment.unread_batches import Unread

THREADS: Final = 4
NO_OFFSET: Final = -1


class PinnedRecords(Closeable):
    """Records of one snapshot. A context manager."""

    def __init__(self, log: Log, name: str) -> None:
        """Read the snapshot `name`.

        Raises:
            InvalidRequest: no such snapshot. DataCorrupt: it is damaged.
        """
        self._pool = ThreadPoolExecutor(THREADS, "sparklog-snapshot")
        self._reader = SnapshotReader(log.store, read_snapshot(log.store, name), self._pool)

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def partitions(self, topic: str) -> int:
        """Return how many partitions the topic had. Raises UnknownTopicOrPartition."""
        found = sum(place.topic == topic for place in self._reader.snapshot.by_place)
        if not found:
            raise UnknownTopicOrPartition(
                f"the snapshot has no such topic. snapshot={self._reader.snapshot.name} "
                f"topic={topic}"
            )
        return found

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        """Return an offset per partition, as `AdminTarget.offsets` does."""
        return {tp: self._offset(tp, at) for tp, at in wanted.items()}

    def read(self, ranges: Sequence[PartitionRange], take: Arrival) -> None:
        """Read ranges of partitions, as `ClusterView.read` does."""
        for one in ranges:
            opened, extent = self._opened(one.partition)
            base = max(one.base, extent.view.log_start_offset)
            end = min(one.end, extent.readable_end)
            if base >= end:
                continue
            for batch in opened.read(
                base, end, RECORD_COLUMNS, view=extent.view, unread=Unread.PASS_OVER,
                outcomes=extent.outcomes,
            ):  # fmt: skip
                if not take(one.partition, batch):
                    break

    def _opened(self, tp: TopicPartition) -> tuple[PartitionLog, PartitionExtent]:
        opened, view = self._reader.partition(tp.topic, tp.partition)
        return opened, PartitionExtent(view, opened.outcomes(view))

    def _offset(self, tp: TopicPartition, at: int) -> ListedOffset:
        opened, extent = self._opened(tp)
        if at == EARLIEST:
            return ListedOffset(extent.view.log_start_offset, NO_TIMESTAMP_MS)
        if at == LATEST:
            return ListedOffset(extent.readable_end, NO_TIMESTAMP_MS)
        found = opened.offset_for_time(at, view=extent.view)
        if found is None:
            return ListedOffset(NO_OFFSET, NO_TIMESTAMP_MS)
        return ListedOffset(found.offset, found.timestamp_ms)
