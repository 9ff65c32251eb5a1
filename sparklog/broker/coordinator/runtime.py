"""CoordinatorRuntime: runs the shards of one internal topic, each on its partition's leader.

An event changes its shard at once. Its records gather while an append is under way, and go into the
next append (group commit). The caller gets the reply when they are committed.
  COORDINATOR-RUNTIME-1: a shard serves only after its whole log was replayed, and only in that
      leader epoch
  COORDINATOR-RUNTIME-2: replies go out in the order of the events, after their records are
      committed
  COORDINATOR-RUNTIME-3: if an append fails, the shard has changes that the log lacks. The runtime
      then drops the shard, sends all waiting callers to find the coordinator again, and replays
      the log into a new shard
  COORDINATOR-RUNTIME-4: markers and records are appended in the order in which the shard applied
      them
  COORDINATOR-RUNTIME-5: an event whose records cannot be appended now is rejected before it
      changes the shard

One append is in flight per partition. While the storage does not respond, the runtime keeps all
shards. Callers get a retriable error, and the records are committed when the storage responds.
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
"""Changes a shard. Arguments: the shard, the caller's token, the time in milliseconds. An event
that raises has changed nothing."""

RETRY_S: Final = 0.1
"""Pause before deadlines are checked again after an event was rejected."""


class CoordinatorRuntime(Generic[S]):
    """See the module. Its owner calls `on_elected` and `on_resigned` when leaders change."""

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
            environment: clock, store and network.
            metadata: the source of other partitions' leaders.
            tasks: the scope of this incarnation's tasks.
            topic: the internal topic's name.
            broker_id: this broker's id.
            make_shard: returns an empty shard for a partition and a leader epoch.
            commit_timeout_s: longest that a reply waits for the commit of its records.
            errand: called with a partition and one of its shard's `CoordinatorResult.errands`,
                after the commit.
        """
        self.topic = topic
        self._environment = environment
        self._tasks = tasks
        self._commit_timeout_s = commit_timeout_s
        self._errand = errand
        self._shards: ShardDirectory[S] = ShardDirectory(metadata, topic, broker_id)
        self._tokens = count(1)
        self._loader = ShardLoader(environment, topic, make_shard)
        # Wall time without its jumps: sessions must not end because the operator sets the clock.
        loop_ms = int(asyncio.get_running_loop().time() * 1000)
        self._began_ms = environment.clock.now_ms() - loop_ms

    # Called when roles change.

    def on_elected(self, partition: int, log: CoordinatorPartition) -> None:
        """Handle that this broker leads a partition now: replay its log, then serve."""
        self.on_resigned(partition)
        context: ShardContext[S] = ShardContext(partition, log, self._expire)
        self._shards.contexts[partition] = context
        self._tasks.start(self._load(context), f"load {self.topic}-{partition}")

    def on_resigned(self, partition: int) -> None:
        """Handle that this broker no longer leads a partition: fail its waiting callers."""
        context = self._shards.contexts.pop(partition, None)
        if context is not None:
            context.retired = True
            context.drop(self._shards.not_here_error(partition))

    # Called by handlers.

    @property
    def active(self) -> list[int]:
        """Return the partitions that serve now."""
        return self._shards.active

    @property
    def loading(self) -> list[int]:
        """Return the partitions whose log is still being replayed."""
        return self._shards.loading

    def leader_epoch(self, partition: int) -> int:
        """Return the leader epoch in which this broker serves a partition.

        Raises:
            NotCoordinator, CoordinatorLoading, CoordinatorNotAvailable: see `submit`.
        """
        return self._shards.serving(partition).log.leader_epoch

    def begin_verification(self, partition: int, producer: ProducerIdentity) -> Verification | None:
        """Return a verification for the question whether a transaction has a partition.

        None: no question is needed. See `ProducerStates.begin_verification`.

        Raises:
            NotCoordinator, CoordinatorLoading, CoordinatorNotAvailable: see `submit`.
        """
        context = self._shards.ready(partition)
        is_over = context.has_marker(producer.producer_id)
        return context.log.begin_verification(producer, is_over=is_over)

    async def submit(
        self,
        partition: int,
        event: Event[S],
        *,
        producer: ProducerIdentity | None = None,
        verification: Verification | None = UNVERIFIED,
    ) -> object:
        """Run an event and return the reply to its token, from this event or a later one.

        Args:
            partition: the partition of the shard.
            event: see `Event`.
            producer: the producer whose transaction gets the records, if any.
            verification: the result of `begin_verification`; the transaction's coordinator must
                have confirmed the partition since.

        Raises:
            NotCoordinator: another broker leads the partition.
            CoordinatorLoading: its log is being replayed.
            CoordinatorNotAvailable: no broker leads it, or nothing can be committed now. In the
                second case the event may have happened.
            InvalidProducerEpoch: a newer producer has the id.
            InvalidTxnState: the transaction does not have this partition, or has ended.
            RecordTooLarge: the records exceed the topic's `max.message.bytes`.
            SparklogError: the error that the event raised or replied.
        """
        if producer is None:
            context = self._shards.ready(partition)
        else:
            context = self._shards.ready_for(partition, producer)
            context.log.check_verified(producer, verification)
        token = next(self._tokens)
        waiting: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        context.waiting[token] = waiting
        try:
            self._run(context, lambda shard, now_ms: event(shard, token, now_ms))
            return await waiting
        finally:
            context.waiting.pop(token, None)

    async def end_transaction(
        self,
        partition: int,
        producer: ProducerIdentity,
        marker: EndTransactionMarker,
        *,
        ends_older: bool = False,
    ) -> None:
        """Apply a marker to the shard and append it; return once it is committed.

        With `ends_older` the epoch was raised for this marker: see `ProducerStates.check_marker`.

        Raises:
            NotCoordinator, CoordinatorLoading, CoordinatorNotAvailable: see `submit`.
            InvalidProducerEpoch: a newer producer has the id.
            TransactionCoordinatorFenced: a newer transaction coordinator wrote a marker before.
        """
        context = self._shards.ready_for(partition, producer)
        context.log.prepare_marker(producer, marker, ends_older=ends_older)
        shard = context.shard
        assert shard is not None, partition
        token = next(self._tokens)
        waiting: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        context.waiting[token] = waiting
        try:
            shard.replay_marker(producer.producer_id, producer.producer_epoch, marker.is_commit)
            context.gathered.append(QueuedMarker(producer, marker, token))
            self._start_append(context)
            self._set_timer(context)
            await waiting
        finally:
            context.waiting.pop(token, None)

    # Events.

    def _now_ms(self) -> int:
        return self._began_ms + int(asyncio.get_running_loop().time() * 1000)

    def _run(
        self,
        context: ShardContext[S],
        event: Callable[[S, int], CoordinatorResult],
        *,
        internal: bool = False,
    ) -> None:
        """Run an event whose caller waits, or one of the runtime's `internal` events.

        Raises:
            SparklogError: the error of the event, which has changed nothing.
        """
        shard = context.shard
        assert shard is not None, context.partition
        try:
            effects = event(shard, self._now_ms())
        except SparklogError:
            raise
        except Exception as error:
            # The event may have changed a part of the shard. The log has the right state.
            logger.exception(
                "a coordinator event failed topic=%s-%d", self.topic, context.partition
            )
            failure = CoordinatorNotAvailable(f"a coordinator event failed: {error!r}")
            self._reload(context, failure, internal=internal)
            return
        self._apply_result(context, effects, internal=internal)
        self._set_timer(context)

    def _run_internal(
        self, context: ShardContext[S], event: Callable[[S, int], CoordinatorResult]
    ) -> None:
        """Run an internal event; if it is rejected now, try again after a pause."""
        try:
            self._run(context, event, internal=True)
        except SparklogError as error:
            text = "a coordinator event is postponed topic=%s-%d %s"
            logger.warning(text, self.topic, context.partition, error)
            if not context.timer.is_set:
                context.timer.set(asyncio.get_running_loop().time() + RETRY_S)

    def _apply_result(
        self, context: ShardContext[S], effects: CoordinatorResult, *, internal: bool
    ) -> None:
        for note in effects.notes:
            logger.info("%s", note)
        if effects.at_once:
            context.reply(effects.replies)
            if not effects.records and not effects.errands:
                return
        if effects.records and size_bytes(effects.records) > context.log.batch_bytes_max:
            too_large = RecordTooLarge(
                "the coordinator's records exceed max.message.bytes. "
                f"topic={self.topic} bytes={size_bytes(effects.records)} "
                f"max.message.bytes={context.log.batch_bytes_max}"
            )
            context.reply(tuple((token, too_large) for token, _ in effects.replies))
            self._reload(context, self._shards.loading_error(context.partition), internal=internal)
            return
        if not effects.records and not effects.replies and not effects.errands:
            return
        if effects.records or context.gathered or context.appending:
            context.gathered.append(effects)
            self._start_append(context)
        else:
            context.reply(effects.replies)
            self._run_errands(context, effects.errands)

    def _run_errands(self, context: ShardContext[S], errands: Iterable[object]) -> None:
        for errand in errands:
            assert self._errand is not None, errand
            self._errand(context.partition, errand)

    def _set_timer(self, context: ShardContext[S]) -> None:
        """Set the timer for the shard's next deadline."""
        shard = context.shard
        deadline_ms = None if shard is None else shard.next_deadline_ms
        if deadline_ms is None:
            context.timer.cancel()
            return
        # A timer that is set for an earlier time expires too early, and is set again then.
        soon_s = asyncio.get_running_loop().time() + EARLY_S
        context.timer.set_no_later(max((deadline_ms - self._began_ms) / 1000, soon_s))

    def _expire(self, context: ShardContext[S], due_by_s: float) -> None:
        if context.shard is None:
            return
        try:
            self._shards.ready(context.partition)
        except SparklogError:
            context.timer.set(asyncio.get_running_loop().time() + RETRY_S)
            return
        deadline_ms = context.shard.next_deadline_ms
        due_by_ms = self._began_ms + ceil(due_by_s * 1000)
        if deadline_ms is not None and deadline_ms <= due_by_ms:
            now_ms = max(self._now_ms(), deadline_ms)
            self._run_internal(context, lambda shard, _: shard.expire(now_ms))
        else:
            self._set_timer(context)

    # Appending.

    def _start_append(self, context: ShardContext[S]) -> None:
        if not context.appending:
            context.appending = True
            self._tasks.start(self._append_all(context), f"append {self.topic}-{context.partition}")

    async def _append_all(self, context: ShardContext[S]) -> None:
        """Append the gathered effects, and those that gather meanwhile."""
        shard = context.shard
        while context.gathered and context.shard is shard:
            batches = context.take_gathered(self._environment.clock.now_ms())
            try:
                await self._commit(context, shard, batches)
            except SparklogError as error:
                if context.shard is shard:
                    logger.warning(
                        "append failed topic=%s-%d %s", self.topic, context.partition, error
                    )
                    self._reload(
                        context, self._shards.not_here_error(context.partition), internal=True
                    )
                break
        if context.shard is shard:
            context.appending = False

    async def _commit(
        self, context: ShardContext[S], shard: S | None, batches: list[PendingBatch]
    ) -> None:
        """Append batches, wait until they are committed, and send their replies.

        Raises:
            SparklogError: not all batches were appended, or the epoch ended.
        """
        log, end_offset = context.log, 0
        for batch in batches:
            if batch.data is not None:
                await log.reserve_memory(len(batch.data.data))
                if context.shard is not shard:
                    log.release_memory(len(batch.data.data))
                    return
                end_offset = log.append(batch.data, batch.marker)
        while end_offset and not await log.wait_committed(end_offset, self._commit_timeout_s):
            if context.shard is not shard:
                return
            slow = CoordinatorNotAvailable(
                "not committed in time: the storage or a follower is slow; a commit may follow. "
                f"topic={self.topic} partition={context.partition}"
            )
            for batch in batches:
                context.reply(tuple((token, slow) for token, _ in batch.replies))
        if context.shard is shard:
            for batch in batches:
                context.reply(batch.replies)
                self._run_errands(context, batch.errands)

    # Loading.

    async def _load(self, context: ShardContext[S], pause_s: float = 0.0) -> None:
        """Replay the log into a new shard, after a pause, and serve it."""
        if pause_s:
            await asyncio.sleep(pause_s)
        shard = await self._loader.load(context)
        if shard is None:
            return
        context.shard = shard
        context.served_s = asyncio.get_running_loop().time()
        context.appending = False
        self._run_internal(context, lambda served, now_ms: served.loaded(now_ms))

    def _reload(self, context: ShardContext[S], why: SparklogError, *, internal: bool) -> None:
        """Drop the shard, and load it again if this broker still leads its partition.

        Callers limit by themselves how often their events break a shard. The runtime's `internal`
        events would run again at once, so a pause comes first.
        """
        context.drop(why)
        if not context.retired:
            pause_s = (
                context.pause_after_failure(asyncio.get_running_loop().time()) if internal else 0.0
            )
            self._tasks.start(
                self._load(context, pause_s), f"load {self.topic}-{context.partition} again"
            )
