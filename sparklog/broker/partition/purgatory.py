"""Purgatory: delayed produce requests wait for offsets, delayed fetches wait for records.

Nothing here decides what may be acknowledged. A partition reports its offset, and the requests that
waited for it wake. There is no task and no timer per partition, and none per delayed produce
request. A busy broker has thousands of those a second, and an object of the write-ahead log or a
follower's fetch settles several at once. So all share one timer and, when they end together, one
call of the event loop. Times are seconds of the loop's clock.
  PURGATORY-1: a produce request is done when each of its partitions reached the wanted offset or
      failed
  PURGATORY-2: when this broker stops leading a partition, all requests that wait for it fail at
      once
  PURGATORY-3: entries of requests that gave up are dropped before they accumulate
  PURGATORY-4: the end of a produce request is called once, and never from within the change of a
      partition
  PURGATORY-5: settled produce requests are forgotten before they accumulate
Source: Kafka's DelayedProduce and DelayedFetch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from sparklog.broker.runtime.deadline_timer import DeadlineTimer
from sparklog.core.errors import SparklogError
from sparklog.core.types import PartitionId

End = Callable[[], None]
"""Called when a request has ended; it must not raise."""
LOOKED_THROUGH_FROM: Final = 64
"""Up to this number are kept before those that are settled are looked for."""


def wake(waiting: asyncio.Future[None]) -> None:
    """Complete `waiting`, unless it is done already."""
    if not waiting.done():
        waiting.set_result(None)


class DelayedProduce:
    """A produce request that waits until its batches are committed, or copied for acks=1."""

    __slots__ = ("end", "failed", "given_up", "waiting")

    def __init__(self) -> None:
        """Begin without a partition to wait for."""
        self.waiting: dict[PartitionId, None] = {}
        self.failed: dict[PartitionId, SparklogError] = {}
        self.given_up = False
        """True once the request has stopped waiting, in time or not."""
        self.end: End | None = None
        """Called once: when the last partition settles, or at `give_up`; None after that. It is
        called in the middle of a partition's change, so it may only record the event."""

    def give_up(self) -> None:
        """Stop waiting. The partitions in `waiting` stay there: they were not in time."""
        self.given_up = True
        self._finish()

    async def wait(self, timeout_s: float) -> None:
        """Wait until all partitions settle, or for `timeout_s`; `waiting` then has the rest."""
        if not self.waiting:
            self.given_up = True
            return
        # A hand-made timer costs a third of `asyncio.timeout`.
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self.end = partial(wake, done)
        timer = loop.call_later(max(timeout_s, 0.0), wake, done)
        try:
            await done
        finally:
            timer.cancel()
            self.given_up = True

    def settle(self, partition: PartitionId, error: SparklogError | None = None) -> None:
        """Record that a partition reached its offset, or, with an `error`, that it never will."""
        self.waiting.pop(partition, None)
        if error is not None:
            self.failed[partition] = error
        if not self.waiting:
            self._finish()

    def _finish(self) -> None:
        end, self.end = self.end, None
        if end is not None:
            end()


class ProducePurgatory:
    """All produce requests that wait, each until it is settled or its time is over.

    It keeps PURGATORY-4 and PURGATORY-5.

    Not thread-safe: the event loop's only.
    """

    def __init__(self) -> None:
        """Begin without requests."""
        self._deadlines: list[tuple[float, int, DelayedProduce]] = []
        self._order = count()
        self._looked_through_at = LOOKED_THROUGH_FROM
        self._ended: deque[End] = deque()
        self._timer = DeadlineTimer(self._expire)
        self._waiting = 0

    def __len__(self) -> int:
        """Return how many wait."""
        return self._waiting

    def add(self, request: DelayedProduce, deadline_s: float, end: End) -> None:
        """Call `end` soon after `request` is settled, or when its time is over."""
        assert request.waiting, "there is nothing to wait for"
        request.end = partial(self._note, end)
        self._waiting += 1
        heappush(self._deadlines, (deadline_s, next(self._order), request))
        if len(self._deadlines) > self._looked_through_at:
            self._deadlines = [entry for entry in self._deadlines if entry[2].end is not None]
            heapify(self._deadlines)
            self._looked_through_at = max(LOOKED_THROUGH_FROM, 2 * len(self._deadlines))
        if self._deadlines[0][2] is request:
            self._timer.set(deadline_s)

    def _note(self, end: End) -> None:
        self._waiting -= 1
        self._ended.append(end)
        if len(self._ended) == 1:
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        try:
            while self._ended:
                self._ended.popleft()()
        finally:
            if self._ended:  # the others must be called, too, when one of them raised
                asyncio.get_running_loop().call_soon(self._tell)

    def _expire(self, due_by_s: float) -> None:
        """Give up the requests whose time is over."""
        heap = self._deadlines
        while heap and (heap[0][2].end is None or heap[0][0] <= due_by_s):
            request = heappop(heap)[2]
            if request.end is not None:
                request.give_up()
        if heap:
            self._timer.set(heap[0][0])


