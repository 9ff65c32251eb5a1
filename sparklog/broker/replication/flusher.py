"""Flusher: writes committed records to Arrow segments, then releases the memory and the WAL.

A flush is due `flush.ms` after the first commit of an unflushed record. It is due at once when the
partition holds `flush.bytes`, the broker's memory is nearly full, or a reference batch is
committed. The first flush after a rest of `flush.ms` is due sooner, by a random part of that time.
Producers often begin to write to all partitions of a topic together. Without the random part those
flushes would coincide each time, and delay all producers. Segments are encoded off the event loop.
An idle partition has no timer and makes no request.
  FLUSHER-1: only committed records are flushed: [flushed end, high watermark)
  FLUSHER-2: a partition has one flush at a time; the next one begins where the log on storage then
      ends
  FLUSHER-3: tail and WAL are released only after the store has confirmed that the partition's own
      log has the records
  FLUSHER-4: a leader is retired if it finds a later leader in the log, or more records than it
      committed
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from sparklog.broker.partition.config import TopicRules
from sparklog.broker.partition.leader import LeaderPartition
from sparklog.broker.partition.recovering import damaged
from sparklog.broker.runtime.deadline_timer import DeadlineTimer
from sparklog.broker.runtime.environment import Environment, TaskScope
from sparklog.broker.runtime.memory_budget import MemoryBudget
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.broker.wal.appender import WalAppender
from sparklog.core.backoff import Backoff
from sparklog.core.entropy import new_nonce
from sparklog.core.errors import (
    DataCorrupt,
    Fenced,
    NotServing,
    OutcomeUnknown,
    SparklogError,
    Unavailable,
)
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.change import absorb_tail, change
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.leader_append import flush_at
from sparklog.log.tail.producer_rebuild import Document, snapshot
from sparklog.log.tail.producer_snapshot import save_producers
from sparklog.log.tail.to_segment import FlushBuilder, build_flush
from sparklog.protocol.records.decoder import RUN_BYTES
from sparklog.protocol.records.unfolded_size import unfolded_bytes_max

logger = logging.getLogger(__name__)

FLUSHES_AT_ONCE = 16
"""Flushes at once, each counted by its weight; small ones mostly wait for the store."""
FIRST_PART = 0.5
"""Smallest part of `flush.ms` after which the first flush after a rest is due."""
LARGE_BYTES = 8 << 20
LARGE_WEIGHT = 4
"""A flush of `LARGE_BYTES` or more counts as this many: it holds its segment in memory besides the
tail, and occupies a processor."""
TAIL_SEGMENTS_MAX = 32
"""A manifest absorbs a chain of this length. Source: FORMAT.md 6."""
RETRY_FIRST_S = 0.1
RETRY_LONGEST_S = 5.0


@dataclass(slots=True)
class _FlushPlan:
    """The next flush of a partition, or the one that runs."""

    led: LeaderPartition
    due: float
    """Time at which the flush is due; while it runs, time at which its last segment was stored."""
    weight: int = 0
    """Its part of `FLUSHES_AT_ONCE` while it runs; 0 before."""


class Flusher:
    """Flushes all led partitions of a broker."""

    def __init__(
        self,
        environment: Environment,
        tasks: TaskScope,
        *,
        wal: WalAppender,
        budget: MemoryBudget,
        metrics: BrokerMetrics,
    ) -> None:
        """Flush through `environment`; report to `wal` which batches it may trim."""
        self._environment = environment
        self._tasks = tasks
        self._wal = wal
        self._budget = budget
        self._metrics = metrics
        self._plans: dict[LeaderPartition, _FlushPlan] = {}
        self._snapshots: dict[LeaderPartition, tuple[int, Document]] = {}
        """Producers' states at an offset, to store once all records below it are flushed."""
        self._heap: list[tuple[float, int, _FlushPlan]] = []
        self._order = count()
        self._running = 0
        self._timer = DeadlineTimer(self._start_due)

    def committed(self, led: LeaderPartition) -> None:
        """Record that a partition's high watermark advanced. Cheap: called for every batch."""
        plan = self._plans.get(led)
        now = asyncio.get_running_loop().time()
        if plan is None:
            plan = _FlushPlan(led, self._due_s(led, now))
            self._plans[led] = plan
            self._push(plan)
        if plan.weight:
            return
        if led.tail.size_bytes >= led.rules.flush_bytes or led.has_references_to_flush:
            self._make_due(plan, now)
        elif self._budget.is_nearly_full and not self._running:
            self._flush_largest()

    def forget(self, led: LeaderPartition) -> None:
        """Drop a partition that this broker no longer leads."""
        self._plans.pop(led, None)
        self._snapshots.pop(led, None)

    async def flush_to(self, led: LeaderPartition, offset: int) -> None:
        """Flush until the partition's own log has all below `offset`, which must be committed.

        Raises:
            NotServing: this broker no longer leads the partition.
            Unavailable, OutcomeUnknown: the store does not respond; try again.
        """
        while led.flushed_end < offset:
            # The offset may lie inside a batch; the high watermark never does.
            await self._flush_once(led, max(offset, led.high_watermark))
            if not led.live:
                raise NotServing(f"another broker leads the partition now. partition={led.where}")

    @property
    def overdue_s(self) -> float:
        """Return the longest time that a due partition has had no segment stored.

        The time counts from when its flush was due, or from the last segment of a running flush.
        """
        now_s = asyncio.get_running_loop().time()
        return max(0.0, max((now_s - plan.due for plan in self._plans.values()), default=0.0))

    def _due_s(self, led: LeaderPartition, now: float) -> float:
        """Return the time at which a partition with a first commit is due."""
        flush_s = led.rules.flush_s
        if now - led.flushed_s >= flush_s:
            flush_s *= FIRST_PART + (1 - FIRST_PART) * self._environment.entropy.random()
        return now + flush_s

    def _push(self, plan: _FlushPlan) -> None:
        heappush(self._heap, (plan.due, next(self._order), plan))
        self._set_timer()

    def _make_due(self, plan: _FlushPlan, now: float) -> None:
        if plan.due > now:
            plan.due = now
            self._push(plan)

    def _flush_largest(self) -> None:
        """Flush the partition with the most unflushed bytes, as memory is nearly full."""
        waiting = [plan for plan in self._plans.values() if not plan.weight]
        if waiting:
            largest = max(waiting, key=lambda plan: plan.led.tail.size_bytes)
            self._make_due(largest, asyncio.get_running_loop().time())

    def _set_timer(self) -> None:
        if self._heap and self._running < FLUSHES_AT_ONCE and not self._tasks.closed:
            self._timer.set(self._heap[0][0])
        else:
            self._timer.cancel()

    def _start_due(self, due_by_s: float) -> None:
        while self._heap and self._heap[0][0] <= due_by_s and self._running < FLUSHES_AT_ONCE:
            _, _, plan = heappop(self._heap)
            if plan.weight or self._plans.get(plan.led) is not plan:
                continue
            plan.weight = LARGE_WEIGHT if plan.led.tail.size_bytes >= LARGE_BYTES else 1
            self._running += plan.weight
            self._tasks.start(self._carry_out(plan), f"flush {plan.led.where}")
        self._set_timer()

    async def _carry_out(self, plan: _FlushPlan) -> None:
        led = plan.led
        backoff = Backoff(RETRY_FIRST_S, RETRY_LONGEST_S)
        try:
            while led.live and led.flushed_end < led.high_watermark:
                try:
                    await self._flush_once(led, led.high_watermark)
                    backoff.reset()
                    plan.due = asyncio.get_running_loop().time()
                except (Unavailable, OutcomeUnknown) as error:
                    self._metrics.flush_failed(led.layout.topic)
                    logger.warning("flush failed partition=%s %s", led.where, error)
                    await asyncio.sleep(backoff.next_s())
                    continue
                if led.tail.size_bytes < led.rules.flush_bytes and not led.has_references_to_flush:
                    break
        finally:
            self._running -= plan.weight
            if self._plans.get(led) is plan:
                del self._plans[led]
        if led.live and led.flushed_end < led.high_watermark:
            self.committed(led)
        if self._budget.is_nearly_full:
            self._flush_largest()
        self._set_timer()

    async def _flush_once(self, led: LeaderPartition, to_offset: int) -> None:
        """Flush one segment's worth of [flushed end, to_offset)."""
        async with led.flushing:
            if led.live and led.flushed_end < to_offset:
                try:
                    await self._put_segment(led, to_offset)
                except (Fenced, DataCorrupt) as error:
                    self._retire(led, error)

    async def _put_segment(self, led: LeaderPartition, to_offset: int) -> None:
        view = led.view
        batches = _first_bytes(led.tail.batches(view.end_offset, to_offset), led.rules.flush_bytes)
        nonce = new_nonce(self._environment.entropy)
        draft = await self._environment.unfold(
            draft_bytes_max(batches, led.rules), None,
            _draft, led.layout, batches, nonce, led.rules,
        )  # fmt: skip
        if not led.live:
            return
        view = await self._environment.store.run(flush_at(view, draft, led.leader_epoch))
        self._apply_flush(led, view)
        size_bytes = sum(map(len, batches[: draft.batches]))
        self._metrics.flushed(led.layout.topic, size_bytes, len(draft.segment.unread))
        await self._save_producers(led)
        if len(view.tail) >= TAIL_SEGMENTS_MAX:
            await self._absorb(led, view)

    def _apply_flush(self, led: LeaderPartition, view: PartitionView) -> None:
        if led.live and view.end_offset > led.high_watermark:
            raise Fenced(
                "the partition's log holds more than its leader has committed, so a later leader "
                f"recovered it; stop leading. partition={led.where} "
                f"log_end_offset={view.end_offset} high_watermark={led.high_watermark}"
            )
        led.apply_flush(view)
        self._wal.flushed(led.where, view.end_offset)

    async def _absorb(self, led: LeaderPartition, view: PartitionView) -> None:
        plan = absorb_tail(TAIL_SEGMENTS_MAX, 0)
        nonce = new_nonce(self._environment.entropy)
        try:
            led.update_view(await self._environment.store.run(change(view, plan, nonce)))
        except (Unavailable, OutcomeUnknown) as error:
            # The chain stays longer; the next flush tries again.
            logger.warning("absorbing the chain failed partition=%s %s", led.where, error)
            return
        if led.live:
            self._snapshots[led] = (led.tail.end_offset, snapshot(led.producers))
            await self._save_producers(led)

    async def _save_producers(self, led: LeaderPartition) -> None:
        """Store the producers' states, so that the next leader reads few segments."""
        end_offset, document = self._snapshots.get(led, (0, None))
        if document is None or led.flushed_end < end_offset or not led.live:
            return
        del self._snapshots[led]
        try:
            await self._environment.store.run(save_producers(led.layout, end_offset, document))
        except (Unavailable, OutcomeUnknown) as error:
            # Recovery can rebuild them from the log, only slower. The next snapshot is due soon.
            logger.warning("saving producers failed partition=%s %s", led.where, error)

    def _retire(self, led: LeaderPartition, error: SparklogError) -> None:
        if isinstance(error, DataCorrupt):
            reason = damaged(led.layout, error)
            logger.error("this broker stops leading a damaged partition: %s", reason)
            led.retire(reason)
        else:
            logger.warning("deposed partition=%s epoch=%d", led.where, led.leader_epoch)
            led.retire(NotServing(f"deposed; refresh metadata. partition={led.where}"))
        self.forget(led)


def draft_bytes_max(batches: list[bytes], rules: TopicRules) -> int:
    """Return the most memory of a flush of compressed batches: a run's bytes and its columns.

    Plain batches are in the tail's budget already, so they count 0.
    """
    limit_bytes = rules.batches.decompressed_bytes_max
    sizes = [unfolded_bytes_max(batch, limit_bytes) for batch in batches]
    return 2 * min(sum(sizes), RUN_BYTES + max(sizes, default=0))


def _draft(
    layout: PartitionLayout, batches: list[bytes], nonce: str, rules: TopicRules
) -> FlushBuilder:
    return build_flush(
        layout, batches, nonce,
        codec=rules.codec, level=rules.zstd_level, indexes_keys=rules.indexes_keys,
    )  # fmt: skip


def _first_bytes(batches: list[bytes], size_bytes: int) -> list[bytes]:
    """Return the first batches, until their sum reaches `size_bytes`; at least one."""
    total = 0
    for at, batch in enumerate(batches):
        total += len(batch)
        if total >= size_bytes:
            return batches[: at + 1]
    return batches
