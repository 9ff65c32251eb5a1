"""Runs the shards of one internal topic: each lives where its partition is led.

An event changes its shard at once; what it decided is appended with whatever else gathers while an
append is under way (group commit), and answered when that is committed.
  R1  a shard is served only after its whole log was replayed, and only in that leader epoch
  R2  replies go out in the order of the events, after their records are committed
  R3  when an append fails, the shard has seen what the log has not: it is thrown away, everybody
      who waits is sent to find the coordinator again, and a fresh shard replays the log
  R4  markers and records are appended in the order in which the shard took them in
  R5  an event that cannot be appended now is refused before it changes anything
One append is in flight per partition. While the storage is away nothing is thrown away: callers are
told to try again, and what was decided is committed when it is back.
Source: Kafka's CoordinatorRuntime; KIP-848 for the idea of a shard.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from itertools import count
from math import ceil
from typing import Final, Generic

from sparklog.broker.coordinator.partition_log import CoordinatorPartition
from sparklog.broker.coordinator.shard_context import PendingBatch, QueuedMarker, S, ShardContext
from sparklog.broker.coordinator.shard_directory import ShardDirectory
from sparklog.broker.coordinator.shard_loader import ShardLoader
from sparklog.broker.runtime.deadline_timer import EARLY_S
from sparklog.broker.runtime.environment import Environment, TaskScope
from sparklog.broker.runtime.metadata_access import MetadataAccess
from sparklog.coordinator.effects import CoordinatorResult, ProducerIdentity, Token, size_bytes
from sparklog.core.errors import CoordinatorNotAvailable, RecordTooLarge, SparklogError
from sparklog.log.tail.producer_state import UNVERIFIED, Verification
from sparklog.protocol.records.control import EndTransactionMarker

logger = logging.getLogger(__name__)

Event = Callable[[S, Token, int], CoordinatorResult]
"""Changes a shard: gets it, the caller's token and the time. Raises before it changes anything."""

REFUSED_AGAIN_S: Final = 0.1
"""Pause before time is looked at again when nothing could be appended."""


