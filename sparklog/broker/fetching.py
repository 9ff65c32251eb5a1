"""Answering fetches of consumers and followers from the tail, and from history below it.

A fetch is answered at once when there is enough to read, an error, or history; else it waits for
news of its partitions and looks again at those that have some.
  E1  consumers see what lies below the high watermark, with `read_committed` below the last stable
      offset; followers see all there is
  E2  a fetch in another leader epoch than this leader's is refused, so a follower's offset counts
      for nobody but the leader it was told
  E3  reading history has lanes of its own, so however many read it, the tail is not kept waiting
  E4  no consumer is sent a reference batch: it waits for the flush, which comes at once, and then
      reads as history what the batch stands for
  E5  no consumer is told that its offset is beyond the end before the leader has looked whether it
      still leads: one deposed that has not heard of it lacks what the next one acknowledged, and
      the consumer would go by its reset policy, and skip records
Source: Kafka's ReplicaManager and DelayedFetch; KIP-74 on sizes, KIP-320 on epochs, KIP-595.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sparklog.broker.environment import Environment
from sparklog.broker.led_partition import LedPartition
from sparklog.broker.metadata_access import MetadataAccess
from sparklog.broker.metrics import BrokerMetrics
from sparklog.broker.purgatory import DelayedFetch, FetchWaits
from sparklog.broker.task_scope import TaskScope
from sparklog.core.errors import (
    Fenced,
    NotServing,
    OffsetOutOfRange,
    SparklogError,
    UnknownLeaderEpoch,
)
from sparklog.core.types import PartitionId
from sparklog.log.isolation import met
from sparklog.log.tail import NO_OFFSET, EpochEnd
from sparklog.log.view import refresh

logger = logging.getLogger(__name__)

CONSUMER = -1
READ_COMMITTED = 1
VIEW_AGE_MAX_S = 10.0
"""Jobs move the log start and rewrite without the leader: whoever reads history or asks for the
earliest offset looks at the partition's own log again after this."""
HISTORY_READS_AT_ONCE = 8
LONGEST_WAIT_S = 300.0
"""A client may ask to wait for longer; it is answered then, with nothing."""
LOOK_S = 1.0
"""How long a leader may look for news of its own end."""


@dataclass(frozen=True, slots=True)
class FetchAt:
    """Where one partition is read, and how much of it."""

    offset: int
    max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1


@dataclass(frozen=True, slots=True)
class FetchSpec:
    """One fetch request."""

    replica_id: int
    """The follower's broker id, CONSUMER for consumers."""
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int
    """READ_COMMITTED or 0."""
    partitions: Mapping[PartitionId, FetchAt]
    replica_epoch: int = -1
    """The follower's broker epoch."""
    told: Mapping[PartitionId, Fetched] = field(default_factory=dict)
    """What the client knows of partitions, where that were no records; see `fetch_sessions`."""

    @property
    def is_consumer(self) -> bool:
        """Say whether it is a client's, not a follower's."""
        return self.replica_id < 0


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one partition has to say."""

    batches: Sequence[bytes]
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    """To a follower: the leader's flushed end, below which it keeps nothing."""
    diverging: EpochEnd | None = None
    """To a follower whose log differs: where it still agreed."""
    aborted: tuple[tuple[int, int], ...] | None = None
    """Producer ids and first offsets of aborted transactions; None if nobody asked."""

    @property
    def size_bytes(self) -> int:
        """Return the bytes of its batches."""
        return sum(map(len, self.batches))

    def is_of(self, led: LedPartition) -> bool:
        """Say whether a follower without news would be told the same of a partition now."""
        same = self.high_watermark == led.high_watermark
        return same and self.log_start_offset == led.flushed_end


FetchResult = Fetched | SparklogError
Leaders = Callable[[PartitionId], LedPartition]
"""Returns a led partition, or raises why it is none."""


