"""Where requests wait: a produce for the high watermark, a fetch for something to read.

Nothing here decides what may be acknowledged; a partition tells how far it got, and whoever waited
for that is woken. No task and no timer per partition, nor for a waiting produce: `produce_waits`.
  P1  a produce is done when each of its partitions got as far as it asked, or failed
  P2  a partition that stops being led fails all who wait for it, at once
  P3  an entry of a request that gave up is dropped before it can pile up
Source: Kafka's DelayedProduce and DelayedFetch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count

from sparklog.core.errors import SparklogError
from sparklog.core.types import PartitionId


def wake(waiting: asyncio.Future[None]) -> None:
    """End what somebody awaits, unless it has ended."""
    if not waiting.done():
        waiting.set_result(None)


class DelayedProduce:
    """One produce request that waits until its batches are committed."""

    __slots__ = ("_end", "failed", "given_up", "waiting")

    def __init__(self) -> None:
        """Wait for nothing yet."""
        self.waiting: dict[PartitionId, None] = {}
        self.failed: dict[PartitionId, SparklogError] = {}
        self.given_up = False
        """Whether nobody waits any more."""
        self._end: Callable[[], None] | None = None

    @property
    def has_ended(self) -> bool:
        """Say whether nobody is to be told any more."""
        return self._end is None

    def then(self, end: Callable[[], None]) -> None:
        """Call `end` once: when nothing is waited for any more, or somebody gives up. Wait first.

        It is called amid a partition's change, so it may only note what it is told.
        """
        assert self.waiting, "there is nothing to wait for"
        self._end = end

    def give_up(self) -> None:
        """Wait no longer: what is `waiting` stays so."""
        self.given_up = True
        self._tell()

    async def wait(self, timeout_s: float) -> None:
        """Wait until nothing is waited for any more, or the time is over: see `waiting`."""
        if not self.waiting:
            self.given_up = True
            return
        # A timer by hand: it costs a third of `asyncio.timeout`.
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self.then(partial(wake, done))
        timer = loop.call_later(max(timeout_s, 0.0), wake, done)
        try:
            await done
        finally:
            timer.cancel()
            self.given_up = True

    def settle(self, partition: PartitionId, error: SparklogError | None = None) -> None:
        """Take in that a partition got as far as asked, or never will."""
        self.waiting.pop(partition, None)
        if error is not None:
            self.failed[partition] = error
        if not self.waiting:
            self._tell()

    def _tell(self) -> None:
        end, self._end = self._end, None
        if end is not None:
            end()


class OffsetWaits:
    """Who waits until one led partition's high watermark reaches an offset."""

    def __init__(self, partition: PartitionId) -> None:
        """Start without waiters."""
        self.partition = partition
        self._heap: list[tuple[int, int, DelayedProduce]] = []
        self._order = count()
        self._size_checked = 16

    def __len__(self) -> int:
        """Return how many wait, perhaps some more that gave up."""
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
        """Wake all who wait for `offset` or less, with `error` if that was not enough for them."""
        heap = self._heap
        while heap and heap[0][0] <= offset:
            heappop(heap)[2].settle(self.partition, error)

    def fail(self, error: SparklogError) -> None:
        """Tell all who wait that it will not happen here."""
        failed, self._heap = self._heap, []
        for _, _, request in failed:
            request.settle(self.partition, error)


class DelayedFetch:
    """One fetch request that waits for news of its partitions."""

    def __init__(self) -> None:
        """Wait for nothing yet."""
        self.news: dict[PartitionId, None] = {}
        self._woken: asyncio.Future[None] | None = None

    def wake(self, partition: PartitionId) -> None:
        """Take in that a partition has news."""
        self.news[partition] = None
        if self._woken is not None:
            wake(self._woken)

    def note(self, partition: PartitionId) -> None:
        """Take in that a partition has something to say, which is not worth an answer by itself."""
        self.news[partition] = None

    async def wait(self, deadline: float) -> list[PartitionId]:
        """Return which partitions have news since the last call; none: the loop's deadline came."""
        if not self.news:
            loop = asyncio.get_running_loop()
            self._woken = loop.create_future()
            timer = loop.call_at(deadline, wake, self._woken)
            try:
                await self._woken
            finally:
                timer.cancel()
                self._woken = None
        news, self.news = list(self.news), {}
        return news


class FetchWaits:
    """Which fetches wait for news of one partition."""

    def __init__(self, partition: PartitionId) -> None:
        """Start without waiters."""
        self.partition = partition
        self._fetches: dict[DelayedFetch, None] = {}

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._fetches)

    def add(self, fetch: DelayedFetch) -> None:
        """Tell `fetch` of news until it is removed."""
        self._fetches[fetch] = None

    def remove(self, fetch: DelayedFetch) -> None:
        """Tell it no more."""
        self._fetches.pop(fetch, None)

    def tell(self) -> None:
        """Wake all who wait."""
        for fetch in self._fetches:
            fetch.wake(self.partition)

    def note(self) -> None:
        """Tell all who wait or will that there is something to say, without waking them."""
        for fetch in self._fetches:
            fetch.note(self.partition)
