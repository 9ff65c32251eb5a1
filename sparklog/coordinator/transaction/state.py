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

Records of `__transaction_state`, in Kafka's formats: one key for each transactional id.

- key version 0: `transactional id string`
- value version 0: `producer id int64 | epoch int16 | time-out int32 | state int8 | partitions |
  updated int64 | started int64`. Partitions are `topic string, [partition int32]`, and null in the
  state Empty.
- value version 1: the same in flexible form, with tagged fields. `0 previous producer id int64 | 1
  next producer id int64 | 2 client's transaction version int16 | 100 last epoch int16`

The coordinator writes version 1 and reads both. Tag 100 is an extension of sparklog; Kafka's
readers ignore it. It lets a producer repeat its request for the next epoch after a change of
coordinator.
Source: Kafka's TransactionLogKey.json, TransactionLogValue.json; KIP-915.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, Final

from sparklog.coordinator.effects import CoordinatorRecord
from sparklog.coordinator.record_codec import FieldReader, FieldWriter
from sparklog.core.errors import DataCorrupt
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

_PREVIOUS_PRODUCER_ID: Final = 0
_NEXT_PRODUCER_ID: Final = 1
_CLIENT_VERSION: Final = 2
_LAST_EPOCH: Final = 100
_INT64: Final = struct.Struct(">q")
_INT16: Final = struct.Struct(">h")
_NULL: Final = -1
_STORED: Final = frozenset(map(int, TransactionState)) - {
    TransactionState.DEAD,
    TransactionState.PREPARE_EPOCH_FENCE,
}


def encode_key(transactional_id: str) -> bytes:
    """Return the key of a transactional id's records."""
    out = FieldWriter(KEY_VERSION)
    out.string(transactional_id)
    return out.done()


def tombstone(transactional_id: str) -> CoordinatorRecord:
    """Return the record that deletes a transactional id."""
    return CoordinatorRecord(encode_key(transactional_id), None)


def encode(transaction: TransactionMetadata) -> CoordinatorRecord:
    """Return the record of a transactional id's state."""
    out = FieldWriter(VALUE_VERSION, flexible=True)
    out.int64(transaction.producer_id)
    out.int16(transaction.producer_epoch)
    out.int32(transaction.timeout_ms)
    out.int8(transaction.state)
    if transaction.state is TransactionState.EMPTY:
        out.count(_NULL)
    else:
        by_topic = _by_topic(transaction.partitions)
        out.count(len(by_topic))
        for topic, numbers in sorted(by_topic.items()):
            out.string(topic)
            out.count(len(numbers))
            for number in sorted(numbers):
                out.int32(number)
            out.tags()
    out.int64(transaction.updated_ms)
    out.int64(transaction.started_ms)
    out.tags(_tags(transaction))
    return CoordinatorRecord(encode_key(transaction.transactional_id), out.done())


def decode_key(key: bytes) -> str:
    """Return the transactional id.

    Raises:
        DataCorrupt: it is not a key of this topic.
    """
    fields = FieldReader.of(key, "the key of a transactional id", (KEY_VERSION,))
    transactional_id = fields.string()
    fields.end()
    return transactional_id


def decode(transactional_id: str, value: bytes) -> TransactionMetadata:
    """Return the state in a record's value.

    Raises:
        DataCorrupt: the value cannot be read.
    """
    versions = range(VALUE_VERSION + 1)
    fields = FieldReader.of(value, "the state of a transactional id", versions, VALUE_VERSION)
    producer_id, producer_epoch = fields.int64(), fields.int16()
    timeout_ms, number = fields.int32(), fields.int8()
    if number not in _STORED:
        raise DataCorrupt(
            "a transactional id has an unknown state; run verify. "
            f"transactional_id={transactional_id!r} state={number}"
        )
    partitions = _read_partitions(fields)
    updated_ms, started_ms = fields.int64(), fields.int64()
    tags = fields.tags()
    fields.end()
    return TransactionMetadata(
        transactional_id,
        producer_id,
        producer_epoch,
        timeout_ms,
        updated_ms,
        TransactionState(number),
        partitions,
        started_ms,
        last_epoch=_tagged(tags, _LAST_EPOCH, _INT16, NO_EPOCH),
        previous_producer_id=_tagged(tags, _PREVIOUS_PRODUCER_ID, _INT64, NO_PRODUCER_ID),
        next_producer_id=_tagged(tags, _NEXT_PRODUCER_ID, _INT64, NO_PRODUCER_ID),
        client_version=_tagged(tags, _CLIENT_VERSION, _INT16, 0),
    )


def _tags(transaction: TransactionMetadata) -> dict[int, bytes]:
    tags = {}
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tags[_PREVIOUS_PRODUCER_ID] = _INT64.pack(transaction.previous_producer_id)
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tags[_NEXT_PRODUCER_ID] = _INT64.pack(transaction.next_producer_id)
    if transaction.client_version:
        tags[_CLIENT_VERSION] = _INT16.pack(transaction.client_version)
    if transaction.last_epoch != NO_EPOCH:
        tags[_LAST_EPOCH] = _INT16.pack(transaction.last_epoch)
    return tags


def _tagged(tags: dict[int, bytes], tag: int, form: struct.Struct, default: int) -> int:
    data = tags.get(tag)
    if data is None:
        return default
    if len(data) != form.size:
        raise DataCorrupt(
            f"a tagged field has a wrong size; run verify. tag={tag} size={len(data)}"
        )
    return int(form.unpack(data)[0])


def _by_topic(partitions: frozenset[Partition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, number in partitions:
        by_topic[topic].append(number)
    return by_topic


def _read_partitions(fields: FieldReader) -> frozenset[Partition]:
    found: set[Partition] = set()

    def one() -> None:
        topic = fields.string()
        found.update((topic, number) for number in fields.array(fields.int32))
        fields.tags()

    fields.optional_array(one)
    return frozenset(found)
