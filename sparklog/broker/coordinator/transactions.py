"""TransactionCoordinator: the transaction coordinator of one incarnation of a broker.

It finds the shard of a transactional id and runs the request as an event of the shard, which
decides: `coordinator.transaction.shard`. Once the decision to end a transaction is committed,
`MarkerSender` sends the markers. When every partition has its marker, the coordinator completes the
transaction. While a transaction ends, its producer's next request waits for a short time instead of
failing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final, cast

from sparklog.broker.controller.producer_ids import ProducerIds
from sparklog.broker.coordinator.marker_sender import MarkerSender, WriteHere
from sparklog.broker.coordinator.partition_log import CoordinatorPartition
from sparklog.broker.coordinator.runtime import CoordinatorRuntime, Event
from sparklog.broker.runtime.environment import Environment, TaskScope
from sparklog.broker.runtime.metadata_access import MetadataAccess
from sparklog.coordinator.effects import CoordinatorResult, ProducerIdentity, Token
from sparklog.coordinator.internal_topics import TRANSACTIONS_TOPIC, partition_for
from sparklog.coordinator.transaction.shard import (
    TransactionSettings,
    TransactionShard,
    WriteMarkers,
    wanted,
)
from sparklog.coordinator.transaction.state import Partition, TransactionMetadata, TransactionState
from sparklog.coordinator.transaction.transaction import (
    EndTransaction,
    InitProducer,
    NeedsProducerId,
)
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.errors import (
    ConcurrentTransactions,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    NotCoordinator,
    SparklogError,
)

logger = logging.getLogger(__name__)

ENDING_WAIT_S: Final = 1.0
"""Longest wait of a producer's request while the previous transaction is ending."""
COMMIT_TIMEOUT_S: Final = 5.0
COMPLETE_RETRY_S: Final = 0.1

TransactionEvent = Event[TransactionShard]


