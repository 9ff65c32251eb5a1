"""Writes the batches of all led partitions to the broker's write-ahead log, and trims it.

The shell around the pure `WalWriter`. It gathers batches into windows, keeps several puts in
flight, and notifies each partition how far it is durable. It deletes what the partitions' own logs
have. Sizes are bytes, times seconds of the loop's clock.
  APPENDER-1: the appender notifies a partition of a batch only after the writer acknowledged its
      window. It does so in order, and never again once a name turned out to be a sealer's
  APPENDER-2: the appender notifies the object that appended. A partition that has a new leader
      epoch by then is another object, and gets no notice of the old one's batches
  APPENDER-3: a window's name may be trimmed only when all of its batches are in their partitions'
      own logs. Batches that the process that recovered their partition gave up do not count
  APPENDER-4: no batch waits longer than `linger_s` for its put to start, or for a free place among
      those in flight. One without an acknowledgement that waits takes three times as long. An idle
      broker puts a batch at once if an acknowledgement waits for it: `batching`
  APPENDER-5: the appender notifies the partition when the put starts, so that followers fetch
      together what is put together. If the put is not to start in a moment, it notifies at once
  APPENDER-6: a window whose put ran beside a check of the root is acknowledged only after that
      check
Source: WAL.md 3.

It also deletes the names of a write-ahead log that are no longer needed, so that no client notices.

All names that a flush releases are due at once, every few seconds. A thousand names take a disk and
a processor a quarter of a second, and one acknowledgement in forty would wait for that. Nothing
waits for the space, so where deleting is cheap there are pauses. On a distant store deleting costs
this machine nothing but patience: many names are deleted at the same time there. Names are retired:
a folder keeps some of the files for windows to come. Times are seconds of the loop's clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import Final

from sparklog.broker.runtime.deadline_timer import DeadlineTimer
from sparklog.broker.runtime.environment import Environment, TaskScope, spawn
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.broker.wal.batching import (
    GATHERED_MAX_S,
    DurableSink,
    WalBatcher,
    WalLimits,
    WalWindow,
)
from sparklog.broker.wal.root_check import RootCheck
from sparklog.core.backoff import Backoff
from sparklog.core.entropy import new_nonce
from sparklog.core.errors import OutcomeUnknown, Unavailable
from sparklog.core.types import PartitionId
from sparklog.log.layout import WalLayout
from sparklog.log.wal.objects import WalBatch
from sparklog.log.wal.writer import (
    Acknowledge,
    Flushed,
    PutOutcomes,
    PutSettled,
    PutWindow,
    Stop,
    Trim,
    WalWriter,
    WindowReady,
    WindowRow,
    place,
    register,
)

CHEAP_DELETE_S: Final = 0.02
"""A store that deletes a name in less is a disk or near one."""
FEW: Final = 8
"""Names that are deleted between two pauses: handing over each of them costs more than that."""
PAUSE_PER_WORK: Final = 4
"""The length of a pause, as a multiple of the time that the deletions before it took."""
BEHIND: Final = 4096
"""With more names than this left there are no pauses: objects come faster than they go."""
LANES: Final = 4
"""As many as there are threads for the log beside those for puts: no put waits for a delete."""
LANE_NAMES: Final = 64
"""Names that one thread deletes at a distance, one after the other."""


RetireInTurn = Callable[[Sequence[str]], Awaitable[int]]
"""Retires objects in this order and returns how many are gone; see `AsyncStore.retire_in_turn`."""


class WalTrimmer:
    """Deletes what a log's writer says may go; what the store does not answer for stays."""

    def __init__(self, retire: RetireInTurn, layout: WalLayout, tasks: TaskScope) -> None:
        """Delete names of `layout` by `retire`, in a task of `tasks`."""
        self._retire = retire
        self._layout = layout
        self._tasks = tasks
        self._names: deque[int] = deque()
        self._running = False
        self._cheap = True

    def trim(self, sequences: range) -> None:
        """Have the names of windows deleted, some time."""
        self._names.extend(sequences)
        if not self._running:
            self._running = True
            self._tasks.start(self._run(), "trim")

    async def _run(self) -> None:
        clock = asyncio.get_running_loop()
        try:
            while self._names:
                lanes = self._next_lanes()
                began_s = clock.time()
                left = [s for some in await asyncio.gather(*map(self._gone, lanes)) for s in some]
                took_s = clock.time() - began_s
                if left:
                    # Nothing depends on it; the next trim tries again.
                    self._names.extendleft(reversed(left))
                    return
                self._cheap = took_s < CHEAP_DELETE_S * len(lanes[0])
                if self._cheap and len(self._names) <= BEHIND:
                    await asyncio.sleep(PAUSE_PER_WORK * took_s)
        finally:
            self._running = False

    def _next_lanes(self) -> list[list[int]]:
        """Take the names that are deleted next, at the same time in each lane."""
        lanes, each = (1, FEW) if self._cheap else (LANES, LANE_NAMES)
        names = [self._names.popleft() for _ in range(min(lanes * each, len(self._names)))]
        return [names[at : at + each] for at in range(0, len(names), each)]

    async def _gone(self, names: Sequence[int]) -> Sequence[int]:
        """Delete names, one after the other; return those that the store did not answer for."""
        keys = [self._layout.key(sequence) for sequence in names]
        return names[await self._retire(keys) :]


