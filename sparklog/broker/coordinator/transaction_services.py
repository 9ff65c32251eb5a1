"""AddPartitionsToTxn: verifies that a transaction has a partition, or adds the partition to it.

The leader of a partition sends this request to the transaction's coordinator before it appends the
transaction's first records. With version 2 of the transaction protocol it adds the partition,
because clients no longer do so. Source: KIP-890; Kafka's AddPartitionsToTxnManager.

TransactionServices: the parts that one incarnation of a broker needs for transactions.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.coordinator.groups import GroupCoordinator
from sparklog.broker.coordinator.transactions import TransactionCoordinator
from sparklog.broker.coordinator.txn_markers import MarkerWriter, TxnMarkers
from sparklog.broker.runtime.current_settings import SettingsInForce
from sparklog.broker.runtime.environment import Address, Environment, TaskScope, Unreachable
from sparklog.broker.runtime.metadata_access import MetadataAccess
from sparklog.coordinator.effects import ProducerIdentity
from sparklog.coordinator.internal_topics import TRANSACTIONS_TOPIC, partition_for
from sparklog.coordinator.transaction.state import Partition
from sparklog.coordinator.transaction.transaction import EPOCH_BUMP_SINCE
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidTxnState,
    SparklogError,
    TransactionAbortable,
    Unavailable,
)
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part

VERSION: Final = 5
"""The version of AddPartitionsToTxn that brokers use among each other."""
ASK_TIMEOUT_S: Final = 10.0
PURPOSE: Final = "transactions"

Codes = Mapping[Partition, ErrorCode]

_BUSY: Final = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.network_exception,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)
_REFUSALS: Final[Mapping[ErrorCode, type[SparklogError]]] = {
    ErrorCode.invalid_producer_epoch: InvalidProducerEpoch,
    ErrorCode.invalid_producer_id_mapping: InvalidProducerIdMapping,
    ErrorCode.invalid_txn_state: InvalidTxnState,
}


class AddPartitionsToTxn:
    """See the module."""

    def __init__(
        self,
        environment: Environment,
        config: BrokerConfig,
        broker_id: int,
        metadata: MetadataAccess,
        coordinator: TransactionCoordinator,
    ) -> None:
        """Ask `coordinator` if this broker coordinates the transaction, else the network."""
        self._network = environment.network
        self._first_pause_s = config.whole("add.partitions.to.txn.retry.backoff.ms") / 1000
        self._patience_s = config.whole("add.partitions.to.txn.retry.backoff.max.ms") / 1000
        self._settings = SettingsInForce(config, metadata, broker_id)
        self._broker_id = broker_id
        self._metadata = metadata
        self._coordinator = coordinator
        self._turns: dict[int, tuple[asyncio.Lock, int]] = {}

    @property
    def verifies(self) -> bool:
        """Return True if partitions verify transactions with the coordinator."""
        return self._settings.config.flag("transaction.partition.verification.enable")

    @asynccontextmanager
    async def turn(self, producer_id: int) -> AsyncIterator[None]:
        """Run the questions of one producer one after the other, in order of arrival."""
        lock, users = self._turns.get(producer_id, (asyncio.Lock(), 0))
        self._turns[producer_id] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._turns.pop(producer_id)
            if users > 1:
                self._turns[producer_id] = lock, users - 1

    def is_asking(self, producer_id: int) -> bool:
        """Return True if a request of the producer asks or waits now."""
        return producer_id in self._turns

    async def add_or_verify(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[Partition],
        *,
        adds: bool,
    ) -> Codes:
        """Return a code for each partition: none if the transaction has it now.

        With `adds` the coordinator adds the partitions, else it only verifies them. If the
        producer's previous transaction is still ending, the call retries for a short time.
        """
        loop = asyncio.get_running_loop()
        deadline, pause_s = loop.time() + self._patience_s, self._first_pause_s
        while True:
            codes = await self._ask(transactional_id, producer, partitions, adds=adds)
            is_ending = ErrorCode.concurrent_transactions in codes.values()
            if not is_ending or loop.time() + pause_s > deadline:
                return codes
            await asyncio.sleep(pause_s)
            pause_s *= 2

    def error_for(
        self, code: ErrorCode, *, adds: bool, can_abort: bool, busy: type[SparklogError]
    ) -> SparklogError | None:
        """Return the error for a producer whose records are rejected because of a code, or None.

        Args:
            code: the coordinator's code, or `network_exception` if it did not respond.
            adds: True if the client uses version 2 of the transaction protocol.
            can_abort: True if the client knows TRANSACTION_ABORTABLE.
            busy: the retriable error that this client understands.
        """
        if code is ErrorCode.none:
            return None
        reason = f"the transaction's coordinator returned {code.name}"
        if code is ErrorCode.producer_fenced:
            return InvalidProducerEpoch(f"a newer producer has the transactional id: {reason}")
        if code is ErrorCode.transaction_abortable:
            reason = f"the partition is not in the transaction: {reason}"
            return TransactionAbortable(reason) if can_abort else InvalidTxnState(reason)
        if code is ErrorCode.concurrent_transactions and adds:
            return ConcurrentTransactions(f"{reason}; try again in a moment")
        if code in _BUSY:
            return busy(f"it is unknown if the transaction has the partition: {reason}")
        return _REFUSALS.get(code, Unavailable)(reason)

    async def _ask(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[Partition],
        *,
        adds: bool,
    ) -> Codes:
        try:
            broker_id, address = self._find(transactional_id)
            if broker_id == self._broker_id:
                return await self._ask_here(transactional_id, producer, partitions, adds=adds)
            response = await self._network.call(
                address,
                _request(transactional_id, producer, partitions, adds=adds),
                timeout_s=ASK_TIMEOUT_S,
                purpose=PURPOSE,
            )
        except (Unreachable, TimeoutError):
            return dict.fromkeys(partitions, ErrorCode.network_exception)
        except SparklogError as error:
            return dict.fromkeys(partitions, ErrorCode(error.kafka_code))
        return _codes(partitions, response)

    async def _ask_here(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[Partition],
        *,
        adds: bool,
    ) -> Codes:
        if adds:
            await self._coordinator.add_partitions(
                transactional_id, producer, partitions, EPOCH_BUMP_SINCE, waits=True
            )
            return dict.fromkeys(partitions, ErrorCode.none)
        found = await self._coordinator.verify(transactional_id, producer, partitions)
        absent = ErrorCode(TransactionAbortable.kafka_code)
        return {p: ErrorCode.none if p in found else absent for p in partitions}

    def _find(self, transactional_id: str) -> tuple[int, Address]:
        """Return the broker that coordinates a transactional id.

        Raises:
            CoordinatorNotAvailable: no broker does now.
        """
        image = self._metadata.image
        topic = image.topics.get(TRANSACTIONS_TOPIC)
        if topic is not None:
            partition = partition_for(transactional_id, topic.partitions)
            broker = image.brokers.get(topic.partition_states[partition].leader)
            if broker is not None and not broker.fenced:
                return broker.broker_id, Address(broker.host, broker.port)
        raise CoordinatorNotAvailable(
            f"the transaction has no coordinator now. transactional_id={transactional_id!r}"
        )


def _request(
    transactional_id: str,
    producer: ProducerIdentity,
    partitions: Collection[Partition],
    *,
    adds: bool,
) -> Any:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, number in partitions:
        by_topic[topic].append(number)
    transaction = build_request_part(
        Api.ADD_PARTITIONS_TO_TXN,
        VERSION,
        "AddPartitionsToTxnTransaction",
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        verify_only=not adds,
        topics=tuple(
            build_request_part(
                Api.ADD_PARTITIONS_TO_TXN,
                VERSION,
                "AddPartitionsToTxnTopic",
                name=topic,
                partitions=tuple(sorted(numbers)),
            )
            for topic, numbers in sorted(by_topic.items())
        ),
    )
    return build_request(Api.ADD_PARTITIONS_TO_TXN, VERSION, transactions=(transaction,))


def _codes(partitions: Collection[Partition], response: Any) -> Codes:
    if response.error_code is not ErrorCode.none:
        return dict.fromkeys(partitions, response.error_code)
    codes = dict.fromkeys(partitions, ErrorCode.unknown_server_error)
    for transaction in response.results_by_transaction:
        for topic in transaction.topic_results:
            for part in topic.results_by_partition:
                codes[topic.name, part.partition_index] = part.partition_error_code
    return codes


class TransactionServices:
    """The transaction coordinator, the writer of its markers, and the client of coordinators."""

    def __init__(
        self,
        environment: Environment,
        config: BrokerConfig,
        broker_id: int,
        metadata: MetadataAccess,
        tasks: TaskScope,
        groups: GroupCoordinator,
        txn_markers: TxnMarkers,
    ) -> None:
        """Begin without partitions; `coordinator` is notified of those that this broker leads."""
        self.txn_markers = txn_markers
        self.writer = MarkerWriter(metadata, groups, txn_markers)
        self.coordinator = TransactionCoordinator(
            environment, config, broker_id, metadata, tasks, self.writer.write
        )
        self.add_partitions_to_txn = AddPartitionsToTxn(
            environment, config, broker_id, metadata, self.coordinator
        )
