"""The leader's side of one partition, for one leader epoch: appends, acknowledgements, waiters.

A value of time: made when recovery has ended, retired when the metadata, the write-ahead log or the
partition's own log says that the epoch is over. A new epoch is a new object. Nothing here awaits,
so each method sees and leaves a consistent partition; whoever awaits in between asks `live` again.
Offsets: base inclusive, end exclusive.
  D1  only a live object appends, and only it acknowledges: the high watermark moves by what this
      object is told (its own WAL windows, fetches in its own epoch), never by another's
  D2  the tail is trimmed only below what the partition's own log on storage has, and only what is
      committed is brought there
  D3  a follower's fetch counts only in this leader epoch and from its registered incarnation
  D4  a retired object does nothing, for good: appends are refused, waiters were failed at once,
      what is still under way for it ends without effect on the tail
  A1  only what is live and not about to be handed over appends
  A2  a batch is appended once, however often its producer sends it
  A3  what is appended goes to the write-ahead log in the order of its offsets
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
    NotEnoughReplicasAfterAppend,
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
    """Where a producer's batch is."""

    base_offset: int
    end_offset: int
    append_time_ms: int
    """NO_TIMESTAMP_MS unless the topic's timestamps are LogAppendTime."""
    repeated: bool
    """Appended before, by a request that was sent twice."""


STRAYS_S: Final = 360.0
"""How long after its election a leader reckons with requests that wait at an earlier one: clients
hear of it within `metadata.max.age.ms` (5 min), and wait up to a minute for an answer."""


@dataclass(frozen=True, slots=True)
class LeaderServices:
    """What a broker does for the partitions that it leads."""

    wal: WalAppender
    committed: Callable[[LeaderPartition], None]
    """The high watermark advanced: there is more to flush."""
    change_isr: Callable[[LeaderPartition, ExpandIsr | ShrinkIsr], None]
    """Propose a change of the in-sync replicas to the controller."""
    broker_epoch: Callable[[int], int]
    """Return the epoch of a broker's newest registration; -1 when it is fenced or unknown."""


