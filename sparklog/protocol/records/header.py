"""BatchHeader: the header of a record batch of magic 2, and functions that stamp fields in place.

Fields by byte:

- 0: base offset, int64
- 8: length, int32
- 12: leader epoch, int32
- 16: magic, int8
- 17: CRC-32C, uint32
- 21: attributes, int16
- 23: last offset delta, int32
- 27: base timestamp, int64
- 35: max timestamp, int64
- 43: producer id, int64
- 51: producer epoch, int16
- 53: base sequence, int32
- 57: record count, int32
- 61: records, compressed as the attributes say

Attributes: bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon. Other
bits stay unchanged; Kafka uses none of them. sparklog uses bit 14 for batches that reference
records elsewhere.

RECORDS-HEADER-1: `length` counts the bytes after itself, so a batch takes `length + 12` bytes.
RECORDS-HEADER-2: The CRC covers the attributes to the end: a leader stamps base offset and leader
    epoch without it.
RECORDS-HEADER-3: With the timestamp type LogAppendTime the max timestamp is the timestamp of every
    record.
RECORDS-HEADER-4: With the delete horizon bit the base timestamp *is* the horizon; deltas count
    from it.

Offsets count records, timestamps are milliseconds since the Unix epoch, sizes are bytes.
Source: Kafka protocol guide, record batch; KIP-98, KIP-534.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

import crc32c

from sparklog.core.errors import DataCorrupt
from sparklog.core.types import NO_PRODUCER_ID, TimestampType

BytesLike: TypeAlias = bytes | bytearray | memoryview

HEADER_BYTES: Final = 61
LENGTH_END: Final = 12
"""First of the bytes that `length` counts."""
MAGIC_AT: Final = 16
MAGIC: Final = 2
NO_EPOCH: Final = -1
NO_SEQUENCE: Final = -1

LAYOUT: Final = struct.Struct(">qiibIhiqqqhii")
_LENGTH_AT: Final = 8
_CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")

CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
REFERENCE_BIT: Final = 0x4000
"""Only between sparklog's own writers and brokers: a consumer never gets such a batch."""

INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


class Codec(IntEnum):
    """Compression codecs, with Kafka's numbers."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_LAST_CODEC: Final = int(Codec.ZSTD)


class BatchHeader(NamedTuple):
    """The 61 bytes before the records, in wire order."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """Return the size of the whole batch, header included."""
        return self.length + LENGTH_END

    @property
    def last_offset(self) -> int:
        """Return the offset of the last record, which compaction may have removed."""
        return self.base_offset + self.last_offset_delta

    @property
    def end_offset(self) -> int:
        """Return the offset after the last one."""
        return self.last_offset + 1

    @property
    def codec(self) -> Codec:
        """Return the codec of the records."""
        return Codec(self.attributes & CODEC_MASK)

    @property
    def timestamp_type(self) -> TimestampType:
        """Return the timestamp type: set by the producer, or at the append."""
        if self.attributes & TIMESTAMP_TYPE_BIT:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Return True if a transaction decides whether consumers see these records."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Return True if the record is a marker, which consumers do not see."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_reference(self) -> bool:
        """Return True if the batch references records elsewhere in the store."""
        return bool(self.attributes & REFERENCE_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Return when compaction may remove the batch's tombstones and markers, or None."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def has_producer_id(self) -> bool:
        """Return True if an idempotent or transactional producer wrote this."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Return the sequence number of the last record, or NO_SEQUENCE."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    def to_bytes(self) -> bytes:
        """Return the header's wire format, 61 bytes."""
        return LAYOUT.pack(*self)


def increment_sequence(sequence: int, count: int) -> int:
    """Return the sequence number `count` after `sequence`; after 2**31 - 1 comes 0."""
    return (sequence + count) & INT32_MAX


def has_attribute(records: BytesLike, bit: int) -> bool:
    """Return True if a request's records begin with a header that has an attribute bit.

    Nothing else of the header is checked.
    """
    if len(records) < HEADER_BYTES:
        return False
    return bool((records[ATTRIBUTES_AT] << 8 | records[ATTRIBUTES_AT + 1]) & bit)


