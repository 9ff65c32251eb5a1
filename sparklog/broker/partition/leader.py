"""LeaderPartition: one partition in one leader epoch, with its appends, commits and waiters.

The object is made when recovery has ended. It is retired when the metadata, the write-ahead log or
the partition's own log shows that the epoch is over. A new epoch is a new object. Only
`wait_until_committed` awaits, so the other methods see and leave a consistent partition. A caller
that awaits between two calls checks `live` again. Offsets: base inclusive, end exclusive.
  LEADER-1: only a live object appends and acknowledges. Only its own WAL windows and the fetches
      in its own epoch move the high watermark
  LEADER-2: a flush writes only committed batches to the partition's own log. The tail is trimmed
      only below the end of that log on storage
  LEADER-3: a follower's fetch counts only in this leader epoch and from its registered incarnation
  LEADER-4: a retired object stays without effect. It rejects appends, and its waiters failed when
      it was retired. Operations that are still under way do not change the tail
  LEADER-5: only a partition that is live and not about to be handed over appends
  LEADER-6: a batch is appended once, even if its producer sends it several times
  LEADER-7: batches go to the write-ahead log in the order of their offsets
Source: DESIGN.md 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final, NamedTuple

from sparklog.broker.partition.config import TopicRules
from sparklog.broker.partition.purgatory import DelayedProduce, FetchWaits, OffsetWaits
from sparklog.broker.partition.tail import PartitionTail
from sparklog.broker.wal.appender import WalAppender
from sparklog.cluster.controller.leader_state import (
    Event,
    ExpandIsr,
    HighWatermark,
    LeaderState,
    ShrinkIsr,
)
from sparklog.core.errors import (
    NotServing,
    OutOfOrderSequence,
    PartitionDamaged,
    SparklogError,
)
from sparklog.core.types import FIRST_LED_EPOCH, NO_TIMESTAMP_MS, PartitionId, TimestampType
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.history_reader import HistoryReader
from sparklog.log.tail.batch_validator import CheckedBatch
from sparklog.log.tail.producer_state import UNVERIFIED, Duplicate, ProducerStates, Verification
from sparklog.log.tail.references import PendingReferences, ReferenceBatch
from sparklog.log.wal.objects import WalBatch
from sparklog.protocol.records.control import EndTransactionMarker
from sparklog.protocol.records.header import BatchHeader


class AppendedBatch(NamedTuple):
    """The offsets of a producer's batch."""

    base_offset: int
    end_offset: int
    append_time_ms: int
    """NO_TIMESTAMP_MS unless the topic's timestamps are LogAppendTime."""
    repeated: bool
    """True if an earlier request appended it: the producer sent the batch again."""


STRAGGLERS_EXPECTED_S: Final = 360.0
"""For this time after its election a leader expects that requests still wait at an earlier leader.
Clients learn of the new leader within `metadata.max.age.ms` (5 min), and wait up to a minute for a
response."""


@dataclass(frozen=True, slots=True)
class LeaderServices:
    """The broker's services for the partitions that it leads."""

    wal: WalAppender
    committed: Callable[[LeaderPartition], None]
    """Record that the high watermark advanced: there is more to flush."""
    change_isr: Callable[[LeaderPartition, ExpandIsr | ShrinkIsr], None]
    """Propose a change of the in-sync replicas to the controller."""
    broker_epoch: Callable[[int], int]
    """Return the epoch of a broker's newest registration; -1 when it is fenced or unknown."""


