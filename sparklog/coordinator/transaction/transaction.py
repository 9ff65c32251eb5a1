"""Transitions of one transactional id, on requests of its producer and on time-outs.

Every function takes the current state and returns the next one. A request that is not possible
raises, and nothing changes. Two tables decide how transactions end, one for each protocol:

- version 1: a producer keeps its epoch from transaction to transaction.
- version 2: every end raises the epoch, so that a late message of an ended transaction is detected
  (KIP-890). An end that a producer sends again has the previous epoch.

TRANSACTION-1: A producer that was replaced, or whose transaction timed out, is fenced. Every
    request's producer id and epoch are compared first.
TRANSACTION-2: Once prepared, an outcome never changes.
TRANSACTION-3: No producer gets the last epoch of a producer id: it is reserved for fencing.
TRANSACTION-4: A producer may continue with the identity from an end's response while that end
    still runs. It then gets a retriable error, never PRODUCER_FENCED.

Source: KIP-98, KIP-360, KIP-588, KIP-890; Kafka's TransactionCoordinator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum, auto
from typing import Final, NamedTuple

from sparklog.coordinator.effects import ProducerIdentity
from sparklog.coordinator.transaction.state import (
    AT_REST,
    ENDING,
    EPOCH_MAX,
    NO_EPOCH,
    NO_TIME_MS,
    Partition,
    TransactionMetadata,
    TransactionState,
    is_exhausted,
)
from sparklog.core.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
    SparklogError,
)
from sparklog.core.types import NO_PRODUCER_ID

EPOCH_BUMP_SINCE: Final = 2
"""The transaction protocol that raises the epoch at every end."""


class NeedsProducerId(SparklogError):
    """The caller must repeat the call with a fresh producer id."""


class InitProducer(NamedTuple):
    """A producer starts, or recovers from an error."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdentity | None = None
    """The producer's current identity, if it recovers from an error (KIP-360)."""


class EndTransaction(NamedTuple):
    """A producer ends its transaction."""

    transactional_id: str
    producer: ProducerIdentity
    is_commit: bool
    client_version: int


class _Attempt(Enum):
    CURRENT = auto()
    """The epoch is the current one."""
    AGAIN = auto()
    """The epoch is the one before an end raised it: the response was lost."""


class _Outcome(Enum):
    PREPARE = auto()
    DONE = auto()
    """The transaction ended like this before: return the same result."""
    WAIT = auto()
    INVALID = auto()
    FENCED = auto()


_S, _O = TransactionState, _Outcome
_Ends = Mapping[TransactionState, tuple[_Outcome, _Outcome]]
_ENDS_V1: Final[_Ends] = {  # state: (outcome of a commit, of an abort)
    _S.EMPTY: (_O.INVALID, _O.INVALID),
    _S.ONGOING: (_O.PREPARE, _O.PREPARE),
    _S.PREPARE_COMMIT: (_O.WAIT, _O.INVALID),
    _S.PREPARE_ABORT: (_O.INVALID, _O.WAIT),
    _S.COMPLETE_COMMIT: (_O.DONE, _O.INVALID),
    _S.COMPLETE_ABORT: (_O.INVALID, _O.DONE),
}
_ENDS_V2: Final[Mapping[_Attempt, _Ends]] = {
    _Attempt.CURRENT: {
        _S.EMPTY: (_O.INVALID, _O.PREPARE),
        _S.ONGOING: (_O.PREPARE, _O.PREPARE),
        _S.PREPARE_COMMIT: (_O.WAIT, _O.WAIT),
        _S.PREPARE_ABORT: (_O.WAIT, _O.WAIT),
        _S.COMPLETE_COMMIT: (_O.INVALID, _O.PREPARE),
        _S.COMPLETE_ABORT: (_O.INVALID, _O.PREPARE),
    },
    _Attempt.AGAIN: {
        _S.EMPTY: (_O.FENCED, _O.FENCED),
        _S.ONGOING: (_O.FENCED, _O.FENCED),
        _S.PREPARE_COMMIT: (_O.WAIT, _O.INVALID),
        _S.PREPARE_ABORT: (_O.INVALID, _O.WAIT),
        _S.COMPLETE_COMMIT: (_O.DONE, _O.INVALID),
        _S.COMPLETE_ABORT: (_O.INVALID, _O.DONE),
    },
}


