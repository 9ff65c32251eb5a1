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

The log records are those of `__transaction_state`, in Kafka's formats: one key for each
transactional id.

- key version 0: `transactional id string`
- value version 0: `producer id int64 | epoch int16 | time-out int32 | state int8 | partitions |
  updated int64 | started int64`. Partitions are `topic string, [partition int32]`, and null in the
  state Empty.
- value version 1: the same in flexible form, with tagged fields. `0 previous producer id int64 | 1
  next producer id int64 | 2 client's transaction version int16 | 100 last epoch int16`

The coordinator writes version 1 and reads both. Tag 100 is an extension of sparklog; Kafka's
readers ignore it. It lets a producer repeat its request for the next epoch after a change of
coordinator.

Times are ms. Source: KIP-98, KIP-360, KIP-890, KIP-915; Kafka's TransactionState,
TransactionMetadata, TransactionLogKey.json and TransactionLogValue.json.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Annotated, Any, Final

from sparklog.coordinator.effects import CoordinatorRecord
from sparklog.coordinator.record_codec import RecordSchema
from sparklog.core.errors import DataCorrupt
from sparklog.core.types import NO_PRODUCER_ID
from sparklog.protocol.messages.schema import Int8, Int16, Int32, Int64, Tagged

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
class TransactionMetadata:
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

    def to(self, state: TransactionState, **changes: Any) -> TransactionMetadata:
        """Return it in the next state; the current producer id becomes the previous one."""
        assert state in TRANSITIONS[self.state], (self, state)
        return replace(self, state=state, previous_producer_id=self.producer_id, **changes)


def is_exhausted(producer_epoch: int) -> bool:
    """Return True if no producer may get a later epoch."""
    return producer_epoch >= EPOCH_MAX - 1


KEY_VERSION: Final = 0
VALUE_VERSION: Final = 1

_STORED: Final = frozenset(map(int, TransactionState)) - {
    TransactionState.DEAD,
    TransactionState.PREPARE_EPOCH_FENCE,
}


@dataclass(frozen=True, slots=True)
class _Key:
    transactional_id: str


@dataclass(frozen=True, slots=True)
class _Topic:
    topic: str
    partitions: tuple[Int32, ...]


@dataclass(frozen=True, slots=True)
class _Value:
    producer_id: Int64
    producer_epoch: Int16
    timeout_ms: Int32
    state: Int8
    topics: tuple[_Topic, ...] | None
    updated_ms: Int64
    started_ms: Int64
    previous_producer_id: Annotated[Int64, Tagged(0, since=1)] = NO_PRODUCER_ID
    next_producer_id: Annotated[Int64, Tagged(1, since=1)] = NO_PRODUCER_ID
    client_version: Annotated[Int16, Tagged(2, since=1)] = 0
    last_epoch: Annotated[Int16, Tagged(100, since=1)] = NO_EPOCH


_KEY: Final = RecordSchema(_Key, "the key of a transactional id", (KEY_VERSION,))
_VALUE: Final = RecordSchema(
    _Value, "the state of a transactional id", range(VALUE_VERSION + 1), VALUE_VERSION
)


def encode_key(transactional_id: str) -> bytes:
    """Return the key of a transactional id's records."""
    return _KEY.encode(_Key(transactional_id), KEY_VERSION)


def tombstone(transactional_id: str) -> CoordinatorRecord:
    """Return the record that deletes a transactional id."""
    return CoordinatorRecord(encode_key(transactional_id), None)


def encode(transaction: TransactionMetadata) -> CoordinatorRecord:
    """Return the record of a transactional id's state."""
    by_topic = _by_topic(transaction.partitions)
    topics = tuple(_Topic(topic, tuple(sorted(found))) for topic, found in sorted(by_topic.items()))
    value = _Value(
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.timeout_ms,
        transaction.state,
        None if transaction.state is TransactionState.EMPTY else topics,
        transaction.updated_ms,
        transaction.started_ms,
        transaction.previous_producer_id,
        transaction.next_producer_id,
        transaction.client_version,
        transaction.last_epoch,
    )
    key = encode_key(transaction.transactional_id)
    return CoordinatorRecord(key, _VALUE.encode(value, VALUE_VERSION))


def decode_key(key: bytes) -> str:
    """Return the transactional id.

    Raises:
        DataCorrupt: it is not a key of this topic.
    """
    return _KEY.decode(key).transactional_id


def decode(transactional_id: str, value: bytes) -> TransactionMetadata:
    """Return the state in a record's value.

    Raises:
        DataCorrupt: the value cannot be read.
    """
    found = _VALUE.decode(value)
    if found.state not in _STORED:
        raise DataCorrupt(
            "a transactional id has an unknown state; run verify. "
            f"transactional_id={transactional_id!r} state={found.state}"
        )
    topics = found.topics or ()
    return TransactionMetadata(
        transactional_id,
        found.producer_id,
        found.producer_epoch,
        found.timeout_ms,
        found.updated_ms,
        TransactionState(found.state),
        frozenset((each.topic, number) for each in topics for number in each.partitions),
        found.started_ms,
        found.last_epoch,
        found.previous_producer_id,
        found.next_producer_id,
        found.client_version,
    )


def _by_topic(partitions: frozenset[Partition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, number in partitions:
        by_topic[topic].append(number)
    return by_topic