class OffsetWaits:
    """The requests that wait until one offset of a led partition reaches their end offset."""

    def __init__(self, partition: PartitionId) -> None:
        """Start without waiters."""
        self.partition = partition
        self._heap: list[tuple[int, int, DelayedProduce]] = []
        self._order = count()
        self._size_checked = 16

    def __len__(self) -> int:
        """Return the number of entries; some may belong to requests that gave up."""
        return len(self._heap)

    def add(self, offset: int, request: DelayedProduce) -> None:
        """Make `request` wait for `offset`, an end offset."""
        request.waiting[self.partition] = None
        heappush(self._heap, (offset, next(self._order), request))
        if len(self._heap) > self._size_checked:
            self._heap = [entry for entry in self._heap if not entry[2].given_up]
            heapify(self._heap)
            self._size_checked = max(16, 2 * len(self._heap))

    def reached(self, offset: int, error: SparklogError | None = None) -> None:
        """Settle all requests that wait for `offset` or less, with `error` if there is one."""
        heap = self._heap
        while heap and heap[0][0] <= offset:
            heappop(heap)[2].settle(self.partition, error)

    def fail(self, error: SparklogError) -> None:
        """Fail all requests that wait: this leader will not reach their offsets."""
        failed, self._heap = self._heap, []
        for _, _, request in failed:
            request.settle(self.partition, error)


class DelayedFetch:
    """A fetch request that waits for changes of its partitions."""

    def __init__(self) -> None:
        """Begin without changes."""
        self.changed: dict[PartitionId, None] = {}
        self._woken: asyncio.Future[None] | None = None

    def wake(self, partition: PartitionId) -> None:
        """Record that a partition changed, and wake the request."""
        self.changed[partition] = None
        if self._woken is not None:
            wake(self._woken)

    def mark_changed(self, partition: PartitionId) -> None:
        """Record a change of a partition that does not justify a response by itself."""
        self.changed[partition] = None

    async def wait(self, deadline: float) -> list[PartitionId]:
        """Wait for changes; return the partitions that changed since the last call.

        The result is empty if `deadline`, on the loop's clock, passed first.
        """
        if not self.changed:
            loop = asyncio.get_running_loop()
            self._woken = loop.create_future()
            timer = loop.call_at(deadline, wake, self._woken)
            try:
                await self._woken
            finally:
                timer.cancel()
                self._woken = None
        changed, self.changed = list(self.changed), {}
        return changed


class FetchWaits:
    """The fetch requests that wait for changes of one partition."""

    def __init__(self, partition: PartitionId) -> None:
        """Start without waiters."""
        self.partition = partition
        self._fetches: dict[DelayedFetch, None] = {}

    def __len__(self) -> int:
        """Return the number of waiting fetch requests."""
        return len(self._fetches)

    def add(self, fetch: DelayedFetch) -> None:
        """Notify `fetch` of changes until it is removed."""
        self._fetches[fetch] = None

    def remove(self, fetch: DelayedFetch) -> None:
        """Stop notifying it."""
        self._fetches.pop(fetch, None)

    def wake_all(self) -> None:
        """Wake all fetches."""
        for fetch in self._fetches:
            fetch.wake(self.partition)

    def mark_changed(self) -> None:
        """Record a change for all fetches without waking them; their next wait returns at once."""
        for fetch in self._fetches:
            fetch.mark_changed(self.partition)