def initialized(
    known: TransactionMetadata | None, asked: InitProducer, fresh_id: int | None, now_ms: int
) -> TransactionMetadata:
    """Return the state with the producer's next epoch; if a transaction is open, its abort.

    Raises:
        NeedsProducerId: `fresh_id` is None, and one is needed.
        ProducerFenced: `expected` is not the identity of the transactional id.
        ConcurrentTransactions: the previous transaction is still ending.
    """
    if known is None:
        known = TransactionMetadata(
            asked.transactional_id, _taken(fresh_id), NO_EPOCH, asked.timeout_ms, now_ms
        )
    expected = asked.expected
    if expected is not None and not _may_go_on(known, expected):
        raise _fenced(known, expected)
    if known.state in ENDING:
        raise _still_ending(known)
    if known.state is TransactionState.ONGOING:
        return fenced(known, now_ms)
    changes = {
        "timeout_ms": asked.timeout_ms,
        "updated_ms": now_ms,
        "started_ms": NO_TIME_MS,
        "partitions": frozenset[Partition](),
    }
    epoch = known.producer_epoch
    if known.is_exhausted and (expected is None or expected.producer_epoch == epoch):
        return known.to(
            TransactionState.EMPTY,
            producer_id=_taken(fresh_id),
            producer_epoch=0,
            last_epoch=NO_EPOCH if expected is None else epoch,
            **changes,
        )
    if expected is None:
        changes |= {"producer_epoch": epoch + 1, "last_epoch": NO_EPOCH}
    elif epoch in {NO_EPOCH, expected.producer_epoch}:
        changes |= {"producer_epoch": epoch + 1, "last_epoch": epoch}
    elif expected.producer_epoch != known.last_epoch:
        raise _fenced(known, expected)
    return known.to(TransactionState.EMPTY, **changes)


def added(
    known: TransactionMetadata | None,
    producer: ProducerIdentity,
    partitions: frozenset[Partition],
    client_version: int,
    now_ms: int,
) -> TransactionMetadata:
    """Return the state with these partitions in the transaction; the same one if it has them.

    Raises:
        InvalidProducerIdMapping, ProducerFenced: not the producer of the transactional id.
        ConcurrentTransactions: the previous transaction is still ending.
    """
    known = _checked(known, producer)
    if known.state is TransactionState.ONGOING:
        if partitions <= known.partitions:
            return known
        started_ms = known.started_ms
    else:
        started_ms = now_ms
    return known.to(
        TransactionState.ONGOING,
        partitions=known.partitions | partitions,
        started_ms=started_ms,
        updated_ms=now_ms,
        client_version=client_version,
    )


def verified(
    known: TransactionMetadata | None, producer: ProducerIdentity, partitions: frozenset[Partition]
) -> frozenset[Partition]:
    """Return which of these partitions are in the producer's transaction.

    Raises:
        InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions: see `added`.
    """
    return partitions & _checked(known, producer).partitions


def ended(
    known: TransactionMetadata | None, asked: EndTransaction, fresh_id: int | None, now_ms: int
) -> TransactionMetadata:
    """Return the state with the outcome prepared; the same one if it was completed before.

    Raises:
        NeedsProducerId: `fresh_id` is None, and one is needed.
        InvalidProducerIdMapping, ProducerFenced: not the producer of the transactional id.
        InvalidTxnState: no transaction is open, or it has the other outcome.
        ConcurrentTransactions: the transaction is still ending.
    """
    if known is None:
        raise _unknown(asked.transactional_id, asked.producer)
    outcome = _outcome(known, asked)
    if outcome is _O.DONE:
        return known
    if outcome is _O.WAIT:
        raise _still_ending(known)
    if outcome is _O.FENCED:
        raise _fenced(known, asked.producer)
    if outcome is _O.INVALID:
        raise InvalidTxnState(
            "the transaction cannot end like that now. "
            f"transactional_id={known.transactional_id!r} state={known.state.label} "
            f"commit={asked.is_commit}"
        )
    state = _S.PREPARE_COMMIT if asked.is_commit else _S.PREPARE_ABORT
    changes: dict[str, int] = {"updated_ms": now_ms, "client_version": asked.client_version}
    if known.state in AT_REST:
        changes["started_ms"] = now_ms
    if asked.client_version >= EPOCH_BUMP_SINCE:
        changes["producer_epoch"] = known.producer_epoch + 1
        changes["last_epoch"] = known.producer_epoch
        if known.is_exhausted:
            changes["next_producer_id"] = _taken(fresh_id)
    return known.to(state, **changes)


