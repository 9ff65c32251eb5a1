"""Encodes Arrow rows to record batches: the compiled writer, then codec, header, checksum.

`encode_small` encodes a few small records, field by field, uncompressed. `encode` writes columns,
at a fixed cost of a third of a millisecond. A coordinator or a transaction marker writes one or two
records, thousands of times a second. Each costs some microseconds in `encode_small`; `encode` is
faster from about a hundred records on.

ENCODER-1: Decoding returns the same rows, except that empty header lists become null.
ENCODER-2: Rows without an offset column are dense from the base offset. With one, gaps stay, and
    `last_offset` keeps a gap at the end.
ENCODER-3: With LogAppendTime a batch has only one timestamp, so all rows of a batch share it.
ENCODER-4: The bytes of `encode_small` are those that `encode` writes for the same records.

Offsets count records, timestamps are milliseconds since the Unix epoch, sizes are bytes.
Source: Kafka protocol guide, record batch and record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from sparklog.core.errors import DataCorrupt, InvalidRequest, RecordTooLarge
from sparklog.core.types import NO_PRODUCER_ID, NO_TIMESTAMP_MS, TimestampType
from sparklog.protocol.arrays import Int32s
from sparklog.protocol.records.columns import Columns, columns_of
from sparklog.protocol.records.compression import compress
from sparklog.protocol.records.header import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    INT16_MAX,
    INT32_MAX,
    INT64_MAX,
    MAGIC,
    NO_EPOCH,
    NO_SEQUENCE,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    BytesLike,
    Codec,
    increment_sequence,
    seal_header,
)

if TYPE_CHECKING:
    from types import ModuleType
from collections.abc import Collection

from sparklog.protocol.messages.encoder import put_varint

_RECORDS_BYTES_MAX: Final = INT32_MAX - HEADER_BYTES


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """Header fields of a batch that do not follow from its records."""

    codec: Codec = Codec.NONE
    level: int | None = None
    """For gzip and zstd; None means Kafka's default."""
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    leader_epoch: int = NO_EPOCH
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    base_sequence: int = NO_SEQUENCE
    is_transactional: bool = False
    is_control: bool = False
    delete_horizon_ms: int | None = None
    """Time after which compaction may remove the tombstones and markers of the batch."""

    def __post_init__(self) -> None:
        """Reject values that the header cannot hold, or that no client would accept."""
        limits = {
            "leader_epoch": (NO_EPOCH, INT32_MAX),
            "producer_id": (NO_PRODUCER_ID, INT64_MAX),
            "producer_epoch": (NO_EPOCH, INT16_MAX),
            "base_sequence": (NO_SEQUENCE, INT32_MAX),
        }
        for name, (low, high) in limits.items():
            if not low <= getattr(self, name) <= high:
                raise InvalidRequest(
                    f"{name} is out of range; pass one the record batch header can hold. "
                    f"{name}={getattr(self, name)} min={low} max={high}"
                )
        if self.is_transactional and self.producer_id == NO_PRODUCER_ID:
            raise InvalidRequest("a transactional batch needs a producer id; pass producer_id.")

    @property
    def attributes(self) -> int:
        """Return the attribute bits."""
        return (
            self.codec
            | TIMESTAMP_TYPE_BIT * (self.timestamp_type is TimestampType.LOG_APPEND_TIME)
            | TRANSACTIONAL_BIT * self.is_transactional
            | CONTROL_BIT * self.is_control
            | DELETE_HORIZON_BIT * (self.delete_horizon_ms is not None)
        )


PLAIN: Final = BatchSettings()
"""Uncompressed, CreateTime, no producer."""


class _Span(NamedTuple):
    """Measured rows that form one batch."""

    first_row: int
    end_row: int
    base_offset: int
    last_offset: int
    base_timestamp: int
    max_timestamp: int
    records_bytes: int


def encode(
    records: pa.RecordBatch,
    settings: BatchSettings = PLAIN,
    *,
    base_offset: int,
    last_offset: int | None = None,
) -> bytes:
    """Encode all rows as one batch.

    Args:
        records: columns of RECORDS_SCHEMA, any of them left out. A null or missing timestamp
            becomes NO_TIMESTAMP_MS, so fill in the append time first. No rows make the empty batch
            in which compaction keeps the producer fields; it needs `last_offset`.

        settings: the other header fields.
        base_offset: the batch's, at or below the first row's.
        last_offset: the batch's, if it is not the last row's.

    Raises:
        InvalidRequest: columns or offsets that no batch can hold; the message names them.
        RecordTooLarge: the rows fill more than 2 GiB; write several batches.
    """
    writer = _Writer(columns_of(records), np.empty(records.num_rows, np.int32), settings)
    span = writer.measure(0, base_offset, _RECORDS_BYTES_MAX)
    if span.end_row < records.num_rows:
        raise writer.refusal(span)
    return writer.batch(_extended(span, last_offset), settings.codec)


