"""ProducePurgatory: produce requests that wait, each until it is settled or its time is over.

A busy broker has thousands of them a second. An object of the write-ahead log or a follower's fetch
makes several ready at once. So all share one timer and, when they end together, one call of the
event loop. Times are seconds of the loop's clock.
  P4  the waiting side is called once, and never from within the change of a partition
  P5  what is settled is forgotten before it can pile up
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from sparklog.broker.partition.purgatory import DelayedProduce
from sparklog.broker.runtime.deadline_timer import DeadlineTimer

End = Callable[[], None]
"""Called when a request has ended; it must not raise."""
LOOKED_THROUGH_FROM: Final = 64
"""Up to this number are kept before those that are settled are looked for."""


class ProducePurgatory:
    """See the module. Not thread-safe: the event loop's only."""

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
        request.on_end(partial(self._note, end))
        self._waiting += 1
        heappush(self._deadlines, (deadline_s, next(self._order), request))
        if len(self._deadlines) > self._looked_through_at:
            self._forget_ended()
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

    def _forget_ended(self) -> None:
        self._deadlines = [entry for entry in self._deadlines if not entry[2].has_ended]
        heapify(self._deadlines)
        self._looked_through_at = max(LOOKED_THROUGH_FROM, 2 * len(self._deadlines))

    def _expire(self, due_by_s: float) -> None:
        """Give up the requests whose time is over."""
        heap = self._deadlines
        while heap and (heap[0][2].has_ended or heap[0][0] <= due_by_s):
            request = heappop(heap)[2]
            if not request.has_ended:
                request.give_up()
        if heap:
            self._timer.set(heap[0][0])
