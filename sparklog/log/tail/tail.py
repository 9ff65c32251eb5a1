"""The tail of one partition: the newest records, in memory, as the wire batches they came in.

The tail covers [start offset, end offset), dense. Below it lies the partition's own log on storage
(L1). A leader stamps and appends producers' batches; a follower appends those of its leader. No
operation reads a record: `timestamp_lookup` does. The tail does not know which records are
committed, durable or flushed. It is not thread-safe; its results are immutable and may go to any
thread.

TAIL-1: Batches are whole and contiguous: a cut or a limit inside a batch excludes it.
TAIL-2: Leader epochs never fall from one batch to the next.
TAIL-3: The start moves only up; the end moves down only by `truncate` and `reset`.

Offsets: base inclusive, end exclusive. Timestamps are milliseconds, sizes bytes.
Source: DESIGN.md 4; KIP-101 and KIP-279 for epochs.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from typing import Final, NamedTuple

from sparklog.core.errors import DataCorrupt, OffsetOutOfRange
from sparklog.log.tail.batch_validator import CheckedBatch
from sparklog.protocol.records.header import (
    HEADER_BYTES,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    seal_header,
)

NO_LEADER_EPOCH: Final = -1
"""No epoch is known: the log is empty, or began before this replica did."""
NO_OFFSET: Final = -1

_PLACE: Final = struct.Struct(">qii")
"""Base offset, length, leader epoch: fields that a leader writes, outside the checksum."""


class EpochEnd(NamedTuple):
    """The end of a leader epoch, or of the newest known one before it."""

    leader_epoch: int
    end_offset: int


class Tail:
    """The newest batches of one partition; see the module."""

    __slots__ = (
        "_batches",
        "_bytes_before",
        "_ends",
        "_epochs",
        "_max_timestamps",
        "_references",
        "_start",
    )

    def __init__(self, start_offset: int) -> None:
        """Begin empty at the offset where the log on storage ends."""
        self._start = start_offset
        self._batches: list[bytes] = []
        self._ends = array("q")
        """End offset of each batch."""
        self._bytes_before = array("q", [0])
        """Bytes before each batch, and before the next one; counted from any origin."""
        self._max_timestamps = array("q")
        self._epochs: list[tuple[int, int]] = []
        """(leader epoch, its first offset), rising in both. The first may begin below the tail."""
        self._references: deque[int] = deque()
        """Base offsets of the reference batches, rising."""

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self._batches)

    @property
    def start_offset(self) -> int:
        """Return the base offset of the first batch; that of the next one if the tail is empty."""
        return self._start

    @property
    def end_offset(self) -> int:
        """Return the log end offset: that of the next record."""
        return self._ends[-1] if self._ends else self._start

    @property
    def size_bytes(self) -> int:
        """Return the bytes of all batches."""
        return self._bytes_before[-1] - self._bytes_before[0]

    @property
    def latest_epoch(self) -> int:
        """Return the newest leader epoch known here, or NO_LEADER_EPOCH."""
        return self._epochs[-1][0] if self._epochs else NO_LEADER_EPOCH

    @property
    def first_reference(self) -> int | None:
        """Return the base offset of the first reference batch, if there is one.

        Readers get its records from the log on storage, after the flush.
        """
        return self._references[0] if self._references else None

    def start_epoch(self, leader_epoch: int) -> None:
        """Record that a new leader epoch begins at the end of the log, with or without records.

        A leader calls it before it serves requests. A follower with more records of an older epoch
        then learns the end of that epoch.
        """
        assert leader_epoch >= self.latest_epoch, (leader_epoch, self.latest_epoch)
        self._note_epoch(leader_epoch, self.end_offset)

    def append_as_leader(
        self, batch: CheckedBatch, leader_epoch: int, append_time_ms: int | None = None
    ) -> bytes:
        """Append a producer's batch at the end of the log; return it as the tail keeps it.

        It copies the bytes once, and ignores `batch.header.base_offset`.

        Args:
            batch: from `check_batch`, or a marker of a coordinator.
            leader_epoch: the leader's own; not below the latest.
            append_time_ms: now, if `message.timestamp.type` is LogAppendTime.
        """
        assert leader_epoch >= self.latest_epoch, (leader_epoch, self.latest_epoch)
        header, source = batch
        base = self.end_offset
        if append_time_ms is None:
            head = _PLACE.pack(base, header.length, leader_epoch)
            max_timestamp_ms = header.max_timestamp
        else:
            max_timestamp_ms = append_time_ms
            head = _restamped(header, source, base, leader_epoch, append_time_ms)
        data = b"".join((head, memoryview(source)[len(head) :]))
        self._push(data, base, base + header.last_offset_delta + 1, leader_epoch, max_timestamp_ms)
        if header.is_reference:
            self._references.append(base)
        return data

    def append(self, batch: CheckedBatch) -> None:
        """Append a batch that has its offset and epoch: a follower's, or a recovered one.

        The bytes are copied unless they are `bytes` already.

        Raises:
            DataCorrupt: it does not begin at the end of the log, or its epoch is older than the
                latest. Nothing was appended. Fetch again from the end of the log.
        """
        header, source = batch
        if header.base_offset != self.end_offset or header.leader_epoch < self.latest_epoch:
            raise DataCorrupt(
                "record batch does not continue the log; fetch again from its end. "
                f"base_offset={header.base_offset} leader_epoch={header.leader_epoch} "
                f"log_end_offset={self.end_offset} latest_epoch={self.latest_epoch}"
            )
        self._push(
            bytes(source),
            header.base_offset,
            header.end_offset,
            header.leader_epoch,
            header.max_timestamp,
        )
        if header.is_reference:
            self._references.append(header.base_offset)

    def read(
        self, offset: int, max_bytes: int, limit_offset: int, *, at_least_one: bool = True
    ) -> list[bytes]:
        """Return the batches from the one that holds `offset` on; nothing is copied.

        Args:
            `offset`: the reader's position; not below the start of the tail.
            `max_bytes`: bound on the sum of the batches.
            `limit_offset`: the result excludes batches that end above it. It is the high watermark,
                the last stable offset, or for followers the end of the log.
            `at_least_one`: return the first batch even if it exceeds `max_bytes`, so that a reader
                makes progress.

        Raises:
            OffsetOutOfRange: beyond the end of the log.
        """
        assert offset >= self._start, (offset, self._start)
        if offset > self.end_offset:
            raise OffsetOutOfRange(
                "offset is beyond the end of the log; apply the reset policy. "
                f"offset={offset} log_end_offset={self.end_offset}"
            )
        first = bisect_right(self._ends, offset)
        last = self._batches_below(limit_offset)
        if first >= last:
            return []
        bytes_before = self._bytes_before
        fitting = bisect_right(bytes_before, bytes_before[first] + max_bytes) - 1
        last = min(last, max(fitting, first + 1 if at_least_one else first))
        return self._batches[first:last]

    def batches(self, base_offset: int, end_offset: int) -> list[bytes]:
        """Return the batches that lie wholly in [base offset, end offset); nothing is copied."""
        first = bisect_left(self._ends, base_offset + 1)
        if first < len(self._ends) and self._base_of(first) < base_offset:
            first += 1
        return self._batches[first : self._batches_below(end_offset)]

    def trim(self, to_offset: int) -> None:
        """Drop the batches that end at or below `to_offset`: the log on storage has them."""
        assert to_offset <= self.end_offset, (to_offset, self.end_offset)
        gone = self._batches_below(to_offset)
        if not gone:
            return
        self._start = self._ends[gone - 1]
        del self._batches[:gone], self._ends[:gone]
        del self._bytes_before[:gone], self._max_timestamps[:gone]
        while self._references and self._references[0] < self._start:
            self._references.popleft()
        known = bisect_left(self._epochs, self._start, key=_start_of_epoch)
        del self._epochs[: max(0, known - 1)]

    def truncate(self, to_offset: int) -> None:
        """Drop every record at or above `to_offset`: the leader's log has others there.

        It drops a batch across that offset whole, so the log may end below `to_offset`.
        """
        assert to_offset >= self._start, (to_offset, self._start)
        kept = self._batches_below(to_offset)
        del self._batches[kept:], self._ends[kept:]
        del self._bytes_before[kept + 1 :], self._max_timestamps[kept:]
        while self._epochs and self._epochs[-1][1] >= self.end_offset:
            del self._epochs[-1]
        while self._references and self._references[-1] >= self.end_offset:
            self._references.pop()

    def reset(self, start_offset: int) -> None:
        """Drop everything and begin anew at an offset below which storage has all records."""
        self._start = start_offset
        del self._batches[:], self._ends[:], self._epochs[:]
        del self._bytes_before[1:], self._max_timestamps[:]
        self._references.clear()

    def end_of_epoch(self, leader_epoch: int) -> EpochEnd:
        """Return the end of `leader_epoch`, as Kafka's leader reports it to a follower.

        For the latest epoch it is the end of the log, for others the start of the next known one.
        For an epoch between two known ones, the result is about the one before it. Below all known
        ones the result is exact only from the start of the tail on; below that no logs differ. An
        epoch that is newer than all gets (NO_LEADER_EPOCH, NO_OFFSET).
        """
        at = bisect_right(self._epochs, leader_epoch, key=_epoch_itself)
        if at == len(self._epochs):
            if at and self._epochs[-1][0] == leader_epoch:
                return EpochEnd(leader_epoch, self.end_offset)
            return EpochEnd(NO_LEADER_EPOCH, NO_OFFSET)
        floor = self._epochs[at - 1][0] if at else leader_epoch
        return EpochEnd(floor, self._epochs[at][1])

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the record at `offset`, NO_LEADER_EPOCH if unknown."""
        at = bisect_right(self._epochs, offset, key=_start_of_epoch)
        return self._epochs[at - 1][0] if at else NO_LEADER_EPOCH

    def batches_since(self, timestamp_ms: int, limit_offset: int) -> list[bytes]:
        """Return the batches below `limit_offset` whose header promises a record so new, in order.

        A record at or after `timestamp_ms` is in one of them; see `timestamp_lookup`.
        """
        newest = self._max_timestamps[: self._batches_below(limit_offset)]
        return [self._batches[at] for at, ms in enumerate(newest) if ms >= timestamp_ms]

    def newest_batches(self, limit_offset: int) -> list[tuple[int, bytes]]:
        """Return batches below `limit_offset` with their header's max timestamp, newest first.

        Of those with one timestamp, the first in the log comes first.
        """
        newest = self._max_timestamps[: self._batches_below(limit_offset)]
        order = sorted(range(len(newest)), key=newest.__getitem__, reverse=True)
        return [(newest[at], self._batches[at]) for at in order]

    def _push(
        self, data: bytes, base: int, end: int, leader_epoch: int, max_timestamp_ms: int
    ) -> None:
        if leader_epoch != self.latest_epoch:
            self._note_epoch(leader_epoch, base)
        self._batches.append(data)
        self._ends.append(end)
        self._bytes_before.append(self._bytes_before[-1] + len(data))
        self._max_timestamps.append(max_timestamp_ms)

    def _note_epoch(self, leader_epoch: int, first_offset: int) -> None:
        if leader_epoch == self.latest_epoch:
            return
        while self._epochs and self._epochs[-1][1] >= first_offset:
            del self._epochs[-1]  # it had no record
        self._epochs.append((leader_epoch, first_offset))

    def _batches_below(self, offset: int) -> int:
        """Return the number of batches that end at or below `offset`."""
        return bisect_right(self._ends, offset)

    def _base_of(self, index: int) -> int:
        return self._ends[index - 1] if index else self._start


def _start_of_epoch(entry: tuple[int, int]) -> int:
    return entry[1]


def _epoch_itself(entry: tuple[int, int]) -> int:
    return entry[0]


def _restamped(
    header: BatchHeader,
    source: bytes | bytearray | memoryview,
    base_offset: int,
    leader_epoch: int,
    append_time_ms: int,
) -> bytes:
    """Return the header with LogAppendTime, which the checksum covers."""
    stamped = header._replace(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        attributes=header.attributes | TIMESTAMP_TYPE_BIT,
        max_timestamp=append_time_ms,
    )
    return seal_header(stamped, memoryview(source)[HEADER_BYTES:])