class LeaderPartition:
    """See the module. Not thread-safe: the event loop's only."""

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
        """Lead from the end of `view` on; the tail is empty and begins there."""
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
        self.looked_s = asyncio.get_running_loop().time()
        """When the partition's own log was looked at last, on the loop's clock."""
        self.flushed_s = -inf
        """When it was flushed last under this epoch, on the loop's clock."""
        self._began_s = self.looked_s
        self.history = history
        self.damage: PartitionDamaged | None = None
        """Why it was retired before its epoch ended, if that is why."""
        self.order = held.order
        self.flushing = asyncio.Lock()
        """Held while the partition's own log is written to."""
        self.shown_end = view.end_offset
        """How far followers are shown the tail."""
        self.produce_waits = OffsetWaits(where)
        """Requests with acks=all, which wait for the high watermark."""
        self.copy_waits = OffsetWaits(where)
        """Requests with acks=1, which wait for the first copy outside this process's memory."""
        self.appended_news = FetchWaits(where)
        self.committed_news = FetchWaits(where)
        self.follower_epochs: dict[int, int] = {}
        """Broker epoch of the incarnation whose fetches count, of each follower."""
        self._services = services

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
    ) -> AppendedBatch:
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
            return AppendedBatch(*known, NO_TIMESTAMP_MS, repeated=True)
        base_offset = self._append(batch, None)
        self.producers.record(batch.header, base_offset, now_ms)
        self._references.took(references, base_offset)
        return AppendedBatch(base_offset, self.tail.end_offset, NO_TIMESTAMP_MS, repeated=False)

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

    def may_have_strays(self, now_s: float) -> bool:
        """Say whether requests of producers may still wait at an earlier leader."""
        return self.leader_epoch > FIRST_LED_EPOCH and now_s - self._began_s < STRAYS_S

    def wait_committed(self, end_offset: int, request: DelayedProduce) -> None:
        """Make a request wait until `end_offset` is committed, if it is not yet."""
        try:
            if not self.leadership.is_committed(end_offset):
                self.produce_waits.add(end_offset, request)
        except NotEnoughReplicasAfterAppend as error:
            request.settle(self.where, error)

    def wait_copied(self, end_offset: int, request: DelayedProduce) -> None:
        """Make a request wait until the WAL or an in-sync follower holds all below `end_offset`."""
        if self.leadership.copied_end < end_offset:
            self.copy_waits.add(end_offset, request)

    async def wait_until_committed(self, end_offset: int, timeout_s: float) -> bool:
        """Wait until `end_offset` is committed; False if it is not in time.

        Raises:
            NotServing: led no more.
        """
        request = DelayedProduce()
        if self.live and self.high_watermark < end_offset:
            self.produce_waits.add(end_offset, request)
            await request.wait(timeout_s)
        if not self.live:
            raise NotServing(f"led by another broker by now. partition={self.where}")
        return self.high_watermark >= end_offset

    def wal_begun(self, end_offset: int) -> None:
        """Take in that the write-ahead log is being put up to `end_offset`: followers are shown it.

        They fetch while it is put, and once for all that is put together.
        """
        if self.live and end_offset > self.shown_end:
            self.shown_end = end_offset
            self.appended_news.tell()

    def wal_durable(self, end_offset: int) -> None:
        """Take in that the write-ahead log has everything below `end_offset`."""
        if self.live:
            self._obey(self.leadership.durable(end_offset))

    def follower_fetched(self, broker_id: int, broker_epoch: int, offset: int, now_ms: int) -> None:
        """Take in that a follower, whose epochs agree, has everything below `offset`.

        Only the registered incarnation of a broker counts: one before it, paused and woken, does
        not have what the new one is asked for, nor the other way round (KIP-903).
        """
        if not self.live or self._services.broker_epoch(broker_id) != broker_epoch:
            return
        if self.follower_epochs.get(broker_id) != broker_epoch:
            self.follower_epochs[broker_id] = broker_epoch
            self.leadership.forget(broker_id)
        self._obey(self.leadership.follower_fetched(broker_id, offset, now_ms))

    def follower_waits(self, broker_id: int, broker_epoch: int, offset: int, now_ms: int) -> bool:
        """Take in that a follower fetches where it did, having everything; False if it is not so.

        Whose epoch was found to be registered stays so until `brokers_changed`.
        """
        return (
            self.live
            and self.follower_epochs.get(broker_id) == broker_epoch
            and self.leadership.follower_waits(broker_id, offset, now_ms)
        )

    def brokers_changed(self) -> None:
        """Forget what incarnations had that are not the registered ones any more."""
        for broker_id, epoch in list(self.follower_epochs.items()):
            if self._services.broker_epoch(broker_id) != epoch:
                del self.follower_epochs[broker_id]
                self.leadership.forget(broker_id)
                self.appended_news.note()

    def tick(self, now_ms: int) -> None:
        """Look for followers that lag."""
        if self.live:
            self._obey(self.leadership.tick(now_ms))

    def obey(self, events: tuple[Event, ...]) -> None:
        """Do what the leadership says of changed metadata, if this is still the leader."""
        if self.live:
            self.appended_news.note()
            self._obey(events)

    def took_flush(self, view: PartitionView) -> None:
        """Take in that the partition's own log reaches the end of `view`."""
        if not self.live:
            return
        assert view.end_offset <= self.high_watermark, (view.end_offset, self.high_watermark)
        self.view = view
        self.looked_s = self.flushed_s = asyncio.get_running_loop().time()
        self.leadership.flushed(view.end_offset)
        self.held.trim(view.end_offset)
        self.appended_news.note()
        if self._references.flushed(view.end_offset):
            self.committed_news.tell()  # consumers are shown what it stands for only now

    def saw_view(self, view: PartitionView) -> None:
        """Take in a newer look at the partition's own log: its manifest may have changed."""
        same_end = view.end_offset == self.view.end_offset
        if self.live and same_end and view.manifest.version >= self.view.manifest.version:
            self.view = view
            self.looked_s = asyncio.get_running_loop().time()

    def retire(self, why: SparklogError) -> None:
        """End the epoch here: fail who waits, wake who fetches, and do nothing any more."""
        if not self.live:
            return
        self.live = False
        self.damage = why if isinstance(why, PartitionDamaged) else None
        self.produce_waits.fail(why)
        self.copy_waits.fail(why)
        self.appended_news.tell()
        self.committed_news.tell()

    def _append(self, batch: CheckedBatch, append_time_ms: int | None) -> int:
        """Append to the tail and the write-ahead log; return the base offset."""
        where, base_offset = self.where, self.tail.end_offset
        data = self.held.append_as_leader(batch, self.leader_epoch, append_time_ms)
        end_offset = self.tail.end_offset
        self.leadership.appended(end_offset)
        entry = WalBatch(where.topic_id, where.partition, base_offset, self.leader_epoch, data)
        self._services.wal.append(entry, end_offset, self, awaited=self.leadership.needs_wal)
        return base_offset

    def _obey(self, events: tuple[Event, ...]) -> None:
        for event in events:
            match event:
                case HighWatermark(offset):
                    self.produce_waits.reached(offset, self._late_error(offset))
                    self.committed_news.tell()
                    self.appended_news.note()
                    self._services.committed(self)
                case ExpandIsr() | ShrinkIsr():
                    self._services.change_isr(self, event)
        self.copy_waits.reached(self.leadership.copied_end)

    def _late_error(self, offset: int) -> SparklogError | None:
        try:
            self.leadership.is_committed(offset)
        except NotEnoughReplicasAfterAppend as error:
            return error
        return None
