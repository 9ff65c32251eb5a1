"""Control batches: the markers that end a transaction, one per batch, invisible to consumers.

- key: `version int16 | type int16`
- value of commit and abort: `version int16 | coordinator epoch int32`

Later versions only add bytes at the end, so the decoder reads the known fields and ignores the
rest. Types that sparklog does not know are also markers: the reader skips them.
Source: KIP-98; Java's ControlRecordType and EndTransactionMarker.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from sparklog.core.errors import DataCorrupt
from sparklog.protocol.records.decoder import DecodedBatch, decode
from sparklog.protocol.records.encoder import encode_small
from sparklog.protocol.records.memory_records import BatchSlice

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_VERSION: Final = 0


class ControlType(IntEnum):
    """Types of markers, with Kafka's numbers."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """One marker, by its key; `value` is not decoded."""

    offset: int
    type: ControlType
    value: bytes | None


@dataclass(frozen=True, slots=True)
class EndTransactionMarker:
    """The end of one producer's transaction in one partition."""

    is_commit: bool
    coordinator_epoch: int


def read_control(batch: DecodedBatch) -> list[ControlRecord]:
    """Return the markers of a control batch.

    Raises:
        DataCorrupt: not a control batch, or a key that is not a marker's.
    """
    if not batch.header.is_control:
        raise DataCorrupt(
            "batch holds data, not markers; read its records instead. "
            f"base_offset={batch.header.base_offset} attributes={batch.header.attributes}"
        )
    rows = batch.records.select(["offset", "key", "value"]).to_pylist()
    return [control_record(row["offset"], row["key"], row["value"]) for row in rows]


def control_record(offset: int, key: bytes | None, value: bytes | None) -> ControlRecord:
    """Return the marker with a control record's key and value.

    Raises:
        DataCorrupt: the key is not a marker's.
    """
    return ControlRecord(offset, _type_of(key, offset), value)


def end_transaction(record: ControlRecord) -> EndTransactionMarker | None:
    """Return the decoded commit or abort marker, or None for another marker.

    Raises:
        DataCorrupt: the marker's value is missing or cut short.
    """
    if record.type not in {ControlType.ABORT, ControlType.COMMIT}:
        return None
    value = record.value or b""
    if len(value) < _VALUE.size:
        raise DataCorrupt(
            "transaction marker is cut short; read another copy. "
            f"offset={record.offset} bytes={len(value)} wanted={_VALUE.size}"
        )
    version, coordinator_epoch = _VALUE.unpack_from(value)
    if version < _VERSION:
        raise DataCorrupt(
            "transaction marker has no valid version; read another copy. "
            f"offset={record.offset} version={version}"
        )
    return EndTransactionMarker(record.type is ControlType.COMMIT, coordinator_epoch)


def without_aborted(
    batches: Sequence[BatchSlice], aborted: Iterable[tuple[int, int]]
) -> list[BatchSlice]:
    """Return the batches of committed records, as a consumer of Kafka picks them.

    Args:
        batches: of one Fetch response, in order.
        aborted: producer ids and first offsets of the aborted transactions that it lists.

    Raises:
        DataCorrupt: a marker is damaged.
    """
    begins = sorted(aborted, key=lambda one: one[1], reverse=True)
    dropped: set[int] = set()
    kept = []
    for batch in batches:
        header = batch.header
        while begins and begins[-1][1] <= header.last_offset:
            dropped.add(begins.pop()[0])
        if header.is_control:
            markers = map(end_transaction, read_control(decode(batch.data)))
            if any(marker is not None and not marker.is_commit for marker in markers):
                dropped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropped):
            kept.append(batch)
    return kept


def encode_end_transaction(
    marker: EndTransactionMarker,
    *,
    base_offset: int,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    leader_epoch: int,
) -> bytes:
    """Return the control batch that ends a transaction: one record, no sequence, uncompressed."""
    kind = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
    key = _KEY.pack(_VERSION, kind)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return encode_small(
        ((key, value),),
        timestamp_ms,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def _type_of(key: bytes | None, offset: int) -> ControlType:
    if key is None or len(key) < _KEY.size:
        raise DataCorrupt(
            "control record has no valid key; read another copy. "
            f"offset={offset} bytes={0 if key is None else len(key)} wanted={_KEY.size}"
        )
    version, number = _KEY.unpack_from(key)
    if version < _VERSION:
        raise DataCorrupt(
            "control record has no valid version; read another copy. "
            f"offset={offset} version={version}"
        )
    known = {int(kind) for kind in ControlType}
    return ControlType(number) if number in known else ControlType.UNKNOWN
