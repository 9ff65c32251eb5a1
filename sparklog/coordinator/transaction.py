"""What becomes of one transactional id when a producer asks for something, or time passes.

Every function gets the state there is and returns the one to be; what cannot be raises, and then
nothing changes. Ends of transactions are decided by two tables, one for each protocol:

  version 1  a producer keeps its epoch from transaction to transaction
  version 2  every end raises the epoch, so that a late message of an ended transaction shows
             (KIP-890); an end that is sent again has the epoch before

  T1  a producer that was replaced, or whose transaction timed out, is fenced: epoch and id of each
      request are compared first
  T2  once prepared, an outcome never changes
  T3  no producer gets the last epoch of a producer id: it is kept for fencing
  T4  a producer that goes on with what the answer to an end gave it is told to try again while
      that end is being done, never that it is fenced
Source: KIP-98, KIP-360, KIP-588, KIP-890; Kafka's TransactionCoordinator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum, auto
from typing import Final, NamedTuple

from sparklog.coordinator.effects import ProducerIdentity
from sparklog.coordinator.transaction_state import (
    AT_REST,
    ENDING,
    EPOCH_MAX,
    NO_EPOCH,
    NO_TIME_MS,
    Partition,
    Transaction,
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
    """Ask again, with a fresh producer id."""


class InitProducer(NamedTuple):
    """A producer begins, or wants to go on after an error."""

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdentity | None = None
    """What it has, if it wants to go on (KIP-360)."""


class EndTransaction(NamedTuple):
    """A producer's transaction is to end."""

    transactional_id: str
    producer: ProducerIdentity
    is_commit: bool
    client_version: int


class _Attempt(Enum):
    CURRENT = auto()
    """The epoch is the one there is."""
    AGAIN = auto()
    """The epoch is the one before, which an end has raised: its answer was lost."""


class _Outcome(Enum):
    PREPARE = auto()
    DONE = auto()
    """It was done before: say so again."""
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
    known: Transaction | None, asked: InitProducer, fresh_id: int | None, now_ms: int
) -> Transaction:
    """Return the state with the producer's next epoch; or, amid a transaction, its abort.

    Raises:
        NeedsProducerId: there is no `fresh_id`, and one is needed.
        ProducerFenced: `expected` is not what the transactional id has.
        ConcurrentTransactions: the transaction before is still ending.
    """
    if known is None:
        known = Transaction(
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
    known: Transaction | None,
    producer: ProducerIdentity,
    partitions: frozenset[Partition],
    client_version: int,
    now_ms: int,
) -> Transaction:
    """Return the state with these partitions in the transaction; the same one if it has them.

    Raises:
        InvalidProducerIdMapping, ProducerFenced: not the producer of the transactional id.
        ConcurrentTransactions: the transaction before is still ending.
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
    known: Transaction | None, producer: ProducerIdentity, partitions: frozenset[Partition]
) -> frozenset[Partition]:
    """Return which of these partitions are in the producer's transaction.

    Raises:
        InvalidProducerIdMapping, ProducerFenced, ConcurrentTransactions: see `added`.
    """
    return partitions & _checked(known, producer).partitions


def ended(
    known: Transaction | None, asked: EndTransaction, fresh_id: int | None, now_ms: int
) -> Transaction:
    """Return the state in which the outcome is decided; the same one if it was done before.

    Raises:
        NeedsProducerId: there is no `fresh_id`, and one is needed.
        InvalidProducerIdMapping, ProducerFenced: not the producer of the transactional id.
        InvalidTxnState: there is nothing to end, or the other outcome is decided.
        ConcurrentTransactions: it is being done.
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


def fenced(known: Transaction, now_ms: int) -> Transaction:
    """Return the abort of an open transaction, on behalf of a newer producer or of time.

    The epoch rises by two: the one between is nobody's, so that an end which the fenced producer
    sends is not taken for one that was sent again.
    """
    return known.to(
        TransactionState.PREPARE_ABORT,
        producer_epoch=min(known.producer_epoch + 2, EPOCH_MAX),
        last_epoch=NO_EPOCH,
        updated_ms=now_ms,
        client_version=EPOCH_BUMP_SINCE,
    )


def completed(known: Transaction, now_ms: int) -> Transaction:
    """Return the state after every partition has its marker."""
    state = _S.COMPLETE_COMMIT if known.is_commit else _S.COMPLETE_ABORT
    after = known.to(
        state, partitions=frozenset(), updated_ms=now_ms, next_producer_id=NO_PRODUCER_ID
    )
    if known.next_producer_id == NO_PRODUCER_ID:
        return after
    return replace(after, producer_id=known.next_producer_id, producer_epoch=0)


def producer_after(known: Transaction) -> ProducerIdentity:
    """Return what the producer has from now on: an id that is used up has a successor."""
    if known.next_producer_id != NO_PRODUCER_ID:
        return ProducerIdentity(known.next_producer_id, 0)
    return ProducerIdentity(known.producer_id, known.producer_epoch)


def _checked(known: Transaction | None, producer: ProducerIdentity) -> Transaction:
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


def _may_go_on(known: Transaction, expected: ProducerIdentity) -> bool:
    """Say whether the id is the one there is, or the used up one whose successor it is."""
    return (
        known.producer_epoch == NO_EPOCH
        or expected.producer_id == known.producer_id
        or (
            expected.producer_id == known.previous_producer_id
            and is_exhausted(expected.producer_epoch)
        )
    )


def _outcome(known: Transaction, asked: EndTransaction) -> _Outcome:
    producer = asked.producer
    column = 0 if asked.is_commit else 1
    if asked.client_version < EPOCH_BUMP_SINCE:
        if producer.producer_id != known.producer_id:
            raise _unknown(known.transactional_id, producer)
        if producer.producer_epoch != known.producer_epoch:
            return _O.FENCED
        return _ENDS_V1[known.state][column]
    if known.state in ENDING and producer == producer_after(known):
        return _O.WAIT  # T4, also where the answer gave it a fresh producer id
    # Only an end of the producer's own leaves its epoch as the last one; a fence does not.
    is_again = known.last_epoch == producer.producer_epoch
    # The id was used up by the end that is asked for again: its successor goes on with epoch 0.
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


def _told(producer: ProducerIdentity) -> str:
    return f"producer_id={producer.producer_id} producer_epoch={producer.producer_epoch}"


def _unknown(transactional_id: str, producer: ProducerIdentity) -> InvalidProducerIdMapping:
    return InvalidProducerIdMapping(
        "the producer id is not that of the transactional id; initialize the producer again. "
        f"transactional_id={transactional_id!r} {_told(producer)}"
    )


def _fenced(known: Transaction, producer: ProducerIdentity) -> ProducerFenced:
    return ProducerFenced(
        "a newer producer has the transactional id, or the transaction timed out; stop. "
        f"transactional_id={known.transactional_id!r} {_told(producer)} "
        f"newest_epoch={known.producer_epoch}"
    )


def _still_ending(known: Transaction) -> ConcurrentTransactions:
    return ConcurrentTransactions(
        "the transaction is still ending; try again in a moment. "
        f"transactional_id={known.transactional_id!r} state={known.state.label}"
    )
