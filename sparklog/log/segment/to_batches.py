"""Converts rows of a segment to the record batches that Kafka's consumers read. Pure.

Rows become batches of a convenient size; the cuts of the producers' batches are not kept. The begin
and end of each transaction are kept, and so are its markers: readers of committed records need
both. Offsets without a record (removed by compaction, or control segments of old logs) become empty
batches. Clients skip these, so no client waits for an offset that never comes.

TO-BATCHES-1: The batches of a block cover its offsets without a gap between them.
TO-BATCHES-2: A batch is within one transaction, or outside of all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from sparklog.core.errors import RecordTooLarge
from sparklog.core.types import NO_PRODUCER_ID, NO_TIMESTAMP_MS
from sparklog.log.segment.segment import Marker, ProducerBatch, Segment, UnreadBatch
from sparklog.protocol.records.columns import TIMESTAMP_TYPE
from sparklog.protocol.records.encoder import encode_small
from sparklog.protocol.records.header import (
    CONTROL_BIT,
    HEADER_BYTES,
    INT32_MAX,
    NO_EPOCH,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Codec,
    increment_sequence,
    parse_header,
    seal_header,
)
from sparklog.protocol.records.record_batch import BatchSettings, Rows, encode

BATCH_BYTES: Final = 128 * 1024
"""Of a batch before compression. It is small enough for a consumer with a small fetch size, and
large enough that the fixed cost of a batch does not matter."""


@dataclass(frozen=True, slots=True)
class WireBatch:
    """A record batch and the offsets it covers."""

    base_offset: int
    end_offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class OffsetSpan:
    """Offsets, relative to the segment, that one kind of batch covers."""

    base: int
    end: int
    producer: ProducerBatch | None = None
    """Of the transaction, or of the marker."""
    marker: Marker | None = None
    unread: UnreadBatch | None = None


class OffsetSpans:
    """The offsets of the transactions, markers and unread batches of a segment."""

    def __init__(self, segment: Segment) -> None:
        """Sort the entries of the footer by offset."""
        markers = {marker.base: marker for marker in segment.markers}
        unread = {one.base: one for one in segment.unread}
        special = [OffsetSpan(one.base, one.end, unread=one) for one in segment.unread]
        for one in segment.producers:
            if one.base in unread:
                continue
            if one.attributes & CONTROL_BIT:
                special.append(OffsetSpan(one.base, one.end, one, markers.get(one.base)))
            elif one.attributes & TRANSACTIONAL_BIT:
                _add_transactional(special, one)
        special.sort(key=lambda span: span.base)
        self._special = special
        self._ends = [span.end for span in special]

    def within(self, base: int, end: int) -> Iterator[OffsetSpan]:
        """Yield stretches that cover [base, end) in order, cut at its edges."""
        at = base
        for span in self._special[bisect_right(self._ends, base) :]:
            if span.base >= end:
                break
            if at < span.base:
                yield OffsetSpan(at, span.base)
            at = min(span.end, end)
            is_whole = span.base >= base and span.end == at
            yield span if is_whole else replace(span, base=max(span.base, base), end=at)
        if at < end:
            yield OffsetSpan(at, end)


def _add_transactional(special: list[OffsetSpan], one: ProducerBatch) -> None:
    """Add a batch, joined to the one before if it is its continuation."""
    last = special[-1] if special else None
    if last is not None and last.producer is not None and last.marker is None:
        before = last.producer
        follows = (
            last.end == one.base
            and before.producer_id == one.producer_id
            and before.producer_epoch == one.producer_epoch
            and not before.attributes & CONTROL_BIT
            and increment_sequence(before.base_sequence, last.end - before.base)
            == one.base_sequence
        )
        if follows:
            special[-1] = replace(last, end=one.end)
            return
    special.append(OffsetSpan(one.base, one.end, one))


@dataclass(frozen=True, slots=True)
class BlockWriter:
    """Makes the batches of one segment's blocks."""

    segment: Segment
    object_base: int
    """Absolute offset of the segment's relative offset 0."""
    leader_epoch: int
    codec: Codec
    stretches: OffsetSpans

    def batches(self, rows: pa.RecordBatch | None, base: int, end: int) -> Iterator[WireBatch]:
        """Yield the batches that cover [base, end), absolute offsets.

        Args:
            rows: the records there, with all columns, in order of their offsets; None for none.
            base: of the block.
            end: of the block.
        """
        known = None if rows is None else _Known(rows)
        relative = self.stretches.within(base - self.object_base, end - self.object_base)
        for span in relative:
            low, high = span.base + self.object_base, span.end + self.object_base
            if span.unread is not None:
                yield WireBatch(low, high, span.unread.data)
            elif span.marker is not None:
                data = self._marker(span, span.marker, low)
                yield WireBatch(low, high, data)
            else:
                yield from self._records(known, span, low, high)

    def _records(
        self, known: _Known | None, span: OffsetSpan, low: int, high: int
    ) -> Iterator[WireBatch]:
        settings = self._settings(span)
        first, end = (0, 0) if known is None else known.between(low, high)
        if known is None or first == end:
            yield from self._nothing(settings, low, high)
            return
        made = partial(known.rows.batches, first, end, settings, base_offset=low)
        try:
            batches = list(made(max_batch_bytes=BATCH_BYTES))
        except RecordTooLarge:
            batches = list(made(max_batch_bytes=INT32_MAX))
        headers = [parse_header(data) for data in batches]
        afters = [*(header.base_offset for header in headers[1:]), high]
        for data, header, after in zip(batches, headers, afters, strict=True):
            yield WireBatch(header.base_offset, after, _extended(data, header, after))

    def _nothing(self, settings: BatchSettings, low: int, high: int) -> Iterator[WireBatch]:
        """Yield empty batches that cover offsets without records."""
        empty = pa.RecordBatch.from_pylist([], pa.schema([pa.field("value", pa.binary())]))
        plain = replace(settings, codec=Codec.NONE)
        for base in range(low, high, INT32_MAX):
            end = min(base + INT32_MAX, high)
            yield WireBatch(base, end, encode(empty, plain, base_offset=base, last_offset=end - 1))

    def _settings(self, span: OffsetSpan) -> BatchSettings:
        producer = span.producer
        if producer is None:
            return BatchSettings(
                codec=self.codec,
                timestamp_type=self.segment.timestamp_type,
                leader_epoch=self.leader_epoch,
            )
        return BatchSettings(
            codec=self.codec,
            timestamp_type=self.segment.timestamp_type,
            leader_epoch=self.leader_epoch,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=increment_sequence(producer.base_sequence, span.base - producer.base),
            is_transactional=True,
        )

    def _marker(self, span: OffsetSpan, marker: Marker, offset: int) -> bytes:
        producer = span.producer
        producer_id = producer.producer_id if producer else NO_PRODUCER_ID
        producer_epoch = producer.producer_epoch if producer else NO_EPOCH
        base_sequence = producer.base_sequence if producer else NO_SEQUENCE
        is_transactional = bool(producer and producer.attributes & TRANSACTIONAL_BIT)
        if base_sequence == NO_SEQUENCE:  # as all coordinators write them
            return encode_small(
                ((marker.key, marker.value),),
                marker.timestamp_ms,
                base_offset=offset,
                leader_epoch=self.leader_epoch,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                is_transactional=is_transactional,
                is_control=True,
            )
        settings = BatchSettings(
            leader_epoch=self.leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
            is_control=True,
        )
        row = _one_row(marker.key, marker.value, marker.timestamp_ms)
        return encode(row, settings, base_offset=offset)


class _Known:
    """The rows of a block, looked up once for all their batches."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self.rows = Rows(rows)
        self._offsets = rows.column("offset").to_numpy()

    def between(self, low: int, high: int) -> tuple[int, int]:
        """Return the first row at or after `low`, and the first at or after `high`."""
        first, end = np.searchsorted(self._offsets, (low, high)).tolist()
        return first, end


def _one_row(
    key: bytes, value: bytes | None, timestamp_ms: int = NO_TIMESTAMP_MS
) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([timestamp_ms], pa.int64()).view(TIMESTAMP_TYPE),
            pa.array([key], pa.binary()),
            pa.array([value], pa.binary()),
        ],
        names=["timestamp", "key", "value"],
    )


def _extended(data: bytes, header: BatchHeader, end_offset: int) -> bytes:
    """Return a batch that covers the offsets up to `end_offset`, which leaves a gap at its end."""
    if header.end_offset == end_offset:
        return data
    records = data[HEADER_BYTES:]
    longer = header._replace(last_offset_delta=end_offset - 1 - header.base_offset)
    return b"".join((seal_header(longer, records), records))