logger = logging.getLogger(__name__)

RETRY_FIRST_S = 0.05
RETRY_LONGEST_S = 2.0
ENCODED_INLINE_BYTES = 256 * 1024
"""A window up to this size is encoded on the event loop in 0.1 ms: handing it over is slower."""
WINDOWS_IDLE_MAX = 16
"""An idle broker whose log has more objects than this to trim writes one empty window to do so."""


class WalAppender:
    """One incarnation's write-ahead log."""

    def __init__(
        self,
        environment: Environment,
        layout: WalLayout,
        limits: WalLimits,
        *,
        metrics: BrokerMetrics,
        on_fenced: Callable[[str], None],
        on_crash: Callable[[BaseException], None],
    ) -> None:
        """Write to `layout`; call `on_fenced` when another process has sealed it."""
        self._environment = environment
        self._loop = asyncio.get_running_loop()
        self._layout = layout
        self._limits = limits
        self._metrics = metrics
        self._on_fenced = on_fenced
        self._tasks = TaskScope(f"wal {layout.folder}", on_crash)
        self._trimmer = WalTrimmer(environment.store.retire_in_turn, layout, self._tasks)
        self._writer = WalWriter(limits.in_flight_max, forced=limits.forced)
        self._gathered: deque[WalWindow] = deque()
        self._unacknowledged: deque[WalWindow] = deque()
        self._unflushed: deque[WalWindow] = deque()
        self._flushed: dict[PartitionId, int] = {}
        self._timer = DeadlineTimer(self._put_due)
        self._pace = WalBatcher(limits)
        self._root = RootCheck(environment.store, layout, self._loop.time)

    @property
    def stopped(self) -> bool:
        """Say whether nothing will ever be acknowledged again."""
        return self._writer.stopped or self._tasks.closed

    @property
    def objects(self) -> int:
        """Return how many objects of the log hold what is not flushed."""
        return len(self._unflushed)

    @property
    def waiting_s(self) -> float:
        """Return for how long the oldest batch that is not durable has waited."""
        for windows in (self._unacknowledged, self._gathered):
            for window in windows:
                if window.count:
                    return self._loop.time() - window.since_s
        return 0.0

    async def start(self) -> None:
        """Register the incarnation, and have tidied up behind earlier ones. Cost: one put.

        Raises:
            Fenced: sealed before it started; start with a new incarnation.
        """
        nonce = new_nonce(self._environment.entropy)
        backoff = Backoff(RETRY_FIRST_S, RETRY_LONGEST_S)
        while True:
            try:
                registration = register(self._layout, nonce, forced=self._limits.forced)
                await self._environment.store.run(registration)
                break
            except (OutcomeUnknown, Unavailable) as error:
                logger.warning("registration is not settled wal=%s %s", self._layout.folder, error)
            await asyncio.sleep(backoff.next_s())
        self._tasks.start(self._tidy(), "tidy")

    async def _tidy(self) -> None:
        """Remove what incarnations of this broker left that were killed."""
        try:
            await self._environment.store.tidy(self._layout.broker_prefix)
        except Unavailable:
            return  # nothing depends on it; the next start tries again

    async def stop(self) -> None:
        """End all work; nothing is acknowledged from now on."""
        self._timer.cancel()
        await self._tasks.close()

    def append(
        self,
        batch: WalBatch,
        end_offset: int,
        sink: DurableSink,
        *,
        awaited: bool = True,
        urgent: bool = False,
    ) -> None:
        """Take a batch of [base offset, end_offset).

        Args:
            batch: the batch.
            end_offset: the offset behind it.
            sink: gets the notices.
            awaited: an acknowledgement waits for it.
            urgent: it is the first after a take-over, so its window does not linger.
        """
        if self.stopped:
            return
        now_s = self._loop.time()
        window = self._gathered[-1] if self._gathered else None
        if window is None or not window.takes(batch, self._limits):
            window = WalWindow(since_s=now_s)
            self._gathered.append(window)
        window.add(batch, end_offset, sink, awaited=awaited)
        window.urgent |= urgent and awaited
        if self._timer.at_s > now_s:
            self._look_soon()
        waits = len(self._gathered) > 1 or not self._writer.has_capacity
        if waits or not awaited or self._timer.at_s > now_s + GATHERED_MAX_S:
            sink.wal_begun(end_offset)  # the put does not start in a moment (APPENDER-5)

    def flushed(self, partition: PartitionId, end_offset: int) -> None:
        """Record that the partition's own log reaches `end_offset`."""
        self._flushed[partition] = max(end_offset, self._flushed.get(partition, 0))
        head = self._unflushed[0] if self._unflushed else None
        if head is not None and partition in head.unflushed:
            self._drop_flushed()

    def release(self, partition: PartitionId) -> None:
        """Drop a partition's batches: it is gone, or the process that recovered it needs none."""
        for window in (*self._unflushed, *self._gathered):
            window.unflushed.pop(partition, None)
        self._flushed.pop(partition, None)
        self._drop_flushed()

    def _look_soon(self) -> None:
        """Look when something is due; now is once the loop has run what is ready.

        While no place is free nothing can be put: the put that ends looks.
        """
        if not self._writer.has_capacity:
            return
        self._timer.set_no_later(self._due_s())

    def _due_s(self) -> float:
        """Return when what is gathered is to be put."""
        if len(self._gathered) > 1:
            return -inf
        return self._pace.due_s(self._gathered[0])

    def _put_due(self, due_by_s: float) -> None:
        """Put the windows that are due by then. Called by the timer, and when a put has settled."""
        self._timer.cancel()
        if self.stopped:
            return
        while self._gathered and self._writer.has_capacity and self._due_s() <= due_by_s:
            window = self._gathered.popleft()
            self._pace.put(window, self._loop.time())
            self._put_next(window)
        if self._gathered:
            self._look_soon()

    def _put_next(self, window: WalWindow) -> None:
        for instruction in self._writer.handle(WindowReady()):
            assert isinstance(instruction, PutWindow), instruction
            window.sequence = instruction.sequence
            self._unacknowledged.append(window)
            self._unflushed.append(window)
            for sink, end_offset in window.ends.items():
                sink.wal_begun(end_offset)
            self._tasks.start(self._put(window, instruction), f"put {instruction.sequence}")

    async def _put(self, window: WalWindow, instruction: PutWindow) -> None:
        nonce = new_nonce(self._environment.entropy)
        if window.size_bytes <= ENCODED_INLINE_BYTES:
            placed = instruction.placed(self._layout, window.batches, nonce)
        else:
            placed = await self._environment.compute(
                instruction.placed, self._layout, window.batches, nonce
            )
        window.batches = []
        started_s = self._loop.time()
        checking = spawn(self._root.check()) if window.count and self._root.is_due() else None
        try:
            settled = await self._settle(placed)
            took_s = self._loop.time() - started_s
            if checking is not None:
                await checking  # APPENDER-6
        finally:
            if checking is not None:
                checking.cancel()
        self._pace.took(took_s)
        self._metrics.wal_put(len(placed.data), window.count, took_s)
        for outcome in self._writer.handle(PutSettled(instruction.sequence, settled)):
            match outcome:
                case Acknowledge(end_sequence):
                    self._acknowledge(end_sequence)
                case Trim(start_sequence, end_sequence):
                    self._trimmer.trim(range(start_sequence, end_sequence))
                case Stop(sequence):
                    self._timer.cancel()
                    self._on_fenced(
                        "the write-ahead log was sealed: this incarnation is deposed. "
                        f"object={self._layout.key(sequence)}"
                    )
        self._put_due(self._loop.time())

    async def _settle(self, placed: WindowRow) -> PutOutcomes:
        backoff: Backoff | None = None
        while True:
            try:
                return await self._environment.store.run(place(placed))
            except (OutcomeUnknown, Unavailable) as error:
                key = self._layout.key(placed.header.sequence)
                logger.warning("window is not settled yet object=%s %s", key, error)
            backoff = backoff or Backoff(RETRY_FIRST_S, RETRY_LONGEST_S)
            await asyncio.sleep(backoff.next_s())

    def _acknowledge(self, end_sequence: int) -> None:
        """Notify the partitions of all windows before `end_sequence` how far they are durable."""
        ended: list[WalWindow] = []
        now_s = self._loop.time()
        while self._unacknowledged and self._unacknowledged[0].sequence < end_sequence:
            window = self._unacknowledged.popleft()
            self._pace.acknowledged(window, now_s)
            ended.append(window)
        for window in ended:
            ends, window.ends = window.ends, {}
            for sink, end_offset in ends.items():
                sink.wal_durable(end_offset)

    def _drop_flushed(self) -> None:
        """Advance over the oldest windows that hold nothing but what was flushed."""
        while self._unflushed:
            head = self._unflushed[0]
            for partition, end_offset in list(head.unflushed.items()):
                if self._flushed.get(partition, -1) >= end_offset:
                    del head.unflushed[partition]
            if head.unflushed:
                break
            self._unflushed.popleft()
            self._writer.handle(Flushed(head.sequence + 1))
        if not self._unflushed and not self._gathered:
            self._flushed.clear()
            self._trim_idle()

    def _trim_idle(self) -> None:
        """Carry the boundary on when nothing else will."""
        if self.stopped or self._writer.in_flight or self._writer.trimmable < WINDOWS_IDLE_MAX:
            return
        self._put_next(WalWindow())
