"""One task's records on their way into staged objects: buffers, rolling, uploads beside reading.

Each partition has a buffer. A small pool of threads encodes and uploads a buffer that has grown to
`roll_bytes`, while the task goes on reading. Sizes are bytes of uncompressed Arrow data.
  STAGING-1: what is buffered or under way never exceeds `buffered_bytes_max` by more than one
      batch
  STAGING-2: the objects of a partition, in the order of `finish`, hold its records in the order of
      `add`
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from sparklog.cluster.publication import StagedPartition
from sparklog.core.types import TopicPartition
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.log.segment.segment import Reference

ROLL_BYTES = 16 << 20
"""Uncompressed size of a staged object. It is large enough that few requests carry much data, and
small enough that its copies fit beside the buffers. Copies are made to join, compress and add a
footer. A task grows by about 200 MiB at most, measured with records that do not compress.
"""
BUFFERED_BYTES_MAX = 48 << 20
"""Bounds a task's memory for any number of partitions. Beyond it the task stages the largest
buffer early, and beyond that it waits for an upload.
"""
UPLOAD_THREADS = 2


@dataclass(slots=True)
class _Buffer:
    """Rows that wait to be staged for one partition."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Upload:
    """An object under way."""

    place: TopicPartition
    size_bytes: int
    reference: Future[Reference]


class Staging:
    """Stages the records of one task; not thread-safe."""

    def __init__(
        self,
        open_partition: Callable[[TopicPartition], PartitionLog],
        *,
        roll_bytes: Callable[[str], int] = lambda topic: ROLL_BYTES,
        buffered_bytes_max: int = BUFFERED_BYTES_MAX,
    ) -> None:
        """Stage into the logs that `open_partition` returns; `roll_bytes` may differ by topic."""
        self._open = open_partition
        self._roll_bytes = roll_bytes
        self._buffered_max = buffered_bytes_max
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._buffers: dict[TopicPartition, _Buffer] = {}
        self._done: dict[TopicPartition, list[Reference]] = {}
        self._under_way: deque[_Upload] = deque()
        self._buffered_bytes = 0
        self._under_way_bytes = 0
        self._pool = ThreadPoolExecutor(UPLOAD_THREADS, "sparklog-stage")

    def add(self, place: TopicPartition, records: pa.RecordBatch) -> None:
        """Take records for one partition.

        Raises:
            RecordTooLarge, InvalidRequest, Unavailable, OutcomeUnknown: of this upload or of an
                earlier one; call `abandon`.
        """
        roll_bytes = self._roll_bytes(place.topic)
        row_bytes = max(1, records.nbytes // max(1, records.num_rows))
        at = 0
        while at < records.num_rows:
            buffer = self._buffers.setdefault(place, _Buffer())
            rows_left = max(1, (roll_bytes - buffer.size_bytes) // row_bytes)
            piece = records.slice(at, rows_left)
            at += piece.num_rows
            size_bytes = piece.nbytes
            buffer.batches.append(piece)
            buffer.size_bytes += size_bytes
            self._buffered_bytes += size_bytes
            if buffer.size_bytes + row_bytes > roll_bytes:
                self._roll(place)
        self._keep_within_bounds()

    def _keep_within_bounds(self) -> None:
        while self._buffered_bytes + self._under_way_bytes > self._buffered_max:
            if self._under_way and self._under_way_bytes >= self._buffered_bytes:
                self._wait_for_oldest()
            else:
                self._roll(max(self._buffers, key=lambda p: self._buffers[p].size_bytes))

    def finish(self) -> tuple[StagedPartition, ...]:
        """Stage what is left and return everything staged, partition by partition.

        Raises:
            As `add`.
        """
        for place in list(self._buffers):
            self._roll(place)
        while self._under_way:
            self._wait_for_oldest()
        self._pool.shutdown()
        return self._staged()

    def abandon(self) -> tuple[StagedPartition, ...]:
        """Stop, and return what has been staged so far, for deletion."""
        self._buffers.clear()
        while self._under_way:
            with suppress(Exception):  # the first error is what made the caller give up
                self._wait_for_oldest()
        self._pool.shutdown()
        return self._staged()

    def _roll(self, place: TopicPartition) -> None:
        buffer = self._buffers.pop(place)
        log = self._logs.get(place)
        if log is None:
            log = self._logs[place] = self._open(place)
        self._buffered_bytes -= buffer.size_bytes
        self._under_way_bytes += buffer.size_bytes
        reference = self._pool.submit(_upload, log, buffer.batches)
        self._under_way.append(_Upload(place, buffer.size_bytes, reference))

    def _wait_for_oldest(self) -> None:
        upload = self._under_way.popleft()
        self._under_way_bytes -= upload.size_bytes
        # Uploads of one partition are waited for in the order they were begun: that is STAGING-2.
        self._done.setdefault(upload.place, []).append(upload.reference.result())

    def _staged(self) -> tuple[StagedPartition, ...]:
        return tuple(
            StagedPartition(
                place.topic, self._logs[place].layout.topic_id, place.partition, tuple(found)
            )
            for place, found in sorted(self._done.items())
        )


def _upload(log: PartitionLog, batches: list[pa.RecordBatch]) -> Reference:
    reference = log.stage(batches)
    batches.clear()
    # Arrow's allocator keeps what one thread has freed; over a task that doubles its memory.
    pa.default_memory_pool().release_unused()
    return reference
