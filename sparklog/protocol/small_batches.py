"""Encodes record batches of a few small records, field by field, uncompressed.

`batch_encoder` writes columns, at a fixed cost of a third of a millisecond. A coordinator or a
transaction marker writes one or two records, thousands of times a second. Each costs some
microseconds here; `batch_encoder` is faster from about a hundred records on.

S1: The bytes are those that `batch_encoder.encode` writes for the same records.

Source: Kafka protocol guide, record batch and record.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sparklog.core.types import NO_PRODUCER_ID
from sparklog.protocol.batch_header import (
    CONTROL_BIT,
    MAGIC,
    NO_EPOCH,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    seal_header,
)
from sparklog.protocol.entity_encoder import put_varint

SMALL_RECORDS_MAX: Final = 100
"""Beyond this `batch_encoder` is faster."""

KeyValue = tuple[bytes | None, bytes | None]

_NULL: Final = b"\x01"
"""Length -1, zigzag."""
_NO_HEADERS: Final = b"\x00"


def encode_small(
    records: Collection[KeyValue],
    timestamp_ms: int,
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_EPOCH,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """Return one batch of records with one timestamp, no headers and no sequence.

    Callers are not idempotent producers, which would send a batch again.
    """
    assert records, "a batch has a record"
    body = bytearray()
    for delta, (key, value) in enumerate(records):
        record = bytearray(b"\x00\x00")  # attributes, timestamp delta
        _put_signed(record, delta)
        _put_bytes(record, key)
        _put_bytes(record, value)
        record += _NO_HEADERS
        _put_signed(body, len(record))
        body += record
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=TRANSACTIONAL_BIT * is_transactional | CONTROL_BIT * is_control,
        last_offset_delta=len(records) - 1,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        record_count=len(records),
    )
    return seal_header(header, body) + body


def _put_signed(out: bytearray, value: int) -> None:
    put_varint(out, value << 1)  # zigzag of a non-negative value


def _put_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out += _NULL
    else:
        _put_signed(out, len(data))
        out += data
