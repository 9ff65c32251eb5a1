"""Records of `__transaction_state`, in Kafka's formats: one key for each transactional id.

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
from typing import Final

from sparklog.coordinator.effects import CoordinatorRecord
from sparklog.coordinator.record_fields import FieldReader, FieldWriter
from sparklog.coordinator.transaction_state import (
    NO_EPOCH,
    Partition,
    Transaction,
    TransactionState,
)
from sparklog.core.errors import DataCorrupt
from sparklog.core.types import NO_PRODUCER_ID

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


def encode(transaction: Transaction) -> CoordinatorRecord:
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


def decode(transactional_id: str, value: bytes) -> Transaction:
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
    return Transaction(
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


def _tags(transaction: Transaction) -> dict[int, bytes]:
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
