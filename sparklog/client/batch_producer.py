"""The steps of one transaction, for writers that encode their batches themselves.

Each step may be repeated after a lost response: the coordinator recognises it. As in the second
protocol version, the leaders that append the records add the partitions, and every end raises the
epoch. Source: KIP-98, KIP-447, KIP-890.

The module also appends one encoded batch to each of many partitions, through their leaders.

For batches that a leader appends once even if sent repeatedly, such as reference batches. An append
of unknown outcome is sent again. Ordinary records go through `Producer`. Source: KIP-516.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from sparklog.client.addresses import BrokerAddress
from sparklog.client.connections import BrokerConnections, RequestDraft
from sparklog.client.errors import of_code
from sparklog.client.routing import CoordinatorKind, ask_coordinators, ask_leaders, parts_by_topic
from sparklog.client.values import ServingBroker
from sparklog.core.clock import Clock
from sparklog.core.errors import OutcomeUnknown, SparklogError, Unavailable
from sparklog.core.types import TopicPartition
from sparklog.protocol.api_keys import Api
from sparklog.protocol.topic_ids import topic_id_of, uuid_of

INIT_VERSIONS: Final = (4, 5)
COMMIT_VERSIONS: Final = (5, 5)
END_VERSIONS: Final = (5, 5)
NO_PRODUCER: Final = -1
NO_GENERATION: Final = -1
NO_MEMBER: Final = ""


@dataclass(frozen=True, slots=True)
class TransactionalProducer:
    """A producer's identity at the coordinator: newer epochs fence older ones."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset of a group in one partition."""

    offset: int
    metadata: str


def begin_producer(
    brokers: BrokerConnections, transactional_id: str, timeout_ms: int, clock: Clock
) -> TransactionalProducer:
    """Take over a transactional id: fence its previous producer and abort its open transaction.

    When this returns, every earlier transaction of the id has ended, everywhere.

    Args:
        brokers: the cluster.
        transactional_id: the id.
        timeout_ms: limit for open transactions.
        clock: for waits.

    Raises:
        Unavailable: no coordinator responds, or the previous transaction does not end; try again.
        InvalidRequest: rejected, for example because the time-out is too long.
    """
    unknown = TransactionalProducer(transactional_id, NO_PRODUCER, NO_PRODUCER)

    def draft(of: RequestDraft) -> Any:
        timeout = timedelta(milliseconds=timeout_ms)
        return of.request(**_fields(unknown), transaction_timeout=timeout)

    step = _ProduceStep(Api.INIT_PRODUCER_ID, INIT_VERSIONS, draft, "no producer id was given")
    return _stepped(brokers, transactional_id, step, clock)


def commit_offsets_in_transaction(
    brokers: BrokerConnections,
    producer: TransactionalProducer,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    clock: Clock,
) -> None:
    """Commit offsets for a group without members, if the producer's transaction commits.

    Raises:
        Fenced: another producer has the transactional id. Unavailable: try again.
        InvalidRequest: rejected; abort.
    """

    def draft(of: RequestDraft) -> Any:
        topics = parts_by_topic(
            of,
            ("TxnOffsetCommitRequestTopic", "TxnOffsetCommitRequestPartition"),
            list(offsets),
            lambda tp: {
                "committed_offset": offsets[tp].offset,
                "committed_leader_epoch": -1,
                "committed_metadata": offsets[tp].metadata,
            },
        )
        return of.request(
            **_fields(producer),
            group_id=group_id,
            generation_id=NO_GENERATION,
            member_id=NO_MEMBER,
            group_instance_id=None,
            topics=topics,
        )

    def ask(coordinator: ServingBroker) -> bool | SparklogError:
        answer = brokers.tell(coordinator.address, Api.TXN_OFFSET_COMMIT, *COMMIT_VERSIONS, draft)
        codes = [part.error_code for topic in answer.topics for part in topic.partitions]
        failed = next((code for code in codes if code != 0), None)
        doing = "the offsets were not committed in the transaction"
        return True if failed is None else _refused(failed, doing, producer.transactional_id)

    _asked(brokers, CoordinatorKind.GROUP, group_id, ask, clock)


def end_transaction(
    brokers: BrokerConnections, producer: TransactionalProducer, clock: Clock, *, commit: bool
) -> TransactionalProducer:
    """Commit or abort, and return the producer's next identity.

    When this returns the outcome is final; the coordinator then writes the markers.

    Raises:
        Fenced: another producer has the transactional id. After a request without a response, the
            transaction may have been committed before that.
        Unavailable: try again. InvalidRequest: no transaction can end like this.
    """

    def draft(of: RequestDraft) -> Any:
        return of.request(**_fields(producer), committed=commit)

    doing = f"the transaction was not {'committed' if commit else 'aborted'}"
    step = _ProduceStep(Api.END_TXN, END_VERSIONS, draft, doing)
    return _stepped(brokers, producer.transactional_id, step, clock)


