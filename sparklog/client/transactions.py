"""Transactions: lists and describes transactions, and aborts hanging ones. Source: KIP-664."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from sparklog.client.addresses import BrokerAddress
from sparklog.client.connections import BrokerConnections, RequestDraft
from sparklog.client.errors import of_code
from sparklog.client.metadata import read_metadata
from sparklog.client.routing import (
    CoordinatorKind,
    ask_coordinators,
    ask_every_broker,
    ask_leaders,
    by_topic,
    partition_results,
)
from sparklog.client.values import (
    ActiveProducer,
    ServingBroker,
    TransactionDescription,
    TransactionListing,
)
from sparklog.core.clock import Clock
from sparklog.core.errors import NotServing, SparklogError, UnknownTopicOrPartition
from sparklog.core.types import TopicPartition
from sparklog.protocol.api_keys import Api

LIST_VERSIONS: Final = (0, 0)
DESCRIBE_VERSIONS: Final = (0, 0)
PRODUCERS_VERSIONS: Final = (0, 0)
MARKER_VERSIONS: Final = (1, 1)
MILLISECOND: Final = timedelta(milliseconds=1)


class TransactionAdmin:
    """The transactions of one cluster. Not thread-safe."""

    def __init__(self, brokers: BrokerConnections, clock: Clock) -> None:
        """Use these brokers; nothing is sent yet."""
        self._brokers = brokers
        self._clock = clock

    def list(self, producer_ids: Sequence[int] = ()) -> list[TransactionListing]:
        """Return the transactional ids of all coordinators, or those of some producer ids.

        Raises:
            Unavailable: a broker does not respond. InvalidRequest: it cannot list them.
        """

        def ask(address: BrokerAddress) -> Any:
            def draft(of: RequestDraft) -> Any:
                return of.request(state_filters=(), producer_id_filters=tuple(producer_ids))

            answer = self._brokers.tell(address, Api.LIST_TRANSACTIONS, *LIST_VERSIONS, draft)
            if answer.error_code != 0:
                doing = "transactions could not be listed"
                raise of_code(answer.error_code, None, doing, broker=address)
            return answer.transaction_states

        return [
            TransactionListing(
                state.transactional_id,
                broker.broker_id,
                int(state.producer_id),
                state.transaction_state,
            )
            for broker, states in ask_every_broker(self._brokers, ask, self._clock)
            for state in states
        ]

    def describe(
        self, transactional_ids: Sequence[str]
    ) -> dict[str, TransactionDescription | SparklogError]:
        """Return the descriptions of transactional ids; an error for each id that fails.

        Raises:
            Unavailable: no broker responds at all.
        """

        def ask(
            coordinator: ServingBroker, chosen: Sequence[str]
        ) -> dict[str, TransactionDescription | SparklogError]:
            def draft(of: RequestDraft) -> Any:
                return of.request(transactional_ids=tuple(chosen))

            answer = self._brokers.tell(
                coordinator.address, Api.DESCRIBE_TRANSACTIONS, *DESCRIBE_VERSIONS, draft
            )
            return {
                state.transactional_id: _described(coordinator, state)
                for state in answer.transaction_states
            }

        return ask_coordinators(
            self._brokers, CoordinatorKind.TRANSACTION, transactional_ids, ask, self._clock
        )

    def producers(
        self, partitions: Sequence[TopicPartition], broker_id: int | None = None
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...] | SparklogError]:
        """Return the active producers at the partitions' leaders, or at one broker.

        Raises:
            Unavailable: no broker responds at all. NotServing: that one is not live.
        """

        def ask(
            address: BrokerAddress, chosen: Sequence[TopicPartition]
        ) -> dict[TopicPartition, tuple[ActiveProducer, ...] | SparklogError]:
            return self._producers_of(address, chosen)

        if broker_id is None:
            return ask_leaders(self._brokers, partitions, ask, self._clock)
        broker = read_metadata(self._brokers, ()).brokers.get(broker_id)
        if broker is None:
            raise NotServing(f"no such broker serves. broker={broker_id}")
        missing = UnknownTopicOrPartition("the broker's answer leaves the partition out")
        found = self._producers_of(broker.address, partitions)
        return {tp: found.get(tp, missing) for tp in partitions}

    def abort(
        self, tp: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
    ) -> None:
        """Abort a producer's transaction in one partition, in place of its coordinator.

        Raises:
            InvalidRequest: the leader rejects it. UnknownTopicOrPartition, Unavailable.
        """

        def draft(of: RequestDraft) -> Any:
            topic = of.part(
                "WritableTxnMarkerTopic", name=tp.topic, partition_indexes=(tp.partition,)
            )
            marker = of.part(
                "WritableTxnMarker",
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transaction_result=False,
                topics=(topic,),
                coordinator_epoch=coordinator_epoch,
            )
            return of.request(markers=(marker,))

        def ask(
            address: BrokerAddress, _: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, bool | SparklogError]:
            answer = self._brokers.tell(address, Api.WRITE_TXN_MARKERS, *MARKER_VERSIONS, draft)
            return {
                found: True
                if result.error_code == 0
                else of_code(result.error_code, None, "the transaction was not aborted")
                for marker in answer.markers
                for found, result in partition_results(marker.topics).items()
            }

        outcome = ask_leaders(self._brokers, [tp], ask, self._clock)[tp]
        if isinstance(outcome, SparklogError):
            raise outcome

    def _producers_of(
        self, address: BrokerAddress, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...] | SparklogError]:
        def draft(of: RequestDraft) -> Any:
            return of.request(
                topics=tuple(
                    of.part(
                        "TopicRequest",
                        name=topic,
                        partition_indexes=tuple(tp.partition for tp in chosen),
                    )
                    for topic, chosen in by_topic(partitions)
                )
            )

        answer = self._brokers.tell(address, Api.DESCRIBE_PRODUCERS, *PRODUCERS_VERSIONS, draft)
        doing = "producers could not be described"
        return {
            tp: tuple(map(_producer, result.active_producers))
            if result.error_code == 0
            else of_code(result.error_code, result.error_message, doing, partition=tp)
            for tp, result in partition_results(answer.topics).items()
        }


def _described(coordinator: ServingBroker, state: Any) -> TransactionDescription | SparklogError:
    name = state.transactional_id
    if state.error_code != 0:
        doing = "the transactional id could not be described"
        return of_code(state.error_code, None, doing, transactional_id=name)
    return TransactionDescription(
        name,
        coordinator.broker_id,
        int(state.producer_id),
        int(state.producer_epoch),
        state.transaction_state,
        state.transaction_timeout // MILLISECOND,
        _time_ms(state.transaction_start_time),
        tuple(
            TopicPartition(topic.topic, int(partition))
            for topic in state.topics
            for partition in topic.partitions
        ),
    )


def _time_ms(at: datetime | None) -> int | None:
    if at is None:
        return None
    time_ms = round(at.timestamp() * 1000)
    return time_ms if time_ms >= 0 else None


def _producer(state: Any) -> ActiveProducer:
    start = int(state.current_txn_start_offset)
    return ActiveProducer(
        int(state.producer_id),
        int(state.producer_epoch),
        int(state.coordinator_epoch),
        int(state.last_sequence),
        int(state.last_timestamp),
        start if start >= 0 else None,
    )