class Fetching:
    """Answers fetches of one broker."""

    def __init__(
        self,
        environment: Environment,
        leaders: Leaders,
        metadata: MetadataAccess,
        tasks: TaskScope,
        metrics: BrokerMetrics,
    ) -> None:
        """Read the partitions that `leaders` finds; `tasks` reads ahead."""
        self._environment = environment
        self._metadata = metadata
        self._tasks = tasks
        self._ahead: dict[tuple[PartitionId, int], asyncio.Future[None]] = {}
        """What is read before it is asked for, by its first offset."""
        self._leaders = leaders
        self._metrics = metrics
        self._history_lanes = asyncio.Semaphore(HISTORY_READS_AT_ONCE)
        self.waiting = 0
        """How many fetches wait for news now."""

    async def fetch(self, spec: FetchSpec) -> dict[PartitionId, FetchResult]:
        """Read all partitions asked for, and wait for news while there is too little."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(max(spec.max_wait_ms, 0) / 1000, LONGEST_WAIT_S)
        reading = _Reading(spec, self._leaders)
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

    async def _judge_again(self, reading: _Reading) -> None:
        """Look whether what sends a consumer back still leads (E5)."""
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

    async def _wait(self, reading: _Reading, deadline: float, *, looks_again: bool) -> None:
        """Wait for news; with `looks_again`, something may have come since the first look."""
        loop = asyncio.get_running_loop()
        delayed = DelayedFetch()
        watched: list[LedPartition] = []
        self.waiting += 1
        try:
            for where in reading.spec.partitions:
                led = reading.led.get(where)
                if led is not None:
                    watched.append(led)
                    _news(led, reading.spec).add(delayed)
            if looks_again:
                reading.look(reading.spec.partitions)
            while not (reading.is_enough or reading.historic) and loop.time() < deadline:
                news = await delayed.wait(deadline)
                reading.look(news)
        finally:
            self.waiting -= 1
            for led in watched:
                _news(led, reading.spec).remove(delayed)

    async def _read_history(self, reading: _Reading) -> None:
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

    async def _read_one(self, led: LedPartition, spec: FetchSpec, max_bytes: int) -> FetchResult:
        """Read one partition's history; an old view is looked at anew."""
        at = spec.partitions[led.where]
        run = self._environment.store.run
        ahead = self._ahead.get((led.where, at.offset))
        if ahead is not None:
            await asyncio.wait([ahead])
        try:
            async with self._history_lanes:
                if asyncio.get_running_loop().time() - led.looked_s > VIEW_AGE_MAX_S:
                    led.saw_view(await run(refresh(led.view)))
                reading = led.history.read(led.view, at.offset, max_bytes, _limit(led, spec))
                history = await run(reading)
                led.saw_view(history.view)
        except OffsetOutOfRange:
            try:
                led.saw_view(await run(refresh(led.view)))
            except SparklogError as error:
                return error
            return _out_of_range(led, at.offset)
        except SparklogError as error:
            return error
        self._read_ahead(led, history.next_offset)
        return _fetched(led, spec, history.batches, at.offset, history.next_offset)

    def _read_ahead(self, led: LedPartition, offset: int) -> None:
        """Read what a consumer of history asks for next, if a lane is free."""
        key = led.where, offset
        if offset >= led.flushed_end or self._history_lanes.locked() or key in self._ahead:
            return
        self._ahead[key] = asyncio.get_running_loop().create_future()
        self._tasks.start(self._load(led, offset), f"read ahead {led.where}")

    async def _load(self, led: LedPartition, offset: int) -> None:
        try:
            async with self._history_lanes:
                await self._environment.store.run(led.history.load(led.view, offset))
        except SparklogError as error:
            # Whoever asks for it reads it again, and hears of the error.
            logger.info("reading ahead failed partition=%s offset=%d %s", led.where, offset, error)
        finally:
            self._ahead.pop((led.where, offset)).set_result(None)

    def _count(self, reading: _Reading) -> None:
        spec, metrics = reading.spec, self._metrics
        for where, result in reading.results.items():
            if isinstance(result, Fetched) and not result.batches:
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


class _Reading:
    """One fetch while it is answered."""

    def __init__(self, spec: FetchSpec, leaders: Leaders) -> None:
        self.spec = spec
        self.results: dict[PartitionId, FetchResult] = {}
        self.led: dict[PartitionId, LedPartition] = {}
        self.historic: dict[PartitionId, LedPartition] = {}
        """Partitions that are read below the tail."""
        self.size_bytes = 0
        """Of all batches read so far."""
        self._leaders = leaders
        self._urgent = False
        """There is something to say besides records."""

    def take(self, where: PartitionId, result: FetchResult) -> None:
        """Note what a partition has to say."""
        self.results[where] = result
        if isinstance(result, Fetched) and result.batches:
            self.size_bytes += result.size_bytes

    def _drop(self, where: PartitionId) -> None:
        result = self.results.pop(where, None)
        if isinstance(result, Fetched) and result.batches:
            self.size_bytes -= result.size_bytes

    @property
    def is_enough(self) -> bool:
        """Say whether there is no reason to wait."""
        return self._urgent or not self.spec.partitions or self.size_bytes >= self.spec.min_bytes

    def look(self, partitions: Collection[PartitionId], now_ms: int | None = None) -> None:
        """Read these partitions' tails; with a time given, take note of a follower's offsets."""
        if self.results:
            for where in partitions:
                self._drop(where)
        for where in partitions:
            left = self.spec.max_bytes - self.size_bytes
            try:
                result = self._look_at(where, left, now_ms)
            except SparklogError as error:
                self.results[where] = error
                self._urgent = True
                continue
            if result is not None:
                self.take(where, result)

    def beyond_end(self) -> dict[PartitionId, LedPartition]:
        """Return the partitions that end before what is asked for."""
        return {
            where: led
            for where, led in self.led.items()
            if isinstance(self.results.get(where), OffsetOutOfRange)
            and self.spec.partitions[where].offset > led.tail.end_offset
        }

    def _look_at(self, where: PartitionId, left: int, now_ms: int | None) -> Fetched | None:
        led = self._leaders(where)
        at = self.spec.partitions[where]
        check_epoch(led, at.current_leader_epoch)
        self.led[where] = led
        if self.spec.is_consumer:
            return self._for_consumer(led, at, left)
        return self._for_follower(led, at, left, now_ms)

    def _for_consumer(self, led: LedPartition, at: FetchAt, left: int) -> Fetched | None:
        if not led.log_start_offset <= at.offset <= led.tail.end_offset:
            raise _out_of_range(led, at.offset)
        if at.offset < led.tail.start_offset:
            self.historic[led.where] = led
            return None
        limit = _tail_limit(led, self.spec)
        batches = self._read(led, at, left, limit)
        end = led.tail.end_offset if not batches else limit
        return _fetched(led, self.spec, batches, at.offset, end)

    def _for_follower(
        self, led: LedPartition, at: FetchAt, left: int, now_ms: int | None
    ) -> Fetched:
        diverging = _divergence(led, at)
        if diverging is not None or at.offset < led.tail.start_offset:
            self._urgent = True
            return replace(_fetched(led, self.spec, (), at.offset, at.offset), diverging=diverging)
        if at.offset > led.tail.end_offset:
            raise _out_of_range(led, at.offset)
        if now_ms is not None:
            who = self.spec.replica_id, self.spec.replica_epoch
            if led.follower_waits(*who, at.offset, now_ms):
                told = self.spec.told.get(led.where)
                if told is not None and told.is_of(led):
                    return told
            else:
                led.follower_fetched(*who, at.offset, now_ms)
        batches = self._read(led, at, left, led.tail.end_offset)
        return _fetched(led, self.spec, batches, at.offset, at.offset)

    def _read(self, led: LedPartition, at: FetchAt, left: int, limit: int) -> Sequence[bytes]:
        first = left == self.spec.max_bytes
        if left <= 0 and not first:
            return ()
        return led.tail.read(at.offset, min(at.max_bytes, left), limit, at_least_one=first)


