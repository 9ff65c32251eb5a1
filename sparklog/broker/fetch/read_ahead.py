"""Loads history into the cache before its consumers ask for it.

A consumer of history asks for a megabyte, and then for the next one. A distant store takes longer
for a request than the consumer for the records. So the broker keeps several requests ahead of each
consumer, of a few megabytes each. It follows consumers by their offsets, as they have no names.

  READ-AHEAD-1: what is loaded ahead of all consumers takes about half of the cache at most, so that
      blocks are not dropped before they are read
  READ-AHEAD-2: a failed load is no error of a consumer: its fetch reads again, and gets the error
  READ-AHEAD-3: a consumer that asks for nothing in `IDLE_S` holds no share of the cache

Offsets: base inclusive, end exclusive. Sizes are bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from sparklog.broker.partition.leader import LeaderPartition
from sparklog.broker.runtime.environment import AsyncStore, TaskScope
from sparklog.core.errors import SparklogError
from sparklog.core.types import PartitionId
from sparklog.log.partition.history_reader import GROUP_BYTES, BlockGroup, HistoryCache

logger = logging.getLogger(__name__)

AHEAD_BYTES_MAX: Final = 3 * GROUP_BYTES
"""Of one consumer: the group that it reads, and two requests under way."""
IDLE_S: Final = 10.0
FOLLOWED_MAX: Final = 64
"""Consumers whose offsets are remembered."""


@dataclass(slots=True)
class _GroupAhead:
    """Blocks that are loaded, or being loaded."""

    base_offset: int
    end_offset: int
    loaded: asyncio.Future[None]
    size_bytes: int = GROUP_BYTES
    """Known once they are loaded."""


@dataclass(slots=True)
class _HistoryConsumer:
    """A consumer that reads a partition from one offset to the next."""

    where: PartitionId
    offset: int
    """The one that it asks for next."""
    read_s: float
    groups: deque[_GroupAhead] = field(default_factory=deque)
    """From the one that holds `offset` on, without gaps."""
    is_planning: bool = False

    @property
    def end_offset(self) -> int:
        """Return the offset up to which groups are planned."""
        return self.groups[-1].end_offset if self.groups else self.offset

    @property
    def size_bytes(self) -> int:
        """Return about the bytes of its groups."""
        return sum(group.size_bytes for group in self.groups)

    def is_at(self, where: PartitionId, offset: int) -> bool:
        """Return True if a consumer at this offset may be this one."""
        return self.where == where and self.offset <= offset <= self.end_offset

    def move(self, offset: int, now_s: float) -> None:
        """Go on to an offset, and leave the groups below it."""
        self.offset, self.read_s = offset, now_s
        while self.groups and self.groups[0].end_offset <= offset:
            self.groups.popleft()


class ReadAhead:
    """Loads history ahead of the consumers of one broker. For use on one event loop only."""

    def __init__(
        self, store: AsyncStore, tasks: TaskScope, lanes: asyncio.Semaphore, cache: HistoryCache
    ) -> None:
        """Read `store` by `tasks`; a load takes one of `lanes`, and all take half of the cache."""
        self._store = store
        self._tasks = tasks
        self._lanes = lanes
        self._limit_bytes = cache.size_bytes_max // 2
        self._followers: list[_HistoryConsumer] = []
        self._encoding = asyncio.Lock()
        """One at a time: several only delay each other, and answers to fetches."""

    @property
    def size_bytes(self) -> int:
        """Return about the bytes ahead of all consumers."""
        return sum(one.size_bytes for one in self._followers)

    async def wait(self, where: PartitionId, offset: int) -> None:
        """Wait until the load of the block that holds an offset has ended, if it has begun."""
        for one in self._followers:
            if one.where != where:
                continue
            for group in one.groups:
                if group.base_offset <= offset < group.end_offset and not group.loaded.done():
                    await asyncio.wait([group.loaded])
                    return

    def follow(self, led: LeaderPartition, offset: int, next_offset: int) -> None:
        """Load what a consumer asks for next, which has read [offset, next_offset)."""
        now_s = asyncio.get_running_loop().time()
        self._followers = [one for one in self._followers if now_s - one.read_s < IDLE_S]
        found = next((one for one in self._followers if one.is_at(led.where, offset)), None)
        if found is None:
            if len(self._followers) >= FOLLOWED_MAX:
                return
            found = _HistoryConsumer(led.where, next_offset, now_s)
            self._followers.append(found)
        found.move(next_offset, now_s)
        if not found.is_planning and self._may_load(led, found):
            found.is_planning = True
            self._tasks.start(self._plan(led, found), f"plan to read ahead {led.where}")

    def _may_load(self, led: LeaderPartition, one: _HistoryConsumer) -> bool:
        return (
            one.size_bytes + GROUP_BYTES <= AHEAD_BYTES_MAX
            and one.end_offset < led.flushed_end
            and not self._lanes.locked()
            and self.size_bytes + GROUP_BYTES <= self._limit_bytes
        )

    async def _plan(self, led: LeaderPartition, one: _HistoryConsumer) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._may_load(led, one):
                at = one.end_offset
                group = await self._store.run(led.history.plan(led.view, at))
                if group is None or at != one.end_offset:
                    return
                ahead = _GroupAhead(group.base_offset, group.end_offset, loop.create_future())
                one.groups.append(ahead)
                self._tasks.start(self._load(led, one, group, ahead), f"read ahead {led.where}")
        except SparklogError as error:
            _report(led, one.end_offset, error)
        finally:
            one.is_planning = False

    async def _load(
        self, led: LeaderPartition, one: _HistoryConsumer, group: BlockGroup, ahead: _GroupAhead
    ) -> None:
        try:
            async with self._lanes:
                fetched = await self._store.run(led.history.fetch_group(group))
                async with self._encoding:
                    ahead.size_bytes = await self._store.run(led.history.keep_group(group, fetched))
        except SparklogError as error:
            _report(led, ahead.base_offset, error)
            one.groups.clear()  # those after it are loaded all the same, and found in the cache
        finally:
            if not ahead.loaded.done():
                ahead.loaded.set_result(None)


def _report(led: LeaderPartition, offset: int, error: SparklogError) -> None:
    logger.info("reading ahead failed partition=%s offset=%d %s", led.where, offset, error)
