"""Hanging transactions: open in a partition, while no coordinator knows them and will end them.

They block readers of committed records. Source: KIP-664.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sparklog.client.values import ActiveProducer, TransactionDescription
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.core.types import TopicPartition

if TYPE_CHECKING:
    from sparklog.client.admin import Admin

UNKNOWN_EPOCH_AS: Final = 0
"""The coordinator epoch of a producer that never ended a transaction; no epoch is below it."""


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """One open transaction in one partition."""

    partition: TopicPartition
    producer: ActiveProducer
    age_ms: int
    """Since its last record."""


def hanging_transactions(
    admin: Admin,
    partitions: Sequence[TopicPartition],
    *,
    older_than_ms: int,
    now_ms: int,
    broker_id: int | None = None,
    failed: dict[TopicPartition, SparklogError] | None = None,
) -> list[HangingTransaction]:
    """Return the hanging transactions of partitions, as their leaders or one broker know them.

    `failed` takes the errors of partitions that have no answer; without it the first one is raised.

    Raises:
        SparklogError: the first partition's error, if one has no answer.
    """
    found = [
        HangingTransaction(tp, producer, now_ms - producer.last_timestamp_ms)
        for tp, producers in producers_of(admin, partitions, broker_id, failed).items()
        for producer in producers
        if producer.transaction_start_offset is not None
        and now_ms - producer.last_timestamp_ms > older_than_ms
    ]
    expected = _expected(admin, sorted({one.producer.producer_id for one in found}))
    return [one for one in found if (one.producer.producer_id, one.partition) not in expected]


def producers_of(
    admin: Admin,
    partitions: Sequence[TopicPartition],
    broker_id: int | None,
    failed: dict[TopicPartition, SparklogError] | None = None,
) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
    """Return the active producers of partitions.

    `failed` is as in `hanging_transactions`. Raises SparklogError: the first error.
    """
    found = {}
    for tp, producers in admin.transactions.producers(partitions, broker_id).items():
        if not isinstance(producers, SparklogError):
            found[tp] = producers
        elif failed is None:
            raise producers
        else:
            failed[tp] = producers
    return found


def abort_at(admin: Admin, tp: TopicPartition, start_offset: int) -> None:
    """Abort the transaction that begins at an offset, in place of its coordinator.

    Raises:
        InvalidRequest: none begins there. Others as `AdminTransactions.abort`.
    """
    for one in producers_of(admin, [tp], None)[tp]:
        if one.transaction_start_offset == start_offset:
            epoch = max(UNKNOWN_EPOCH_AS, one.coordinator_epoch)
            admin.transactions.abort(tp, one.producer_id, one.producer_epoch, epoch)
            return
    raise InvalidRequest(
        f"no open transaction begins there. partition={tp} start_offset={start_offset}"
    )


def _expected(admin: Admin, producer_ids: Sequence[int]) -> set[tuple[int, TopicPartition]]:
    """Return the transactions that a coordinator knows, and will end."""
    if not producer_ids:
        return set()
    names = [t.transactional_id for t in admin.transactions.list(producer_ids)]
    return {
        (found.producer_id, tp)
        for found in admin.transactions.describe(names).values()
        if isinstance(found, TransactionDescription)
        for tp in found.partitions
    }