class TransactionCoordinator:
    """See the module. Every call raises if this broker does not serve the id now.

    Raises:
        NotCoordinator: find the coordinator again.
        CoordinatorLoading, CoordinatorNotAvailable: try again.
    """

    def __init__(
        self,
        environment: Environment,
        config: BrokerConfig,
        broker_id: int,
        metadata: MetadataAccess,
        tasks: TaskScope,
        write_here: WriteHere,
    ) -> None:
        """Begin without partitions; `on_elected` and `on_resigned` add and remove them.

        `write_here` appends markers to partitions that this broker leads.
        """
        settings = TransactionSettings.of(config)
        self.runtime = CoordinatorRuntime(
            environment,
            metadata,
            tasks,
            topic=TRANSACTIONS_TOPIC,
            broker_id=broker_id,
            make_shard=lambda partition, leader_epoch: TransactionShard(settings, leader_epoch),
            commit_timeout_s=COMMIT_TIMEOUT_S,
            errand=self._run_errand,
        )
        self._sender = MarkerSender(
            environment.network, metadata, broker_id, tasks, write_here, self._complete
        )
        self._metadata = metadata
        self._producer_ids = ProducerIds(metadata, broker_id)
        self._endings: dict[str, asyncio.Future[None]] = {}
        """By transactional id: completed when the transaction has ended."""

    async def init_producer(self, request: InitProducer) -> ProducerIdentity:
        """Return a producer's id and new epoch; the earlier producer with the id is fenced.

        Raises, besides:
            InvalidRequest, InvalidTransactionTimeout: see `TransactionShard.init_producer`.
            ProducerFenced: the id or epoch that the producer expects to have is not current.
            ConcurrentTransactions: the previous transaction is still ending; try again.
        """
        return await self._submit_with_id(
            request.transactional_id,
            lambda fresh_id: (
                lambda shard, token, now_ms: shard.init_producer(token, request, fresh_id, now_ms)
            ),
        )

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[Partition],
        client_version: int,
        *,
        waits: bool,
    ) -> None:
        """Add partitions to the producer's transaction, which begins with the first of them.

        With `waits` the call waits a short time for the end of the previous transaction.

        Raises, besides:
            InvalidRequest, InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions,
                RecordTooLarge: see `TransactionShard.add_partitions`.
        """
        added = frozenset(partitions)
        await self._submit(
            transactional_id,
            lambda shard, token, now_ms: shard.add_partitions(
                token, transactional_id, producer, added, client_version, now_ms
            ),
            waits=waits,
        )

    async def verify(
        self, transactional_id: str, producer: ProducerIdentity, partitions: Collection[Partition]
    ) -> frozenset[Partition]:
        """Return the partitions that are in the producer's transaction.

        Raises, besides:
            InvalidRequest, InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions: see
                `TransactionShard.verify`.
        """
        wanted_partitions = frozenset(partitions)
        found = await self._submit(
            transactional_id,
            lambda shard, token, _: shard.verify(
                token, transactional_id, producer, wanted_partitions
            ),
            waits=False,
        )
        return cast("frozenset[Partition]", found)

    async def end(self, request: EndTransaction) -> ProducerIdentity:
        """Decide the outcome of a transaction; return the id and epoch for the next one.

        Raises, besides:
            InvalidRequest, InvalidProducerIdMapping, ProducerFenced, InvalidTxnState,
                ConcurrentTransactions: see `TransactionShard.end`.
        """
        return await self._submit_with_id(
            request.transactional_id,
            lambda fresh_id: (
                lambda shard, token, now_ms: shard.end(token, request, fresh_id, now_ms)
            ),
        )

    async def describe(self, transactional_id: str) -> TransactionMetadata:
        """Return the state of a transactional id.

        Raises, besides:
            InvalidRequest, TransactionalIdNotFound: see `TransactionShard.describe`.
        """
        found = await self._submit(
            transactional_id,
            lambda shard, token, _: shard.describe(token, transactional_id),
            waits=False,
        )
        return cast("TransactionMetadata", found)

    async def list_transactions(
        self,
        states: Collection[TransactionState],
        producer_ids: Collection[int],
        running_ms: int = -1,
    ) -> list[TransactionMetadata]:
        """Return the transactional ids coordinated here that pass the filters.

        Raises:
            CoordinatorLoading: some shards still load.
        """
        if loading := self.runtime.loading:
            raise CoordinatorLoading(
                f"the coordinator reads its logs; try again in a moment. partitions={loading}"
            )
        found: list[TransactionMetadata] = []

        def event(shard: TransactionShard, token: Token, now_ms: int) -> CoordinatorResult:
            return shard.list(token, wanted(states, producer_ids, running_ms, now_ms))

        for partition in sorted(self.runtime.active):
            try:
                reply = await self.runtime.submit(partition, event)
            except NotCoordinator:
                continue  # lost meanwhile: another broker lists them
            found += cast("list[TransactionMetadata]", reply)
        return found

    # Running events.

    async def _submit_with_id(
        self, transactional_id: str, event_with: Callable[[int | None], TransactionEvent]
    ) -> ProducerIdentity:
        """Run an event, and once more with a new producer id if the shard needs one."""
        try:
            found = await self._submit(transactional_id, event_with(None), waits=True)
        except NeedsProducerId:
            fresh_id = await self._producer_ids.take()
            found = await self._submit(transactional_id, event_with(fresh_id), waits=True)
        return cast("ProducerIdentity", found)

    async def _submit(
        self, transactional_id: str, event: TransactionEvent, *, waits: bool
    ) -> object:
        topic = self._metadata.image.topics.get(TRANSACTIONS_TOPIC)
        if topic is None:
            raise NotCoordinator(
                "no transactional id has a coordinator yet; find it. "
                f"transactional_id={transactional_id!r}"
            )
        partition = partition_for(transactional_id, topic.partitions)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ENDING_WAIT_S
        while True:
            try:
                return await self.runtime.submit(partition, event)
            except ConcurrentTransactions:
                if not waits or not await self._wait_ended(transactional_id, deadline):
                    raise

    async def _wait_ended(self, transactional_id: str, deadline: float) -> bool:
        """Wait until the transaction has ended; return False at the deadline."""
        loop = asyncio.get_running_loop()
        if loop.time() >= deadline:
            return False
        ending = self._endings.get(transactional_id)
        if ending is None:
            ending = self._endings[transactional_id] = loop.create_future()
        await asyncio.wait([ending], timeout=deadline - loop.time())
        return ending.done()

    # Ending.

    def on_elected(self, partition: int, log: CoordinatorPartition) -> None:
        """See `LeaderListener`."""
        self.runtime.on_elected(partition, log)

    def on_resigned(self, partition: int) -> None:
        """See `LeaderListener`."""
        self.runtime.on_resigned(partition)
        self._sender.forget(partition)

    def _run_errand(self, partition: int, errand: object) -> None:
        assert isinstance(errand, WriteMarkers), errand
        self._sender.send(partition, errand)

    async def _complete(self, partition: int, done: WriteMarkers) -> None:
        """Have the shard complete a transaction whose partitions all have their marker."""

        def event(shard: TransactionShard, token: Token, now_ms: int) -> CoordinatorResult:
            effects = shard.complete(token, done, now_ms)
            # The producer's next request can join the append of this event.
            self._wake_waiters(done.transactional_id)
            return effects

        try:
            while True:
                try:
                    await self.runtime.submit(partition, event)
                except (NotCoordinator, CoordinatorLoading) as error:
                    # The next coordinator replays the log and sends the markers again.
                    logger.info("the next coordinator will complete a transaction %s", error)
                    return
                except CoordinatorNotAvailable:
                    await asyncio.sleep(COMPLETE_RETRY_S)
                else:
                    return
        except SparklogError as error:
            logger.warning("completing a transaction failed %s", error)
        finally:
            self._wake_waiters(done.transactional_id)

    def _wake_waiters(self, transactional_id: str) -> None:
        ending = self._endings.pop(transactional_id, None)
        if ending is not None and not ending.done():
            ending.set_result(None)
