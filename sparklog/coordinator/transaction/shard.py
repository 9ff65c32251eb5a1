"""TransactionShard: the transactional ids of one partition of `__transaction_state`.

`transaction` decides the next state of one id. This module keeps the ids, creates records and
replies, and sets timers.

TRANSACTION-SHARD-1: The leader writes markers after their decision is committed. A new leader
    writes them again after its replay.
TRANSACTION-SHARD-2: An id without a transaction is deleted `transactional.id.expiration.ms` after
    its last use.

Times are ms. Source: Kafka's TransactionStateManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from sparklog.coordinator.effects import (
    NOTHING,
    CoordinatorRecord,
    CoordinatorResult,
    ProducerIdentity,
    Token,
    size_bytes,
)
from sparklog.coordinator.timers import Timers
from sparklog.coordinator.transaction import transaction as decisions
from sparklog.coordinator.transaction.state import (
    AT_REST,
    ENDING,
    Partition,
    TransactionMetadata,
    TransactionState,
    decode,
    decode_key,
    encode,
    tombstone,
)
from sparklog.coordinator.transaction.transaction import EndTransaction, InitProducer
from sparklog.core.config.model import Config
from sparklog.core.errors import (
    ConcurrentTransactions,
    InvalidRequest,
    InvalidTransactionTimeout,
    RecordTooLarge,
    TransactionalIdNotFound,
)

RECORD_BYTES_MAX: Final = 1_000_000
"""Limit for the state of one id: below the default of `max.message.bytes`."""
EXPIRED_AT_ONCE: Final = 500
"""Ids that expire in one batch."""


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Settings of transactions; `core.config.transaction_coordinator` has their defaults."""

    max_timeout_ms: int
    expiration_ms: int
    abort_interval_ms: int
    expiry_interval_ms: int

    @classmethod
    def of(cls, config: Config) -> TransactionSettings:
        """Return the settings from a broker's configuration."""
        return cls(
            config.whole("transaction.max.timeout.ms"),
            config.whole("transactional.id.expiration.ms"),
            config.whole("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            config.whole("transaction.remove.expired.transaction.cleanup.interval.ms"),
        )


class WriteMarkers(NamedTuple):
    """Work for the leader: every partition of a prepared transaction needs its marker."""

    transactional_id: str
    producer: ProducerIdentity
    """The producer, with the epoch of the markers."""
    is_commit: bool
    partitions: frozenset[Partition]
    coordinator_epoch: int
    client_version: int


class TransactionShard:
    """The transactional ids of one shard; see the module."""

    def __init__(self, settings: TransactionSettings, coordinator_epoch: int) -> None:
        """Start empty; `coordinator_epoch` is the leader epoch of the partition."""
        self._settings = settings
        self._coordinator_epoch = coordinator_epoch
        self._transactions: dict[str, TransactionMetadata] = {}
        self._timers: Timers[str] = Timers()

    def __len__(self) -> int:
        """Return the number of transactional ids."""
        return len(self._transactions)

    # Events of `effects.Shard`.

    def replay(
        self,
        record: CoordinatorRecord,
        *,
        offset: int,
        timestamp_ms: int,
        producer_id: int,
        producer_epoch: int,
        transactional: bool,
    ) -> None:
        """Apply a record of the log.

        Raises:
            DataCorrupt: the record cannot be read.
        """
        transactional_id = decode_key(record.key)
        if record.value is None:
            self._forget(transactional_id)
        else:
            self._keep(decode(transactional_id, record.value))

    def replay_marker(self, producer_id: int, producer_epoch: int, commit: bool) -> None:
        """Ignore a marker: coordinators write none to this topic."""

    def loaded(self, now_ms: int) -> CoordinatorResult:
        """Begin to serve: continue the prepared transactions."""
        ending = (t for t in self._transactions.values() if t.state in ENDING)
        return CoordinatorResult(errands=tuple(map(self._markers, ending)))

    @property
    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline in ms, or None."""
        return self._timers.next_ms

    def expire(self, now_ms: int) -> CoordinatorResult:
        """Abort transactions that timed out, and delete unused transactional ids."""
        records: list[CoordinatorRecord] = []
        errands: list[object] = []
        while len(records) < EXPIRED_AT_ONCE:
            transactional_id = self._timers.pop_due(now_ms)
            if transactional_id is None:
                break
            known = self._transactions[transactional_id]
            if known.state is TransactionState.ONGOING:
                aborted = self._keep(decisions.fenced(known, now_ms))
                records.append(encode(aborted))
                errands.append(self._markers(aborted))
            else:
                self._forget(transactional_id)
                records.append(tombstone(transactional_id))
        return CoordinatorResult(tuple(records), errands=tuple(errands)) if records else NOTHING

    # Requests of producers. The first line of each docstring describes the reply.

    def init_producer(
        self, token: Token, asked: InitProducer, fresh_id: int | None, now_ms: int
    ) -> CoordinatorResult:
        """Reply with the producer's next ProducerIdentity.

        Raises:
            InvalidRequest: no transactional id. InvalidTransactionTimeout: not within the limits.
            NeedsProducerId, ProducerFenced, ConcurrentTransactions: see `transaction.initialized`.
        """
        _check_id(asked.transactional_id)
        if not 0 < asked.timeout_ms <= self._settings.max_timeout_ms:
            raise InvalidTransactionTimeout(
                "transaction.timeout.ms is not within the brokers' transaction.max.timeout.ms. "
                f"transaction.timeout.ms={asked.timeout_ms} "
                f"transaction.max.timeout.ms={self._settings.max_timeout_ms}"
            )
        known = self._transactions.get(asked.transactional_id)
        after = decisions.initialized(known, asked, fresh_id, now_ms)
        if after.state is TransactionState.PREPARE_ABORT:
            waits = ConcurrentTransactions(
                "the transaction of the producer before is aborted; try again in a moment. "
                f"transactional_id={asked.transactional_id!r}"
            )
            return self._prepared(after, token, waits)
        self._keep(after)
        identity = ProducerIdentity(after.producer_id, after.producer_epoch)
        return CoordinatorResult((encode(after),), ((token, identity),))

    def add_partitions(
        self,
        token: Token,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: frozenset[Partition],
        client_version: int,
        now_ms: int,
    ) -> CoordinatorResult:
        """Reply with None once the partitions are in the transaction.

        Raises:
            InvalidRequest: no transactional id. RecordTooLarge: too many partitions.
            InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions: see
                `transaction.added`.
        """
        _check_id(transactional_id)
        known = self._transactions.get(transactional_id)
        after = decisions.added(known, producer, partitions, client_version, now_ms)
        if after is known:
            return CoordinatorResult(replies=((token, None),))
        record = encode(after)
        if size_bytes((record,)) > RECORD_BYTES_MAX:
            raise RecordTooLarge(
                "a transaction cannot have that many partitions. "
                f"transactional_id={transactional_id!r} partitions={len(after.partitions)}"
            )
        self._keep(after)
        return CoordinatorResult((record,), ((token, None),))

    def verify(
        self,
        token: Token,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: frozenset[Partition],
    ) -> CoordinatorResult:
        """Reply with those of the partitions that are in the transaction, as a frozenset.

        Raises:
            InvalidRequest, InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions: see
                `add_partitions`.
        """
        _check_id(transactional_id)
        known = self._transactions.get(transactional_id)
        return CoordinatorResult(
            replies=((token, decisions.verified(known, producer, partitions)),)
        )

    def end(
        self, token: Token, asked: EndTransaction, fresh_id: int | None, now_ms: int
    ) -> CoordinatorResult:
        """Reply with the producer's next ProducerIdentity, once the outcome is decided.

        Raises:
            InvalidRequest: no transactional id.
            NeedsProducerId, InvalidProducerIdMapping, ProducerFenced, InvalidTxnState,
                ConcurrentTransactions: see `transaction.ended`.
        """
        _check_id(asked.transactional_id)
        known = self._transactions.get(asked.transactional_id)
        after = decisions.ended(known, asked, fresh_id, now_ms)
        reply = decisions.producer_after(after)
        if after is known:
            return CoordinatorResult(replies=((token, reply),))
        return self._prepared(after, token, reply)

    def complete(self, token: Token, done: WriteMarkers, now_ms: int) -> CoordinatorResult:
        """Complete a transaction after all markers; reply with None.

        A repeated or late call changes nothing.
        """
        known = self._transactions.get(done.transactional_id)
        if known is None or known.state not in ENDING or self._markers(known) != done:
            return CoordinatorResult(replies=((token, None),))
        after = self._keep(decisions.completed(known, now_ms))
        return CoordinatorResult((encode(after),), ((token, None),))

    def describe(self, token: Token, transactional_id: str) -> CoordinatorResult:
        """Reply with the Transaction.

        Raises:
            InvalidRequest: no transactional id. TransactionalIdNotFound: it does not exist.
        """
        _check_id(transactional_id)
        known = self._transactions.get(transactional_id)
        if known is None:
            raise TransactionalIdNotFound(
                f"nobody uses the transactional id. transactional_id={transactional_id!r}"
            )
        return CoordinatorResult(replies=((token, known),))

    def list(
        self, token: Token, wanted: Callable[[TransactionMetadata], bool]
    ) -> CoordinatorResult:
        """Reply with a list of the Transactions that `wanted` accepts."""
        found = [t for t in self._transactions.values() if wanted(t)]
        return CoordinatorResult(replies=((token, found),))

    # Helpers.

    def _prepared(
        self, after: TransactionMetadata, token: Token, reply: object
    ) -> CoordinatorResult:
        self._keep(after)
        return CoordinatorResult(
            (encode(after),), ((token, reply),), errands=(self._markers(after),)
        )

    def _markers(self, ending: TransactionMetadata) -> WriteMarkers:
        return WriteMarkers(
            ending.transactional_id,
            ProducerIdentity(ending.producer_id, ending.producer_epoch),
            ending.is_commit,
            ending.partitions,
            self._coordinator_epoch,
            ending.client_version,
        )

    def _keep(self, transaction: TransactionMetadata) -> TransactionMetadata:
        transactional_id = transaction.transactional_id
        self._transactions[transactional_id] = transaction
        settings = self._settings
        deadline_ms, interval_ms = transaction.deadline_ms, settings.abort_interval_ms
        if transaction.state in AT_REST:
            deadline_ms = transaction.updated_ms + settings.expiration_ms
            interval_ms = settings.expiry_interval_ms
        if deadline_ms is None:
            self._timers.cancel(transactional_id)
        else:
            # Ids that are due in one interval have one deadline, and share a batch.
            rounds = -(-deadline_ms // interval_ms)
            self._timers.set(transactional_id, rounds * interval_ms)
        return transaction

    def _forget(self, transactional_id: str) -> None:
        self._transactions.pop(transactional_id, None)
        self._timers.cancel(transactional_id)


def wanted(
    states: Collection[TransactionState],
    producer_ids: Collection[int],
    running_ms: int,
    now_ms: int,
) -> Callable[[TransactionMetadata], bool]:
    """Return a filter for transactions; an empty condition accepts all.

    Args:
        states: accepted states.
        producer_ids: accepted producer ids.
        running_ms: minimum duration in ms, exclusive; negative accepts all.
        now_ms: the current time in ms.
    """

    def passes(transaction: TransactionMetadata) -> bool:
        return (
            (not states or transaction.state in states)
            and (not producer_ids or transaction.producer_id in producer_ids)
            and (running_ms < 0 or now_ms - transaction.started_ms > running_ms)
        )

    return passes


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise InvalidRequest("a transactional id has at least one character")