def fenced(known: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Return the abort of an open transaction, for a newer producer or after a time-out.

    The epoch rises by two. No producer has the epoch between, so an end from the fenced producer
    does not look like one that was sent again.
    """
    return known.to(
        TransactionState.PREPARE_ABORT,
        producer_epoch=min(known.producer_epoch + 2, EPOCH_MAX),
        last_epoch=NO_EPOCH,
        updated_ms=now_ms,
        client_version=EPOCH_BUMP_SINCE,
    )


def completed(known: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Return the state after every partition has its marker."""
    state = _S.COMPLETE_COMMIT if known.is_commit else _S.COMPLETE_ABORT
    after = known.to(
        state, partitions=frozenset(), updated_ms=now_ms, next_producer_id=NO_PRODUCER_ID
    )
    if known.next_producer_id == NO_PRODUCER_ID:
        return after
    return replace(after, producer_id=known.next_producer_id, producer_epoch=0)


def producer_after(known: TransactionMetadata) -> ProducerIdentity:
    """Return the producer's next identity: an exhausted producer id has a successor."""
    if known.next_producer_id != NO_PRODUCER_ID:
        return ProducerIdentity(known.next_producer_id, 0)
    return ProducerIdentity(known.producer_id, known.producer_epoch)


def _checked(known: TransactionMetadata | None, producer: ProducerIdentity) -> TransactionMetadata:
    """Return the state, if the producer may write in a transaction now."""
    if known is None:
        raise _unknown("", producer)
    if known.state in ENDING and producer == producer_after(known):
        raise _still_ending(known)
    if producer.producer_id != known.producer_id:
        raise _unknown(known.transactional_id, producer)
    if producer.producer_epoch != known.producer_epoch:
        raise _fenced(known, producer)
    if known.state in ENDING:
        raise _still_ending(known)
    return known


def _may_go_on(known: TransactionMetadata, expected: ProducerIdentity) -> bool:
    """Return True if the id is the current one, or the exhausted one before it."""
    return (
        known.producer_epoch == NO_EPOCH
        or expected.producer_id == known.producer_id
        or (
            expected.producer_id == known.previous_producer_id
            and is_exhausted(expected.producer_epoch)
        )
    )


def _outcome(known: TransactionMetadata, asked: EndTransaction) -> _Outcome:
    producer = asked.producer
    column = 0 if asked.is_commit else 1
    if asked.client_version < EPOCH_BUMP_SINCE:
        if producer.producer_id != known.producer_id:
            raise _unknown(known.transactional_id, producer)
        if producer.producer_epoch != known.producer_epoch:
            return _O.FENCED
        return _ENDS_V1[known.state][column]
    if known.state in ENDING and producer == producer_after(known):
        return _O.WAIT  # TRANSACTION-4, also where the response carried a fresh producer id.
    # Only an end by the producer itself sets its epoch as the last one; a fence does not.
    is_again = known.last_epoch == producer.producer_epoch
    # The repeated end exhausted the id: its successor continues with epoch 0.
    is_successor = (
        is_again
        and producer.producer_id == known.previous_producer_id != known.producer_id
        and producer.producer_epoch == EPOCH_MAX - 1
        and known.producer_epoch == 0
        and known.state not in {*ENDING, _S.ONGOING}
    )
    if producer.producer_id != known.producer_id and not is_successor:
        raise _unknown(known.transactional_id, producer)
    is_raised = (
        is_again
        and known.client_version >= EPOCH_BUMP_SINCE
        and known.producer_epoch == producer.producer_epoch + 1
    )
    if is_successor or is_raised:
        return _ENDS_V2[_Attempt.AGAIN][known.state][column]
    if known.producer_epoch == producer.producer_epoch:
        return _ENDS_V2[_Attempt.CURRENT][known.state][column]
    return _O.FENCED


def _taken(fresh_id: int | None) -> int:
    if fresh_id is None:
        raise NeedsProducerId("a fresh producer id is needed; ask again with one")
    return fresh_id


def _as_text(producer: ProducerIdentity) -> str:
    return f"producer_id={producer.producer_id} producer_epoch={producer.producer_epoch}"


def _unknown(transactional_id: str, producer: ProducerIdentity) -> InvalidProducerIdMapping:
    return InvalidProducerIdMapping(
        "the producer id is not that of the transactional id; initialize the producer again. "
        f"transactional_id={transactional_id!r} {_as_text(producer)}"
    )


def _fenced(known: TransactionMetadata, producer: ProducerIdentity) -> ProducerFenced:
    return ProducerFenced(
        "a newer producer has the transactional id, or the transaction timed out; stop. "
        f"transactional_id={known.transactional_id!r} {_as_text(producer)} "
        f"newest_epoch={known.producer_epoch}"
    )


def _still_ending(known: TransactionMetadata) -> ConcurrentTransactions:
    return ConcurrentTransactions(
        "the transaction is still ending; try again in a moment. "
        f"transactional_id={known.transactional_id!r} state={known.state.label}"
    )
