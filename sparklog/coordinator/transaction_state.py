"""Transaction: the state of a transactional id, as its log record holds it, and its transitions.

States and their numbers are Kafka's. `TRANSITIONS` is the whole automaton:

- Empty: no transaction since the producer was initialized.
- Ongoing: partitions were added.
- PrepareCommit: decided for ever; the leader writes the markers.
- PrepareAbort: the same for an abort.
- CompleteCommit: every partition has its marker.
- CompleteAbort: the same for an abort.
- Dead: deleted. The log has a tombstone instead of this state.
- PrepareEpochFence: in Kafka, an abort for a newer producer or after a time-out. Here the fence and
  the abort are one step, so no transaction is ever in it.

A producer id has epochs up to EPOCH_MAX - 1; the last one only fences.
Times are ms. Source: KIP-98, KIP-360, KIP-890; Kafka's TransactionState and TransactionMetadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final

from sparklog.core.types import NO_PRODUCER_ID

NO_EPOCH: Final = -1
EPOCH_MAX: Final = 32_767
NO_TIME_MS: Final = -1
ENDLESS_MS: Final = 2**31 - 1
"""The time-out of a transaction that never times out (KIP-939)."""

Partition = tuple[str, int]
"""Topic and partition."""


class TransactionState(IntEnum):
    """States of a transaction; see the module."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """Return Kafka's name: `PrepareCommit`."""
        return "".join(word.title() for word in self.name.split("_"))


_S = TransactionState
TRANSITIONS: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    _S.EMPTY: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
    _S.ONGOING: frozenset({_S.ONGOING, _S.PREPARE_COMMIT, _S.PREPARE_ABORT}),
    _S.PREPARE_COMMIT: frozenset({_S.COMPLETE_COMMIT}),
    _S.PREPARE_ABORT: frozenset({_S.COMPLETE_ABORT}),
    _S.COMPLETE_COMMIT: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
    _S.COMPLETE_ABORT: frozenset({_S.EMPTY, _S.ONGOING, _S.PREPARE_ABORT, _S.DEAD}),
    _S.DEAD: frozenset(),
    _S.PREPARE_EPOCH_FENCE: frozenset(),
}
"""State to the states that may follow it."""

ENDING: Final = frozenset({_S.PREPARE_COMMIT, _S.PREPARE_ABORT})
AT_REST: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})


@dataclass(frozen=True, slots=True)
class Transaction:
    """The state of one transactional id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    updated_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[Partition] = frozenset()
    started_ms: int = NO_TIME_MS
    last_epoch: int = NO_EPOCH
    """The previous epoch, when the producer itself asked for the newer one and may ask again."""
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last change."""
    next_producer_id: int = NO_PRODUCER_ID
    """While it ends: the id that continues afterwards, as this one's epochs are exhausted."""
    client_version: int = 0
    """The transaction protocol of the client: 2 since KIP-890."""

    @property
    def is_exhausted(self) -> bool:
        """Return True if the producer id has no epoch left for a producer."""
        return is_exhausted(self.producer_epoch)

    @property
    def is_commit(self) -> bool:
        """Return True if it was, or is being, committed."""
        return self.state in {TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT}

    @property
    def deadline_ms(self) -> int | None:
        """Return the time-out of the open transaction, in ms; None if there is no such time."""
        if self.state is not TransactionState.ONGOING or self.timeout_ms == ENDLESS_MS:
            return None
        return self.started_ms + self.timeout_ms

    def to(self, state: TransactionState, **changes: Any) -> Transaction:
        """Return it in the next state; the current producer id becomes the previous one."""
        assert state in TRANSITIONS[self.state], (self, state)
        return replace(self, state=state, previous_producer_id=self.producer_id, **changes)


def is_exhausted(producer_epoch: int) -> bool:
    """Return True if no producer may get a later epoch."""
    return producer_epoch >= EPOCH_MAX - 1