class CoordinatorRuntime(Generic[S]):
    """See the module. Its owner tells it which partitions are led: `led`, `retired`."""

    def __init__(
        self,
        environment: Environment,
        metadata: MetadataAccess,
        tasks: TaskScope,
        *,
        topic: str,
        broker_id: int,
        make_shard: Callable[[int, int], S],
        commit_timeout_s: float,
        errand: Callable[[int, object], None] | None = None,
    ) -> None:
        """Serve the partitions of `topic` that this broker leads.

        Args:
            environment: the outside world.
            metadata: tells whose a partition is that is not led here.
            tasks: end with this incarnation.
            topic: the internal topic's name.
            broker_id: this broker's.
            make_shard: gets partition and leader epoch, returns an empty shard.
            commit_timeout_s: longest that a decided reply is held back for its commit.
            errand: gets a partition and one of its shard's `CoordinatorResult.errands`, once
            committed.
        """
        self.topic = topic
        self._environment = environment
        self._tasks = tasks
        self._commit_timeout_s = commit_timeout_s
        self._errand = errand
        self._shards: ShardDirectory[S] = ShardDirectory(metadata, topic, broker_id)
        self._tokens = count(1)
        self._loader = ShardLoader(environment, topic, make_shard)
        # Wall time without its jumps: sessions must not end because somebody set the clock.
        loop_ms = int(asyncio.get_running_loop().time() * 1000)
        self._began_ms = environment.clock.now_ms() - loop_ms

    # Told by the replicas.

    def led(self, partition: int, log: CoordinatorPartition) -> None:
        """Take in that this broker serves a partition from now on: read its log, then serve."""
        self.retired(partition)
        led: ShardContext[S] = ShardContext(partition, log, self._expire)
        self._shards.led[partition] = led
        self._tasks.start(self._load(led), f"load {self.topic}-{partition}")

    def retired(self, partition: int) -> None:
        """Take in that a partition is led here no more."""
        led = self._shards.led.pop(partition, None)
        if led is not None:
            led.retired = True
            led.drop(self._shards.elsewhere(partition))

    # For handlers.

    @property
    def active(self) -> list[int]:
        """Return the partitions that are served now."""
        return self._shards.active

    @property
    def loading(self) -> list[int]:
        """Return the partitions whose log is being read."""
        return self._shards.loading

    def leader_epoch(self, partition: int) -> int:
        """Return the leader epoch in which a partition is served here.

        Raises:
            NotCoordinator, CoordinatorLoading, CoordinatorNotAvailable: see `submit`.
        """
        return self._shards.serving(partition).log.leader_epoch

    def begin_verification(self, partition: int, producer: ProducerIdentity) -> Verification | None:
        """Return what goes with the question whether a transaction has a partition.

        None: there is no need to ask, it has records here.

        Raises:
            NotCoordinator, CoordinatorLoading, CoordinatorNotAvailable: see `submit`.
        """
        led = self._shards.ready(partition)
        is_over = led.has_marker(producer.producer_id)
        return led.log.begin_verification(producer, is_over=is_over)

    async def submit(
        self,
        partition: int,
        event: Event[S],
        *,
        producer: ProducerIdentity | None = None,
        verification: Verification | None = UNVERIFIED,
    ) -> object:
        """Run an event, and return the reply for its token, of it or of a later event.

        Args:
            partition: whose shard.
            event: see `Event`.
            producer: whose transaction the records will be part of, if any: refused when stale.
            verification: what `begin_verification` returned, the transaction's coordinator having
                agreed since.

        Raises:
            NotCoordinator: another broker leads the partition.
            CoordinatorLoading: its log is being read.
            CoordinatorNotAvailable: nobody leads it, or nothing can be committed now; in that case
                the event may have happened.
            InvalidProducerEpoch: a newer producer has the id.
            InvalidTxnState: the transaction has not this partition, or has ended.
            RecordTooLarge: the records are over the topic's `max.message.bytes`.
            SparklogError: what the event raised, or replied.
        """
        if producer is None:
            led = self._shards.ready(partition)
        else:
            led = self._shards.ready_for(partition, producer)
            led.log.check_verified(producer, verification)
        token = next(self._tokens)
        waiting: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        led.waiting[token] = waiting
        try:
            self._run(led, lambda shard, now_ms: event(shard, token, now_ms))
            return await waiting
        finally:
            led.waiting.pop(token, None)

    async def end_transaction(
        self,
        partition: int,
        producer: ProducerIdentity,
        marker: EndTransactionMarker,
        *,
        ends_older: bool = False,
    ) -> None:
        """Append a marker and have the shard take it in; return once it is committed.

        With `ends_older` the epoch was raised for this marker: see `ProducerStates.check_marker`.

        Raises:
            NotCoordinator, CoordinatorLoading, CoordinatorNotAvailable: see `submit`.
            InvalidProducerEpoch: a newer producer has the id.
            TransactionCoordinatorFenced: a newer transaction coordinator wrote here.
        """
        led = self._shards.ready_for(partition, producer)
        led.log.prepare_marker(producer, marker, ends_older=ends_older)
        shard = led.shard
        assert shard is not None, partition
        token = next(self._tokens)
        waiting: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        led.waiting[token] = waiting
        try:
            shard.replay_marker(producer.producer_id, producer.producer_epoch, marker.is_commit)
            led.gathered.append(QueuedMarker(producer, marker, token))
            self._start_append(led)
            self._arm(led)
            await waiting
        finally:
            led.waiting.pop(token, None)

    # Events.

    def _now_ms(self) -> int:
        return self._began_ms + int(asyncio.get_running_loop().time() * 1000)

    def _run(
        self,
        led: ShardContext[S],
        event: Callable[[S, int], CoordinatorResult],
        *,
        own: bool = False,
    ) -> None:
        """Run an event whose caller waits, or one of our `own` that nobody asked for.

        Raises:
            SparklogError: what the event raised; it has changed nothing.
        """
        shard = led.shard
        assert shard is not None, led.partition
        try:
            effects = event(shard, self._now_ms())
        except SparklogError:
            raise
        except Exception as error:
            # Half an event may have happened: the log knows what did.
            logger.exception("a coordinator broke topic=%s-%d", self.topic, led.partition)
            broke = CoordinatorNotAvailable(f"the coordinator broke: {error!r}")
            self._reload(led, broke, own=own)
            return
        self._take(led, effects, own=own)
        self._arm(led)

    def _run_own(self, led: ShardContext[S], event: Callable[[S, int], CoordinatorResult]) -> None:
        """Run an event of which nobody waits for the outcome; one that cannot be now comes back."""
        try:
            self._run(led, event, own=True)
        except SparklogError as error:
            logger.warning("a coordinator put off %s-%d: %s", self.topic, led.partition, error)
            if not led.timer.is_set:
                led.timer.set(asyncio.get_running_loop().time() + REFUSED_AGAIN_S)

    def _take(self, led: ShardContext[S], effects: CoordinatorResult, *, own: bool) -> None:
        for note in effects.notes:
            logger.info("%s", note)
        if effects.at_once:
            led.reply(effects.replies)
            if not effects.records and not effects.errands:
                return
        if effects.records and size_bytes(effects.records) > led.log.batch_bytes_max:
            too_large = RecordTooLarge(
                "what was decided is over max.message.bytes. "
                f"topic={self.topic} bytes={size_bytes(effects.records)} "
                f"max.message.bytes={led.log.batch_bytes_max}"
            )
            led.reply(tuple((token, too_large) for token, _ in effects.replies))
            self._reload(led, self._shards.is_loading(led.partition), own=own)
            return
        if not effects.records and not effects.replies and not effects.errands:
            return
        if effects.records or led.gathered or led.appending:
            led.gathered.append(effects)
            self._start_append(led)
        else:
            led.reply(effects.replies)
            self._run_errands(led, effects.errands)

    def _run_errands(self, led: ShardContext[S], errands: Iterable[object]) -> None:
        for errand in errands:
            assert self._errand is not None, errand
            self._errand(led.partition, errand)

    def _arm(self, led: ShardContext[S]) -> None:
        """Have time looked at when the shard wants it."""
        shard = led.shard
        deadline_ms = None if shard is None else shard.next_deadline_ms
        if deadline_ms is None:
            led.timer.cancel()
            return
        # One that is set for earlier looks too early, and is set again then.
        soon_s = asyncio.get_running_loop().time() + EARLY_S
        led.timer.set_no_later(max((deadline_ms - self._began_ms) / 1000, soon_s))

    def _expire(self, led: ShardContext[S], due_by_s: float) -> None:
        if led.shard is None:
            return
        try:
            self._shards.ready(led.partition)
        except SparklogError:
            led.timer.set(asyncio.get_running_loop().time() + REFUSED_AGAIN_S)
            return
        deadline_ms = led.shard.next_deadline_ms
        due_by_ms = self._began_ms + ceil(due_by_s * 1000)
        if deadline_ms is not None and deadline_ms <= due_by_ms:
            now_ms = max(self._now_ms(), deadline_ms)
            self._run_own(led, lambda shard, _: shard.expire(now_ms))
        else:
            self._arm(led)

    # Appending.

    def _start_append(self, led: ShardContext[S]) -> None:
        if not led.appending:
            led.appending = True
            self._tasks.start(self._append_all(led), f"append {self.topic}-{led.partition}")

    async def _append_all(self, led: ShardContext[S]) -> None:
        """Append what has gathered, and what gathers meanwhile."""
        shard = led.shard
        while led.gathered and led.shard is shard:
            batches = led.take_gathered(self._environment.clock.now_ms())
            try:
                await self._commit(led, shard, batches)
            except SparklogError as error:
                if led.shard is shard:
                    logger.warning("append failed topic=%s-%d %s", self.topic, led.partition, error)
                    self._reload(led, self._shards.elsewhere(led.partition), own=True)
                break
        if led.shard is shard:
            led.appending = False

    async def _commit(
        self, led: ShardContext[S], shard: S | None, batches: list[PendingBatch]
    ) -> None:
        """Append batches, wait until they are committed, and give their replies.

        Raises:
            SparklogError: not all were appended, or the epoch ended.
        """
        log, end_offset = led.log, 0
        for batch in batches:
            if batch.data is not None:
                await log.reserve_memory(len(batch.data.data))
                if led.shard is not shard:
                    log.release_memory(len(batch.data.data))
                    return
                end_offset = log.append(batch.data, batch.marker)
        while end_offset and not await log.wait_committed(end_offset, self._commit_timeout_s):
            if led.shard is not shard:
                return
            slow = CoordinatorNotAvailable(
                "not committed in time: the storage or a follower is slow; it may be yet. "
                f"topic={self.topic} partition={led.partition}"
            )
            for batch in batches:
                led.reply(tuple((token, slow) for token, _ in batch.replies))
        if led.shard is shard:
            for batch in batches:
                led.reply(batch.replies)
                self._run_errands(led, batch.errands)

    # Loading.

    async def _load(self, led: ShardContext[S], pause_s: float = 0.0) -> None:
        """Make the shard from the log, after a pause, and serve it."""
        if pause_s:
            await asyncio.sleep(pause_s)
        shard = await self._loader.load(led)
        if shard is None:
            return
        led.shard = shard
        led.served_s = asyncio.get_running_loop().time()
        led.appending = False
        self._run_own(led, lambda served, now_ms: served.loaded(now_ms))

    def _reload(self, led: ShardContext[S], why: SparklogError, *, own: bool) -> None:
        """Throw the shard away, and make it again if its partition is still led here.

        Callers who break it come at a pace of theirs; what breaks of our `own` is there at once.
        """
        led.drop(why)
        if not led.retired:
            pause_s = led.pause_after_break(asyncio.get_running_loop().time()) if own else 0.0
            self._tasks.start(self._load(led, pause_s), f"load {self.topic}-{led.partition} again")
