"""What a partition holds under one leader epoch of this broker, and how it grows.

`LedPartition` is one of these, with who waits for it. Nothing here awaits.
Offsets: base inclusive, end exclusive.
  A1  only what is live and not about to be handed over appends
  A2  a batch is appended once, however often its producer sends it
  A3  what is appended goes to the write-ahead log in the order of its offsets
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from sparklog.broker.held_tail import HeldTail
from sparklog.broker.topic_rules import TopicRules
from sparklog.cluster.leadership import Leadership
from sparklog.core.errors import NotServing, OutOfOrderSequence
from sparklog.core.types import (
    FIRST_LED_EPOCH,
    NO_TIMESTAMP_MS,
    PartitionId,
    TimestampType,
)
from sparklog.log.batch_check import CheckedBatch
from sparklog.log.layout import PartitionLayout
from sparklog.log.producer_state import UNVERIFIED, Duplicate, ProducerStates, Verification
from sparklog.log.reference_batch import ReferenceBatch
from sparklog.log.taken_references import PendingReferences
from sparklog.log.view import PartitionView
from sparklog.log.wal_object import WalBatch
from sparklog.protocol.batch_header import BatchHeader
from sparklog.protocol.control import EndTransactionMarker


class Appended(NamedTuple):
    """Where a producer's batch is."""

    base_offset: int
    end_offset: int
    append_time_ms: int
    """NO_TIMESTAMP_MS unless the topic's timestamps are LogAppendTime."""
    repeated: bool
    """Appended before, by a request that was sent twice."""