@dataclass(frozen=True, slots=True)
class _ProduceStep:
    """A request to a transaction coordinator whose response has the producer's next identity."""

    api: Api
    versions: tuple[int, int]
    draft: Callable[[RequestDraft], Any]
    doing: str
    """The failure in the error message."""


def _stepped(
    brokers: BrokerConnections, transactional_id: str, step: _ProduceStep, clock: Clock
) -> TransactionalProducer:
    """Send one step's request; return the producer's identity after it."""

    def ask(coordinator: ServingBroker) -> TransactionalProducer | SparklogError:
        answer = brokers.tell(coordinator.address, step.api, *step.versions, step.draft)
        if answer.error_code != 0:
            return _refused(answer.error_code, step.doing, transactional_id)
        return TransactionalProducer(
            transactional_id, int(answer.producer_id), int(answer.producer_epoch)
        )

    found = _asked(brokers, CoordinatorKind.TRANSACTION, transactional_id, ask, clock)
    assert isinstance(found, TransactionalProducer), found
    return found


def _fields(producer: TransactionalProducer) -> dict[str, Any]:
    """Return the producer fields of a request."""
    return {
        "transactional_id": producer.transactional_id,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
    }


def _asked(
    brokers: BrokerConnections,
    kind: CoordinatorKind,
    key: str,
    ask: Callable[[ServingBroker], Any],
    clock: Clock,
) -> Any:
    """Send a request to one coordinator until it responds, or the time is up."""

    def ask_again(coordinator: ServingBroker, _: Any) -> Mapping[str, Any]:
        try:
            return {key: ask(coordinator)}
        except OutcomeUnknown as error:
            return {key: Unavailable(str(error))}

    (outcome,) = ask_coordinators(brokers, kind, [key], ask_again, clock).values()
    if isinstance(outcome, SparklogError):
        raise outcome
    return outcome


def _refused(code: int, doing: str, transactional_id: str) -> SparklogError:
    return of_code(code, None, doing, transactional_id=transactional_id)


VERSIONS: Final = (13, 13)
"""With topic ids, so that a later topic of the same name never gets the batch."""
ACKS_ALL: Final = -1
TIMEOUT_S: Final = 20.0
"""Time that a leader may wait for replicas and the store before it responds."""


def append_batches(
    brokers: BrokerConnections,
    batches: Mapping[TopicPartition, bytes],
    topic_ids: Mapping[str, str],
    clock: Clock,
    *,
    patience_s: float,
    transactional_id: str | None = None,
) -> dict[TopicPartition, int | SparklogError]:
    """Append each partition's batch with acks=all; return the base offsets.

    Args:
        brokers: the cluster.
        batches: idempotent batches.
        topic_ids: the topics' ids, by name.
        clock: for waits.
        patience_s: time to find leaders.

        transactional_id: that of the batches' transaction, if they have one.

    `NotServing` and `Unavailable` do not say whether the batch was appended.

    Raises:
        Unavailable: no broker responds at all.
    """
    names = {topic_id: name for name, topic_id in topic_ids.items()}

    def ask(
        leader: BrokerAddress, chosen: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | SparklogError]:
        def draft(of: RequestDraft) -> Any:
            parts: dict[str, list[Any]] = {}
            for tp in chosen:
                part = of.part("PartitionProduceData", index=tp.partition, records=batches[tp])
                parts.setdefault(tp.topic, []).append(part)
            topics = tuple(
                of.part(
                    "TopicProduceData",
                    topic_id=uuid_of(topic_ids[topic]),
                    partition_data=tuple(some),
                )
                for topic, some in parts.items()
            )
            return of.request(
                transactional_id=transactional_id,
                acks=ACKS_ALL,
                timeout=timedelta(seconds=TIMEOUT_S),
                topic_data=topics,
            )

        answer = brokers.tell(leader, Api.PRODUCE, *VERSIONS, draft)
        return {
            (tp := TopicPartition(names[topic_id_of(topic.topic_id)], int(part.index))): _outcome(
                tp, part
            )
            for topic in answer.responses
            for part in topic.partition_responses
        }

    return ask_leaders(
        brokers, list(batches), ask, clock, patience_s=patience_s, topic_ids=topic_ids
    )


def _outcome(tp: TopicPartition, part: Any) -> int | SparklogError:
    if part.error_code == 0:
        return int(part.base_offset)
    error = of_code(part.error_code, part.error_message, "a batch was not appended", partition=tp)
    return Unavailable(str(error)) if isinstance(error, OutcomeUnknown) else error