def encode_many(
    records: pa.RecordBatch,
    settings: BatchSettings = PLAIN,
    *,
    base_offset: int,
    max_batch_bytes: int,
) -> Iterator[bytes]:
    """Encode rows in order as batches of at most `max_batch_bytes`, as few as a greedy split needs.

    A batch also ends where an offset delta would exceed 31 bits and, with LogAppendTime, where the
    timestamp changes. The limit counts uncompressed bytes, except for a record that fits only when
    compressed. A batch that compression would make too large is written uncompressed. Sequence
    numbers continue from batch to batch with the offsets.

    Raises:
        InvalidRequest: as `encode`.
        RecordTooLarge: a single record exceeds the limit; the message names the row.
    """
    yield from Rows(records).batches(
        0, records.num_rows, settings, base_offset=base_offset, max_batch_bytes=max_batch_bytes
    )


class Rows:
    """Rows for many batches: their columns are looked up only once."""

    def __init__(self, records: pa.RecordBatch) -> None:
        """Look up the columns of RECORDS_SCHEMA, any of them left out.

        Raises:
            InvalidRequest: columns that no batch can hold.
        """
        self._columns = columns_of(records)
        self._sizes = np.empty(records.num_rows, np.int32)

    def batches(
        self,
        first_row: int,
        end_row: int,
        settings: BatchSettings,
        *,
        base_offset: int,
        max_batch_bytes: int,
    ) -> Iterator[bytes]:
        """Encode rows [first row, end row) as batches, as `encode_many` does.

        Raises:
            InvalidRequest, RecordTooLarge: as `encode_many`.
        """
        writer = _Writer(self._columns, self._sizes, settings)
        records_bytes_max = min(max_batch_bytes - HEADER_BYTES, _RECORDS_BYTES_MAX)
        first_base_offset = base_offset
        row = first_row
        while row < end_row:
            if writer.offset_at(row, base_offset) - base_offset > INT32_MAX:
                base_offset = writer.offset_at(row, base_offset)
            span = writer.measure(row, base_offset, records_bytes_max, end_row)
            is_lone = span.end_row == row
            if is_lone:
                span = writer.measure(row, base_offset, _RECORDS_BYTES_MAX, row + 1)
            batch = writer.batch(span, settings.codec, base_offset - first_base_offset)
            if len(batch) > max_batch_bytes and not is_lone:
                batch = writer.batch(span, Codec.NONE, base_offset - first_base_offset)
            if len(batch) > max_batch_bytes:
                raise RecordTooLarge(
                    "record is over max.message.bytes by itself; send a smaller one or raise the "
                    f"limit. row={row} batch_bytes={len(batch)} max.message.bytes={max_batch_bytes}"
                )
            yield batch
            row = span.end_row
            base_offset = writer.offset_at(row, span.last_offset + 1)