def check_epoch(led: LedPartition, current_leader_epoch: int) -> None:
    """Refuse who knows another leader epoch; -1 knows none.

    Raises:
        Fenced: an older one (Kafka's FENCED_LEADER_EPOCH). UnknownLeaderEpoch: a newer one.
    """
    if current_leader_epoch < 0 or current_leader_epoch == led.leader_epoch:
        return
    told = (
        f"partition={led.layout.topic}-{led.layout.partition} "
        f"leader_epoch={current_leader_epoch} current={led.leader_epoch}"
    )
    if current_leader_epoch < led.leader_epoch:
        raise Fenced(f"the partition has a later leader epoch; refresh metadata. {told}")
    raise UnknownLeaderEpoch(f"this broker does not know that leader epoch yet; try again. {told}")


def _divergence(led: LedPartition, at: FetchAt) -> EpochEnd | None:
    """Return where a follower's log and this one still agree, when they differ before its end."""
    if at.last_fetched_epoch < 0 or at.offset < led.tail.start_offset:
        return None
    if at.last_fetched_epoch == led.tail.latest_epoch and at.offset <= led.tail.end_offset:
        return None  # as it is nearly always
    end = led.tail.end_of_epoch(at.last_fetched_epoch)
    if end.end_offset == NO_OFFSET:
        raise UnknownLeaderEpoch(
            "the follower has records of a leader epoch that this leader does not know. "
            f"partition={led.where} epoch={at.last_fetched_epoch} current={led.leader_epoch}"
        )
    agrees = end.leader_epoch == at.last_fetched_epoch and end.end_offset >= at.offset
    return None if agrees else end


def _limit(led: LedPartition, spec: FetchSpec) -> int:
    is_committed = spec.isolation == READ_COMMITTED
    return led.last_stable_offset if is_committed else led.high_watermark


def _tail_limit(led: LedPartition, spec: FetchSpec) -> int:
    """Return up to where a consumer is handed the tail: what is referred to is history (E4)."""
    limit, reference = _limit(led, spec), led.tail.first_reference
    return limit if reference is None else min(limit, reference)


def _news(led: LedPartition, spec: FetchSpec) -> FetchWaits:
    return led.committed_news if spec.is_consumer else led.appended_news


def _fetched(
    led: LedPartition, spec: FetchSpec, batches: Sequence[bytes], offset: int, end_offset: int
) -> Fetched:
    aborted = None
    if spec.is_consumer and spec.isolation == READ_COMMITTED:
        found = led.producers.transactions.aborted_between(offset, end_offset)
        aborted = tuple((one.producer_id, one.first_offset) for one in met(found, batches))
    return Fetched(
        batches,
        led.high_watermark,
        led.last_stable_offset,
        led.log_start_offset if spec.is_consumer else led.flushed_end,
        aborted=aborted,
    )


def _out_of_range(led: LedPartition, offset: int) -> OffsetOutOfRange:
    return OffsetOutOfRange(
        "the offset is not in the log any more, or not yet; apply the reset policy. "
        f"partition={led.layout.topic}-{led.layout.partition} offset={offset} "
        f"log_start_offset={led.log_start_offset} log_end_offset={led.tail.end_offset}"
    )