def parse_header(data: BytesLike, position: int = 0) -> BatchHeader:
    """Return the header of the batch that starts at `position`, after checking its fields.

    It does not check the CRC; see `check_crc`.

    Raises:
        DataCorrupt: too few bytes, another magic, or fields that contradict each other.
    """
    view = data if type(data) is bytes else memoryview(data).cast("B")
    left = len(view) - position
    if left > MAGIC_AT and view[position + MAGIC_AT] != MAGIC:
        raise DataCorrupt(_explain_magic(_signed(view[position + MAGIC_AT]), position))
    if left < HEADER_BYTES:
        raise DataCorrupt(
            "record batch is cut short inside its header; fetch or send it whole. "
            f"position={position} bytes={left} header_bytes={HEADER_BYTES}"
        )
    header = BatchHeader._make(LAYOUT.unpack_from(view, position))
    problem = _problem_of(header)
    if problem is not None:
        raise DataCorrupt(
            f"record batch header is malformed: {problem}. position={position} "
            f"base_offset={header.base_offset}"
        )
    return header


def whole_batch(data: BytesLike, header: BatchHeader, position: int = 0) -> memoryview:
    """Return a view of exactly the batch that starts at `position`.

    Raises:
        DataCorrupt: the batch is cut short.
    """
    batch = memoryview(data).cast("B")[position : position + header.size_bytes]
    if len(batch) < header.size_bytes:
        raise DataCorrupt(
            "record batch is cut short; fetch or send it whole. "
            f"position={position} base_offset={header.base_offset} bytes={len(batch)} "
            f"batch_bytes={header.size_bytes}"
        )
    return batch


def check_crc(data: BytesLike, header: BatchHeader, position: int = 0) -> None:
    """Compare the checksum of the batch at `position` with its header.

    Raises:
        DataCorrupt: bytes changed since the producer wrote them, or are missing.
    """
    found = crc32c.crc32c(whole_batch(data, header, position)[ATTRIBUTES_AT:])
    if found != header.crc:
        raise DataCorrupt(
            "record batch fails its CRC-32C: bytes changed since its producer wrote them; read "
            f"another copy or have it sent again. base_offset={header.base_offset} "
            f"crc_in_header={header.crc:#010x} crc_of_bytes={found:#010x}"
        )


def crc_of_body(attributes_to_count: BytesLike, records: BytesLike) -> int:
    """Return the CRC-32C of a batch from its header bytes after the CRC field and its records."""
    return crc32c.crc32c(records, crc32c.crc32c(attributes_to_count))


def seal_header(header: BatchHeader, records: BytesLike) -> bytes:
    """Return the bytes of `header` with the length and CRC of `records`."""
    sealed = bytearray(header.to_bytes())
    length = HEADER_BYTES - LENGTH_END + memoryview(records).nbytes
    _INT32.pack_into(sealed, _LENGTH_AT, length)
    _UINT32.pack_into(sealed, _CRC_AT, crc_of_body(sealed[ATTRIBUTES_AT:], records))
    return bytes(sealed)


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def _explain_magic(magic: int, position: int) -> str:
    if magic in {0, 1}:
        return (
            f"message set of magic {magic} refused: that format ended with Kafka 4.0; use a client "
            "that speaks Produce version 3 or newer (any since Kafka 0.11). "
            f"position={position} magic={magic} wanted={MAGIC}"
        )
    return (
        f"no record batch here: magic {magic} is unknown; check that the bytes start at a batch. "
        f"position={position} magic={magic} wanted={MAGIC}"
    )


def _problem_of(header: BatchHeader) -> str | None:
    """Return what is wrong with a header, or None."""
    base, length, _, _, _, attributes, delta, _, _, producer, epoch, sequence, count = header
    if length < HEADER_BYTES - LENGTH_END:
        return f"length={length} is below the header"
    if length > INT32_MAX - LENGTH_END:
        return f"length={length} is over the limit of a batch"
    if base < 0:
        return "the base offset is negative"
    if delta < 0:
        return f"last_offset_delta={delta} is negative"
    if base + delta >= INT64_MAX:
        return f"last_offset_delta={delta} leads past the last offset"
    if count < 0:
        return f"record_count={count} is negative"
    if count > delta + 1:
        return f"record_count={count} exceeds last_offset_delta={delta} plus one"
    if attributes & CODEC_MASK > _LAST_CODEC:
        return f"attributes={attributes}: no codec"
    if producer < NO_PRODUCER_ID:
        return f"producer_id={producer} is below -1"
    if epoch < NO_EPOCH:
        return f"producer_epoch={epoch} is below -1"
    if sequence < NO_SEQUENCE:
        return f"base_sequence={sequence} is below -1"
    return None