class LedLog(ABC):
    """See the module. Not thread-safe: the event loop's only."""

    def __init__(
        self,
        where: PartitionId,
        layout: PartitionLayout,
        leader_epoch: int,
        *,
        held: HeldTail,
        view: PartitionView,
        producers: ProducerStates,
        leadership: Leadership,
        rules: TopicRules,
    ) -> None:
        """Grow from the end of `view` on; the tail is empty and begins there."""
        assert held.tail.end_offset == view.end_offset, (held.tail.end_offset, view.end_offset)
        self.where = where
        self.layout = layout
        self.leader_epoch = leader_epoch
        self.held = held
        self.tail = held.tail
        self.view = view
        """Of the partition's own log; its end is the flushed end."""
        self.producers = producers
        self.leadership = leadership
        self.rules = rules
        self.live = True
        self.closing = False
        """Refuses new records, as it is about to be handed over."""
        # Records that an earlier leader may have come first; the first leader knows of all.
        has_forerunner = leader_epoch > FIRST_LED_EPOCH
        self._unwritten_end = view.end_offset if view.is_unwritten and has_forerunner else None
        self._references = PendingReferences()
        held.tail.start_epoch(leader_epoch)

    @property
    def partition(self) -> PartitionId:
        """Return which partition it is."""
        return self.where

    @property
    def flushed_end(self) -> int:
        """Return how far the partition's own log reaches, as far as this leader knows."""
        return self.leadership.flushed_end

    @property
    def high_watermark(self) -> int:
        """Return the offset below which everything is committed."""
        return self.leadership.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Return the offset below which no transaction is open."""
        return self.producers.transactions.last_stable_offset(self.leadership.high_watermark)

    @property
    def has_references_to_flush(self) -> bool:
        """Say whether a reference batch is committed, which nobody can read before its flush."""
        first = self.tail.first_reference
        return first is not None and first < self.leadership.high_watermark

    @property
    def log_start_offset(self) -> int:
        """Return the first offset that may be read."""
        return self.view.log_start_offset

    @property
    def unflushed_bytes(self) -> int:
        """Return how many bytes of batches are in memory only, or there and in the WAL."""
        return self.tail.size_bytes

    def check_open(self) -> None:
        """Refuse what comes too late.

        Raises:
            NotServing: led no more, or about to be handed over; refresh metadata.
        """
        if not self.live or self.closing:
            raise NotServing(
                "the partition is led by another broker, or will be in a moment; refresh metadata. "
                f"partition={self.layout.topic}-{self.layout.partition} "
                f"leader_epoch={self.leader_epoch}"
            )

    def append(
        self,
        batch: CheckedBatch,
        now_ms: int,
        verification: Verification | None = UNVERIFIED,
    ) -> Appended:
        """Append a batch for which room was taken, unless it is there already.

        Args:
            batch: a producer's.
            now_ms: the time.
            verification: whether its transaction has this partition; see `ProducerStates.check`.

        Raises:
            NotServing: see `check_open`.
            OutOfOrderSequence: not its producer's first batch, and an earlier leader may have that:
                nothing was ever written here.
            SparklogError: the producer's sequence or epoch is refused.
        """
        self.check_open()
        assert not batch.header.is_reference, "such are appended by `append_references`"
        is_log_append = self.rules.batches.timestamp_type is TimestampType.LOG_APPEND_TIME
        known = self._check(batch.header, verification)
        if known is not None:
            told_ms = known.append_time_ms if is_log_append else NO_TIMESTAMP_MS
            return Appended(known.base_offset, known.end_offset, told_ms, repeated=True)
        base_offset = self._append(batch, now_ms if is_log_append else None)
        self.producers.record(batch.header, base_offset, now_ms)
        told_ms = now_ms if is_log_append else NO_TIMESTAMP_MS
        return Appended(base_offset, self.tail.end_offset, told_ms, repeated=False)

    def append_references(
        self,
        batch: CheckedBatch,
        references: ReferenceBatch,
        now_ms: int,
        verification: Verification | None = UNVERIFIED,
    ) -> Appended:
        """Append a reference batch for which room was taken, unless it is there already.

        One of a transaction is known by its producer's sequence: the same objects may have been
        referred to by a transaction that was aborted.

        Raises:
            NotServing: see `check_open`.
            SparklogError: as `append`.
        """
        self.check_open()
        if batch.header.has_producer_id:
            taken = self._check(batch.header, verification)
            known = None if taken is None else (taken.base_offset, taken.end_offset)
        else:
            known = self._references.find(references, self.view)
        if known is not None:
            return Appended(*known, NO_TIMESTAMP_MS, repeated=True)
        base_offset = self._append(batch, None)
        self.producers.record(batch.header, base_offset, now_ms)
        self._references.took(references, base_offset)
        return Appended(base_offset, self.tail.end_offset, NO_TIMESTAMP_MS, repeated=False)

    def _check(self, header: BatchHeader, verification: Verification | None) -> Duplicate | None:
        if header.base_sequence > 0 and self.tail.end_offset == self._unwritten_end:
            raise OutOfOrderSequence(
                "nothing was ever written here, so a producer begins with sequence 0. "
                f"partition={self.where} producer_id={header.producer_id} "
                f"base_sequence={header.base_sequence}"
            )
        return self.producers.check(header, verification)

    def append_as_coordinator(self, batch: CheckedBatch, now_ms: int) -> int:
        """Append a batch of this broker's own, for which room was taken; return its end offset.

        It has no sequence numbers; with a producer id it is part of that producer's transaction.

        Raises:
            NotServing: see `check_open`. InvalidProducerEpoch: a newer producer has the id.
        """
        self.check_open()
        header = batch.header
        self.producers.check_epoch(header.producer_id, header.producer_epoch)
        base_offset = self._append(batch, None)
        self.producers.record(header, base_offset, now_ms)
        return self.tail.end_offset

    def append_marker(
        self,
        batch: CheckedBatch,
        marker: EndTransactionMarker,
        now_ms: int,
        *,
        ends_older: bool,
    ) -> int:
        """End a transaction with a marker for which room was taken; return its end offset.

        Args:
            batch: the marker as `encode_end_transaction` gives it; its header says whose it is.
            marker: what it says.
            now_ms: the time.
            ends_older: see `ProducerStates.check_marker`.

        Raises:
            NotServing: see `check_open`.
            InvalidProducerEpoch: a newer producer has the id.
            TransactionCoordinatorFenced: a newer coordinator has written here before.
        """
        self.check_open()
        who = batch.header.producer_id, batch.header.producer_epoch
        self.producers.check_marker(*who, marker.coordinator_epoch, ends_older=ends_older)
        offset = self._append(batch, None)
        self.producers.record_marker(*who, marker, offset, now_ms)
        return self.tail.end_offset

    @abstractmethod
    def _to_wal(self, batch: WalBatch, end_offset: int) -> None:
        """Put a batch into the write-ahead log."""

    def _append(self, batch: CheckedBatch, append_time_ms: int | None) -> int:
        """Append to the tail and the write-ahead log; return the base offset."""
        where, base_offset = self.where, self.tail.end_offset
        data = self.held.append_as_leader(batch, self.leader_epoch, append_time_ms)
        end_offset = self.tail.end_offset
        self.leadership.appended(end_offset)
        self._to_wal(
            WalBatch(where.topic_id, where.partition, base_offset, self.leader_epoch, data),
            end_offset,
        )
        return base_offset
