"""The steps of one transaction, for writers that encode their batches themselves.

Each step may be repeated after a lost response: the coordinator recognises it. As in the second
protocol version, the leaders that append the records add the partitions, and every end raises the
epoch. Source: KIP-98, KIP-447, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from sparklog.client.asking import Brokers, Draft
from sparklog.client.by_leader import parts_by_topic
from sparklog.client.coordinators import CoordinatorKind, ask_coordinators
from sparklog.client.errors import of_code
from sparklog.client.values import ServingBroker
from sparklog.core.clock import Clock
from sparklog.core.errors import OutcomeUnknown, SparklogError, Unavailable
from sparklog.core.types import TopicPartition
from sparklog.protocol.api import Api

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
    brokers: Brokers, transactional_id: str, timeout_ms: int, clock: Clock
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
    nobody = TransactionalProducer(transactional_id, NO_PRODUCER, NO_PRODUCER)

    def draft(of: Draft) -> Any:
        timeout = timedelta(milliseconds=timeout_ms)
        return of.request(**_fields(nobody), transaction_timeout=timeout)

    step = _Step(Api.INIT_PRODUCER_ID, INIT_VERSIONS, draft, "no producer id was given")
    return _stepped(brokers, transactional_id, step, clock)


def commit_offsets_in_transaction(
    brokers: Brokers,
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

    def draft(of: Draft) -> Any:
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
    brokers: Brokers, producer: TransactionalProducer, clock: Clock, *, commit: bool
) -> TransactionalProducer:
    """Commit or abort, and return the producer's next identity.

    When this returns the outcome is final; the coordinator then writes the markers.

    Raises:
        Fenced: another producer has the transactional id. After a request without a response, the
            transaction may have been committed before that.
        Unavailable: try again. InvalidRequest: no transaction can end like this.
    """

    def draft(of: Draft) -> Any:
        return of.request(**_fields(producer), committed=commit)

    doing = f"the transaction was not {'committed' if commit else 'aborted'}"
    step = _Step(Api.END_TXN, END_VERSIONS, draft, doing)
    return _stepped(brokers, producer.transactional_id, step, clock)


@dataclass(frozen=True, slots=True)
class _Step:
    """A request to a transaction coordinator whose response has the producer's next identity."""

    api: Api
    versions: tuple[int, int]
    draft: Callable[[Draft], Any]
    doing: str
    """The failure in the error message."""


def _stepped(
    brokers: Brokers, transactional_id: str, step: _Step, clock: Clock
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
    brokers: Brokers,
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
