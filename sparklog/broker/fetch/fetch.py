"""Answering fetches of consumers and followers from the tail, and from history below it.

The broker answers a fetch at once when there is enough to read, an error, or history. Otherwise the
fetch waits for news of its partitions and looks again at those that have some.
  FETCH-1: consumers see what lies below the high watermark, with `read_committed` below the last
      stable offset. Followers see all batches whose put to the write-ahead log has begun, or is
      not to begin soon
  FETCH-2: a fetch in another leader epoch than this leader's is rejected, so a follower's offset
      counts only for the leader that the follower was given
  FETCH-3: reading history has a limit of its own, so any number of its readers do not delay the
      tail
  FETCH-4: the broker sends no consumer a reference batch. The consumer waits for the flush, which
      comes at once, and then reads as history the records that the batch stands for
  FETCH-5: the leader returns OFFSET_OUT_OF_RANGE for an offset beyond its end only after it has
      checked that it still leads. A deposed leader without that news lacks what the next one
      acknowledged. The consumer would go by its reset policy, and skip records
Source: Kafka's ReplicaManager and DelayedFetch; KIP-74 on sizes, KIP-320 on epochs, KIP-595.
"""

from __future__ import annotations

import asyncio

from sparklog.broker.fetch.read import (
    FetchedPartition,
    FetchRead,
    FetchResult,
    FetchSpec,
    Leaders,
    answer_of,
    limit_of,
    out_of_range,
)
from sparklog.broker.fetch.read_ahead import ReadAhead
from sparklog.broker.fetch.watch import FetchSubscription
from sparklog.broker.partition.leader import LeaderPartition
from sparklog.broker.partition.purgatory import FetchWaits
from sparklog.broker.runtime.environment import Environment, TaskScope
from sparklog.broker.runtime.metadata_access import MetadataAccess
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.core.errors import NotServing, OffsetOutOfRange, SparklogError
from sparklog.core.types import PartitionId
from sparklog.log.manifest.refresh import refresh
from sparklog.log.partition.history_reader import HistoryCache

VIEW_AGE_MAX_S = 10.0
"""Jobs move the log start and rewrite without the leader. After this time a read of history, or a
request for the earliest offset, looks at the partition's own log again."""
HISTORY_READS_AT_ONCE = 8
LONGEST_WAIT_S = 300.0
"""A client may ask to wait for longer; it is answered then, with nothing."""
LOOK_S = 1.0
"""The time for which a leader may look for news of its own end."""


class FetchService:
    """Answers fetches of one broker."""

    def __init__(
        self,
        environment: Environment,
        leaders: Leaders,
        metadata: MetadataAccess,
        tasks: TaskScope,
        metrics: BrokerMetrics,
        cache: HistoryCache,
    ) -> None:
        """Read the partitions that `leaders` finds; `tasks` reads ahead into `cache`."""
        self._environment = environment
        self._metadata = metadata
        self._leaders = leaders
        self._metrics = metrics
        self._history_lanes = asyncio.Semaphore(HISTORY_READS_AT_ONCE)
        self.ahead = ReadAhead(environment.store, tasks, self._history_lanes, cache)
        self.waiting = 0
        """The number of fetches that wait for news now."""

    async def fetch(self, spec: FetchSpec) -> dict[PartitionId, FetchResult]:
        """Read all partitions asked for, and wait for news while there is too little."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(max(spec.max_wait_ms, 0) / 1000, LONGEST_WAIT_S)
        reading = FetchRead(spec, self._leaders)
        reading.look(spec.partitions, now_ms=int(loop.time() * 1000))
        awaits = bool(reading.historic)
        if awaits:
            await self._read_history(reading)
        if not reading.is_enough and loop.time() < deadline:
            await self._wait(reading, deadline, looks_again=awaits)
            if reading.historic:  # flushed and trimmed while it waited
                await self._read_history(reading)
        if spec.is_consumer:
            await self._judge_again(reading)
        self._count(reading)
        return reading.results

    async def _judge_again(self, reading: FetchRead) -> None:
        """Look whether what sends a consumer back still leads (FETCH-5)."""
        refused = reading.beyond_end()
        if not refused:
            return
        known = True
        try:
            async with asyncio.timeout(LOOK_S):
                await self._metadata.catch_up()
        except (TimeoutError, SparklogError):
            known = False
        for where, led in refused.items():
            if not known or not led.live:
                reading.results[where] = NotServing(
                    "another broker may lead by now, which has more; refresh metadata. "
                    f"partition={where}"
                )

    async def _wait(self, reading: FetchRead, deadline: float, *, looks_again: bool) -> None:
        """Wait for news; with `looks_again`, something may have come since the first look."""
        loop = asyncio.get_running_loop()
        spec = reading.spec
        watch = FetchSubscription() if spec.watch is None else spec.watch
        self.waiting += 1
        try:
            if looks_again:
                reading.look(spec.partitions)
            while not (reading.is_enough or reading.historic) and loop.time() < deadline:
                for led in reading.led.values():
                    watch.subscribe(_news(led, spec))
                reading.look(await watch.wait(deadline))
        finally:
            self.waiting -= 1
            if watch is not spec.watch:
                watch.close()

    async def _read_history(self, reading: FetchRead) -> None:
        wanted, reading.historic = reading.historic, {}
        left = reading.spec.max_bytes - reading.size_bytes
        share = max(1, left // len(wanted))
        found = await asyncio.gather(
            *(
                self._read_one(led, reading.spec, min(share, reading.spec.partitions[w].max_bytes))
                for w, led in wanted.items()
            )
        )
        for where, result in zip(wanted, found, strict=True):
            reading.take(where, result)

    async def _read_one(self, led: LeaderPartition, spec: FetchSpec, max_bytes: int) -> FetchResult:
        """Read one partition's history; an old view is looked at anew."""
        at = spec.partitions[led.where]
        run = self._environment.store.run
        await self.ahead.wait(led.where, at.offset)
        try:
            async with self._history_lanes:
                if asyncio.get_running_loop().time() - led.viewed_s > VIEW_AGE_MAX_S:
                    led.update_view(await run(refresh(led.view)))
                limit, enough = limit_of(led, spec), spec.min_bytes
                reading = led.history.read(led.view, at.offset, max_bytes, limit, enough)
                history = await run(reading)
                led.update_view(history.view)
        except OffsetOutOfRange:
            try:
                led.update_view(await run(refresh(led.view)))
            except SparklogError as error:
                return error
            return out_of_range(led, at.offset)
        except SparklogError as error:
            return error
        self.ahead.follow(led, at.offset, history.next_offset)
        return answer_of(led, spec, history.batches, at.offset, history.next_offset)

    def _count(self, reading: FetchRead) -> None:
        spec, metrics = reading.spec, self._metrics
        for where, result in reading.results.items():
            if isinstance(result, FetchedPartition) and not result.batches:
                continue
            led = reading.led.get(where)
            if led is None:
                continue
            topic = led.layout.topic
            if isinstance(result, SparklogError):
                metrics.fetch_failed(topic)
            elif not spec.is_consumer:
                metrics.replicated_out(topic, result.size_bytes)
            else:
                from_history = spec.partitions[where].offset < led.tail.start_offset
                metrics.fetched(topic, result.size_bytes, from_history=from_history)


def _news(led: LeaderPartition, spec: FetchSpec) -> FetchWaits:
    return led.consumer_fetches if spec.is_consumer else led.follower_fetches