class _Writer:
    """The columns of one call, and their measurements."""

    def __init__(self, columns: Columns, sizes: Int32s, settings: BatchSettings) -> None:
        self._settings = settings
        self._columns = columns
        self._rows = len(sizes)
        self._sizes = sizes
        self._kernels = _kernels()

    def measure(
        self, row: int, base_offset: int, bytes_max: int, end_row: int | None = None
    ) -> _Span:
        """Return the rows from `row` on that fit into one batch; there may be none."""
        if not 0 <= base_offset < INT64_MAX - self._rows:
            raise InvalidRequest(
                "base_offset leaves no room for the rows; offsets are 63 bits. "
                f"base_offset={base_offset} rows={self._rows}"
            )
        is_one_timestamp = self._settings.timestamp_type is TimestampType.LOG_APPEND_TIME
        first_timestamp = self._timestamp_at(row) if row < self._rows else NO_TIMESTAMP_MS
        horizon = self._settings.delete_horizon_ms
        base_timestamp = first_timestamp if horizon is None else horizon
        found = np.zeros(self._kernels.FOUND, np.int64)
        fault = self._kernels.measure_records(
            row,
            self._rows if end_row is None else end_row,
            base_offset,
            base_timestamp,
            bytes_max,
            is_one_timestamp,
            tuple(self._columns),
            self._sizes,
            found,
        )
        _raise_if(fault, base_offset)
        return _Span(
            first_row=row,
            end_row=int(found[self._kernels.END_ROW]),
            base_offset=base_offset,
            last_offset=int(found[self._kernels.LAST_OFFSET]),
            base_timestamp=base_timestamp,
            max_timestamp=(
                first_timestamp if is_one_timestamp else int(found[self._kernels.MAX_TIMESTAMP])
            ),
            records_bytes=int(found[self._kernels.RECORDS_BYTES]),
        )

    def batch(self, span: _Span, codec: Codec, sequences_before: int = 0) -> bytes:
        """Return the rows of `span` as a batch."""
        plain = np.empty(span.records_bytes, np.uint8)
        fault = self._kernels.write_records(
            span.first_row,
            span.end_row,
            span.base_offset,
            span.base_timestamp,
            tuple(self._columns),
            self._sizes,
            plain,
        )
        _raise_if(fault, span.base_offset)
        settings = self._settings
        if settings.codec is not codec:
            settings = replace(settings, codec=codec)
        sequence = settings.base_sequence
        if sequence != NO_SEQUENCE:
            sequence = increment_sequence(sequence, sequences_before)
        records: BytesLike = plain.data
        if codec is not Codec.NONE:
            records = compress(records, codec, settings.level)
        header = BatchHeader(
            base_offset=span.base_offset,
            length=0,
            leader_epoch=settings.leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=settings.attributes,
            last_offset_delta=span.last_offset - span.base_offset,
            base_timestamp=span.base_timestamp,
            max_timestamp=span.max_timestamp,
            producer_id=settings.producer_id,
            producer_epoch=settings.producer_epoch,
            base_sequence=sequence,
            record_count=span.end_row - span.first_row,
        )
        return b"".join((seal_header(header, records), records))

    def offset_at(self, row: int, dense: int) -> int:
        """Return the row's own offset if it has one, else `dense`."""
        offsets, _ = self._columns.longs
        return int(offsets[row]) if row < len(offsets) else dense

    def refusal(self, span: _Span) -> InvalidRequest:
        """Return the error that explains why the row after `span` does not fit into the batch."""
        row = span.end_row
        delta = self.offset_at(row, span.last_offset + 1) - span.base_offset
        if delta > INT32_MAX:
            return InvalidRequest(
                "offsets are too far apart for one batch; write several. "
                f"row={row} offset_delta={delta} max={INT32_MAX}"
            )
        is_append_time = self._settings.timestamp_type is TimestampType.LOG_APPEND_TIME
        if is_append_time and self._timestamp_at(row) != span.max_timestamp:
            return InvalidRequest(
                "rows of one LogAppendTime batch have one timestamp; write several batches. "
                f"row={row} timestamp={self._timestamp_at(row)} before={span.max_timestamp}"
            )
        return RecordTooLarge(
            "rows fill more than one batch can hold; write several batches. "
            f"row={row} bytes_before={span.records_bytes} max={_RECORDS_BYTES_MAX}"
        )

    def _timestamp_at(self, row: int) -> int:
        _, timestamps = self._columns.longs
        return int(timestamps[row])


def _extended(span: _Span, last_offset: int | None) -> _Span:
    """Return `span` up to `last_offset`, if that is given."""
    if last_offset is None:
        if span.end_row == span.first_row:
            raise InvalidRequest("a batch without rows needs a last_offset; pass one, or rows.")
        return span
    low = max(span.base_offset, span.last_offset)
    high = min(span.base_offset + INT32_MAX, INT64_MAX - 1)
    if not low <= last_offset <= high:
        raise InvalidRequest(
            "last_offset is out of range; it is not below the last row's. "
            f"last_offset={last_offset} min={low} max={high}"
        )
    return span._replace(last_offset=last_offset)


def _raise_if(fault: int, base_offset: int) -> None:
    kernels = _kernels()
    if fault == kernels.EncodeFault.OFFSET_ORDER:
        raise InvalidRequest(
            "offsets must rise from row to row, from base_offset on; sort the rows or mend the "
            f"offset column. base_offset={base_offset}"
        )
    if fault:
        raise DataCorrupt(
            "Arrow array is malformed: its offsets lead outside its data; check the writer. "
            f"base_offset={base_offset}"
        )


@cache
def _kernels() -> ModuleType:
    """Load numba and the machine code on first use: importing them costs a third of a second."""
    from sparklog.protocol.records import encode_kernels  # noqa: PLC0415 - see above

    return encode_kernels


SMALL_RECORDS_MAX: Final = 100
"""Beyond this `encode` is faster."""

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
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """Return one batch of records with one timestamp and no headers.

    Coordinators write without a sequence; other producers with an id need one.
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
        base_sequence=base_sequence,
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