class LeaderPartition:
    """See the module. Not thread-safe: for the event loop only."""

    def __init__(
        self,
        where: PartitionId,
        layout: PartitionLayout,
        leader_epoch: int,
        *,
        held: PartitionTail,
        view: PartitionView,
        producers: ProducerStates,
        leadership: LeaderState,
        history: HistoryReader,
        rules: TopicRules,
        services: LeaderServices,
    ) -> None:
        """Lead from the end of `view` on; the tail must be empty and begin there."""
        assert held.tail.end_offset == view.end_offset, (held.tail.end_offset, view.end_offset)
        self.where = where
        """The topic's id and the partition's number."""
        self.layout = layout
        self.leader_epoch = leader_epoch
        self.held = held
        self.tail = held.tail
        """All batches that are not flushed, whether the WAL has them or not."""
        self.view = view
        """The newest view of the partition's own log; its end is the flushed end."""
        self.producers = producers
        self.leadership = leadership
        self.rules = rules
        self.live = True
        self.closing = False
        """True while the partition is about to be handed over; it then rejects new records."""
        # An earlier leader may hold records that come first; the first leader knows all records.
        has_forerunner = leader_epoch > FIRST_LED_EPOCH
        self._unwritten_end = view.end_offset if view.is_unwritten and has_forerunner else None
        self._taken_over_at = view.end_offset if view.end_offset and has_forerunner else None
        """The offset of the first batch after a take-over: its producer has waited long already."""
        self._references = PendingReferences()
        held.tail.start_epoch(leader_epoch)
        self.viewed_s = asyncio.get_running_loop().time()
        """Time of the newest view of the partition's own log, on the loop's clock."""
        self.flushed_s = -inf
        """Time of the last flush in this epoch, on the loop's clock; -inf before the first."""
        self._began_s = self.viewed_s
        self.history = history
        self.damage: PartitionDamaged | None = None
        """The damage because of which it was retired before its epoch ended, if any."""
        self.append_queue = held.append_queue
        self.flushing = asyncio.Lock()
        """Held by a task that writes to the partition's own log."""
        self.fetchable_end = view.end_offset
        """End of the part of the tail that followers may fetch."""
        self.produce_waits = OffsetWaits(where)
        """Requests with acks=all: they wait for the high watermark."""
        self.copy_waits = OffsetWaits(where)
        """Requests with acks=1: they wait for the first copy outside this process's memory."""
        self.follower_fetches = FetchWaits(where)
        self.consumer_fetches = FetchWaits(where)
        self.follower_epochs: dict[int, int] = {}
        """For each follower, the broker epoch of the incarnation whose fetches count."""
        self._services = services

    @property
    def flushed_end(self) -> int:
        """Return the end of the partition's own log that this leader knows."""
        return self.leadership.flushed_end

    @property
    def high_watermark(self) -> int:
        """Return the offset below which all records are committed."""
        return self.leadership.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Return the offset below which no transaction is open."""
        return self.producers.transactions.last_stable_offset(self.leadership.high_watermark)

    @property
    def has_references_to_flush(self) -> bool:
        """Return True if a committed reference batch waits: consumers read it only once flushed."""
        first = self.tail.first_reference
        return first is not None and first < self.leadership.high_watermark

    @property
    def log_start_offset(self) -> int:
        """Return the first offset that consumers may read."""
        return self.view.log_start_offset

    def check_open(self) -> None:
        """Raise unless the partition accepts appends.

        Raises:
            NotServing: the broker no longer leads it, or is about to hand it over; refresh
                metadata.
        """
        if not self.live or self.closing:
            raise NotServing(
                "another broker leads the partition, or will in a moment; refresh metadata. "
                f"partition={self.layout.topic}-{self.layout.partition} "
                f"leader_epoch={self.leader_epoch}"
            )

    def append(
        self,
        batch: CheckedBatch,
        now_ms: int,
        verification: Verification | None = UNVERIFIED,
    ) -> AppendedBatch:
        """Append a batch whose memory is reserved, unless it was appended before.

        Args:
            batch: a producer's batch.
            now_ms: the time.
            verification: whether its transaction has this partition; see `ProducerStates.check`.

        Raises:
            NotServing: see `check_open`.
            OutOfOrderSequence: the batch is not its producer's first, but nothing was ever written
                here. An earlier leader may hold the first batch.
            SparklogError: the producer's sequence, epoch or transaction is rejected.
        """
        self.check_open()
        assert not batch.header.is_reference, "use `append_references` for a reference batch"
        is_log_append = self.rules.batches.timestamp_type is TimestampType.LOG_APPEND_TIME
        known = self._check(batch.header, verification)
        if known is not None:
            shown_ms = known.append_time_ms if is_log_append else NO_TIMESTAMP_MS
            return AppendedBatch(known.base_offset, known.end_offset, shown_ms, repeated=True)
        base_offset = self._append(batch, now_ms if is_log_append else None)
        self.producers.record(batch.header, base_offset, now_ms)
        shown_ms = now_ms if is_log_append else NO_TIMESTAMP_MS
        return AppendedBatch(base_offset, self.tail.end_offset, shown_ms, repeated=False)

    def append_references(
        self,
        batch: CheckedBatch,
        references: ReferenceBatch,
        now_ms: int,
        verification: Verification | None = UNVERIFIED,
    ) -> AppendedBatch:
        """Append a reference batch whose memory is reserved, unless it was appended before.

        A reference batch of a transaction is recognized by its producer's sequence, not by its
        objects: an aborted transaction may have referred to the same objects.

        Raises:
            NotServing: see `check_open`.
            SparklogError: see `append`.
        """
        self.check_open()
        if batch.header.has_producer_id:
            taken = self._check(batch.header, verification)
            known = None if taken is None else (taken.base_offset, taken.end_offset)
        else:
            known = self._references.find(references, self.view)
        if known is not None:
            return AppendedBatch(*known, NO_TIMESTAMP_MS, repeated=True)
        base_offset = self._append(batch, None)
        self.producers.record(batch.header, base_offset, now_ms)
        self._references.took(references, base_offset)
        return AppendedBatch(base_offset, self.tail.end_offset, NO_TIMESTAMP_MS, repeated=False)

    def _check(self, header: BatchHeader, verification: Verification | None) -> Duplicate | None:
        if header.base_sequence > 0 and self.tail.end_offset == self._unwritten_end:
            raise OutOfOrderSequence(
                "the partition was never written to, so a producer must begin with sequence 0. "
                f"partition={self.where} producer_id={header.producer_id} "
                f"base_sequence={header.base_sequence}"
            )
        return self.producers.check(header, verification)

    def append_as_coordinator(self, batch: CheckedBatch, now_ms: int) -> int:
        """Append a coordinator's batch whose memory is reserved; return its end offset.

        The batch has no sequence numbers. With a producer id it is part of that producer's
        transaction.

        Raises:
            NotServing: see `check_open`.
            InvalidProducerEpoch: a newer producer has the id.
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
        """End a transaction with a marker whose memory is reserved; return the new end offset.

        Args:
            batch: the marker as `encode_end_transaction` gives it; its header names the producer.
            marker: the decoded marker: commit or abort, and the coordinator's epoch.
            now_ms: the time.
            ends_older: see `ProducerStates.check_marker`.

        Raises:
            NotServing: see `check_open`.
            InvalidProducerEpoch: a newer producer has the id.
            TransactionCoordinatorFenced: a newer coordinator has written a marker before.
        """
        self.check_open()
        who = batch.header.producer_id, batch.header.producer_epoch
        self.producers.check_marker(*who, marker.coordinator_epoch, ends_older=ends_older)
        offset = self._append(batch, None)
        self.producers.record_marker(*who, marker, offset, now_ms)
        return self.tail.end_offset

    def may_have_stragglers(self, now_s: float) -> bool:
        """Return True if requests of producers may still wait at an earlier leader."""
        return self.leader_epoch > FIRST_LED_EPOCH and now_s - self._began_s < STRAGGLERS_EXPECTED_S

    def wait_committed(self, end_offset: int, request: DelayedProduce) -> None:
        """Make a request wait until `end_offset` is committed, unless it is committed already."""
        if self.leadership.high_watermark < end_offset:
            self.produce_waits.add(end_offset, request)
            return
        error = self.leadership.late_error()
        if error is not None:
            request.settle(self.where, error)

    def wait_copied(self, end_offset: int, request: DelayedProduce) -> None:
        """Make a request wait until the WAL or an in-sync follower has all below `end_offset`."""
        if self.leadership.copied_end < end_offset:
            self.copy_waits.add(end_offset, request)

    async def wait_until_committed(self, end_offset: int, timeout_s: float) -> bool:
        """Wait until `end_offset` is committed; return False if `timeout_s` passes first.

        Raises:
            NotServing: this broker no longer leads the partition in this epoch.
        """
        request = DelayedProduce()
        if self.live and self.high_watermark < end_offset:
            self.produce_waits.add(end_offset, request)
            await request.wait(timeout_s)
        if not self.live:
            raise NotServing(f"another broker leads the partition now. partition={self.where}")
        return self.high_watermark >= end_offset

    def wal_begun(self, end_offset: int) -> None:
        """Handle the begin of a WAL put up to `end_offset`: show that part to followers.

        They fetch while the put runs, and need one fetch for all batches of the put.
        """
        if self.live and end_offset > self.fetchable_end:
            self.fetchable_end = end_offset
            self.follower_fetches.wake_all()

    def wal_durable(self, end_offset: int) -> None:
        """Handle a finished WAL put: the write-ahead log has all batches below `end_offset`."""
        if self.live:
            self._apply(self.leadership.durable(end_offset))

    def follower_fetched(self, broker_id: int, broker_epoch: int, offset: int, now_ms: int) -> None:
        """Handle a follower's fetch: it has all batches below `offset`, and its epochs agree.

        Only the registered incarnation of a broker counts (KIP-903). An older incarnation that was
        paused and continues has other records than the registered one.
        """
        if not self.live or self._services.broker_epoch(broker_id) != broker_epoch:
            return
        if self.follower_epochs.get(broker_id) != broker_epoch:
            self.follower_epochs[broker_id] = broker_epoch
            self.leadership.forget(broker_id)
        self._apply(self.leadership.follower_fetched(broker_id, offset, now_ms))

    def follower_waits(self, broker_id: int, broker_epoch: int, offset: int, now_ms: int) -> bool:
        """Handle a fetch of a follower that has all records and fetches at its previous offset.

        Return False if the follower is not in that state. A broker epoch that `follower_fetched`
        found registered counts as registered until `brokers_changed`.
        """
        return (
            self.live
            and self.follower_epochs.get(broker_id) == broker_epoch
            and self.leadership.follower_waits(broker_id, offset, now_ms)
        )

    def brokers_changed(self) -> None:
        """Forget the offsets of incarnations that are no longer the registered ones."""
        for broker_id, epoch in list(self.follower_epochs.items()):
            if self._services.broker_epoch(broker_id) != epoch:
                del self.follower_epochs[broker_id]
                self.leadership.forget(broker_id)
                self.follower_fetches.mark_changed()

    def tick(self, now_ms: int) -> None:
        """Check for followers that lag, and for changes of the ISR that follow from it."""
        if self.live:
            self._apply(self.leadership.tick(now_ms))

    def apply_events(self, events: tuple[Event, ...]) -> None:
        """Execute the events that `leadership` returned for changed metadata, while live."""
        if self.live:
            self.follower_fetches.mark_changed()
            self._apply(events)

    def apply_flush(self, view: PartitionView) -> None:
        """Handle a flush: the partition's own log reaches the end of `view`. Trim the tail."""
        if not self.live:
            return
        assert view.end_offset <= self.high_watermark, (view.end_offset, self.high_watermark)
        self.view = view
        self.viewed_s = self.flushed_s = asyncio.get_running_loop().time()
        self.leadership.flushed(view.end_offset)
        self.held.trim(view.end_offset)
        self.follower_fetches.mark_changed()
        if self._references.flushed(view.end_offset):
            self.consumer_fetches.wake_all()  # consumers can read the records now

    def update_view(self, view: PartitionView) -> None:
        """Adopt a newer view of the partition's own log: its manifest may have changed."""
        same_end = view.end_offset == self.view.end_offset
        if self.live and same_end and view.manifest.version >= self.view.manifest.version:
            self.view = view
            self.viewed_s = asyncio.get_running_loop().time()

    def retire(self, why: SparklogError) -> None:
        """End the epoch: fail waiting produce requests, wake fetches, and change nothing after."""
        if not self.live:
            return
        self.live = False
        self.damage = why if isinstance(why, PartitionDamaged) else None
        self.produce_waits.fail(why)
        self.copy_waits.fail(why)
        self.follower_fetches.wake_all()
        self.consumer_fetches.wake_all()

    def _append(self, batch: CheckedBatch, append_time_ms: int | None) -> int:
        """Append to the tail and the write-ahead log; return the base offset."""
        where, base_offset = self.where, self.tail.end_offset
        data = self.tail.append_as_leader(batch, self.leader_epoch, append_time_ms)
        end_offset = self.tail.end_offset
        self.leadership.appended(end_offset)
        entry = WalBatch(where.topic_id, where.partition, base_offset, self.leader_epoch, data)
        awaited, urgent = self.leadership.needs_wal, base_offset == self._taken_over_at
        self._services.wal.append(entry, end_offset, self, awaited=awaited, urgent=urgent)
        return base_offset

    def _apply(self, events: tuple[Event, ...]) -> None:
        for event in events:
            match event:
                case HighWatermark(offset):
                    self.produce_waits.reached(offset, self.leadership.late_error())
                    self.consumer_fetches.wake_all()
                    self.follower_fetches.mark_changed()
                    self._services.committed(self)
                case ExpandIsr() | ShrinkIsr():
                    self._services.change_isr(self, event)
        self.copy_waits.reached(self.leadership.copied_end)
