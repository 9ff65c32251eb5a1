"""One partition under one leader epoch of this broker: what it holds, and who waits for it.

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
Source: DESIGN.md 4.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Final, Protocol

from sparklog.broker.held_tail import HeldTail
from sparklog.broker.led_log import LedLog
from sparklog.broker.purgatory import DelayedProduce, FetchWaits, OffsetWaits
from sparklog.broker.topic_rules import TopicRules
from sparklog.cluster.leadership import Event, ExpandIsr, HighWatermark, Leadership, ShrinkIsr
from sparklog.core.errors import (
    NotEnoughReplicasAfterAppend,
    NotServing,
    PartitionDamaged,
    SparklogError,
)
from sparklog.core.types import (
    FIRST_LED_EPOCH,
    PartitionId,
)
from sparklog.log.history import HistoryReader
from sparklog.log.layout import PartitionLayout
from sparklog.log.producer_state import ProducerStates
from sparklog.log.view import PartitionView
from sparklog.log.wal_object import WalBatch

STRAYS_S: Final = 360.0
"""How long after its election a leader reckons with requests that wait at an earlier one: clients
hear of it within `metadata.max.age.ms` (5 min), and wait up to a minute for an answer."""


class LeadershipListener(Protocol):
    """Who does what a led partition asks for."""

    def to_wal(self, batch: WalBatch, end_offset: int, led: LedPartition) -> None:
        """Put a batch into the write-ahead log."""
        ...

    def committed(self, led: LedPartition) -> None:
        """Take in that there is more to flush."""
        ...

    def change_isr(self, led: LedPartition, change: ExpandIsr | ShrinkIsr) -> None:
        """Propose a change of the in-sync replicas."""
        ...

    def broker_epoch(self, broker_id: int) -> int:
        """Return the epoch of a broker's newest registration; -1 when it is fenced or unknown."""
        ...


class LedPartition(LedLog):
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
        history: HistoryReader,
        rules: TopicRules,
        listener: LeadershipListener,
    ) -> None:
        """Lead from the end of `view` on; the tail is empty and begins there."""
        super().__init__(
            where,
            layout,
            leader_epoch,
            held=held,
            view=view,
            producers=producers,
            leadership=leadership,
            rules=rules,
        )
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
        self._listener = listener

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
        if not self.live or self._listener.broker_epoch(broker_id) != broker_epoch:
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
            if self._listener.broker_epoch(broker_id) != epoch:
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

    def _to_wal(self, batch: WalBatch, end_offset: int) -> None:
        """See `LedLog`."""
        self._listener.to_wal(batch, end_offset, self)

    def _obey(self, events: tuple[Event, ...]) -> None:
        for event in events:
            match event:
                case HighWatermark(offset):
                    self.produce_waits.reached(offset, self._late_error(offset))
                    self.committed_news.tell()
                    self.appended_news.note()
                    self._listener.committed(self)
                case ExpandIsr() | ShrinkIsr():
                    self._listener.change_isr(self, event)
        self.copy_waits.reached(self.leadership.copied_end)

    def _late_error(self, offset: int) -> SparklogError | None:
        try:
            self.leadership.is_committed(offset)
        except NotEnoughReplicasAfterAppend as error:
            return error
        return None
