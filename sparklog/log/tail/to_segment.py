"""Converts producers' record batches to a segment of the partition's own log (L1).

Records become rows. The footer has the data that only producers and transactions need: the producer
of each batch, and the markers that end transactions. Markers are no rows, so a reader of records
never gets one. `to_batches` converts segments back to batches. The conversion uses much CPU, and
does not access the store.
Source: FORMAT.md 2.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from sparklog.core.errors import DataCorrupt, InvalidRequest
from sparklog.core.types import NO_PRODUCER_ID, TimestampType
from sparklog.log.layout import PartitionLayout
from sparklog.log.segment.builder import SegmentBuilder, build_references, build_rows
from sparklog.log.segment.segment import Marker, ProducerBatch, Segment, UnreadBatch
from sparklog.log.tail.references import decode_references
from sparklog.protocol.records.decoder import Headers, decode_runs, read_headers
from sparklog.protocol.records.header import (
    CONTROL_BIT,
    INT32_MAX,
    REFERENCE_BIT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BytesLike,
    parse_header,
)
from sparklog.protocol.records.record_batch import decode
from sparklog.store.base import Data

PLAIN_BYTES_MAX: Final = 64 << 20
"""Decompressed bytes of records that end a segment. So well compressed data does not exhaust the
memory of the executor."""
UNREAD_BYTES_MAX: Final = 4 << 20
"""Bytes of unread batches that end a segment: its footer has them, and readers read it whole."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FlushBuilder:
    """A segment that fits one place in the log: the offsets of its batches."""

    segment: Segment
    """In its place: offsets are absolute."""
    data: Data
    """The whole file."""
    batches: int
    """Number of the given batches that it holds, from the first on."""

    @property
    def base_offset(self) -> int:
        """Return the first offset."""
        return self.segment.base_offset

    @property
    def end_offset(self) -> int:
        """Return the offset after the last."""
        return self.segment.end_offset

    @property
    def leader_epoch(self) -> int:
        """Return the epoch of the batches, which may be older than the flushing leader's."""
        return self.segment.leader_epoch


def build_flush(
    layout: PartitionLayout,
    batches: Sequence[BytesLike],
    nonce: str,
    *,
    codec: str,
    level: int | None = None,
    indexes_keys: bool = False,
    plain_bytes_max: int = PLAIN_BYTES_MAX,
) -> FlushBuilder:
    """Encode as many of `batches` as one segment takes: one leader epoch, one timestamp type.

    Args:
        `layout`: the partition.
        `batches`: whole batches with base offset and leader epoch, without gaps between them. Their
            checksums were verified when they arrived.
        `nonce`: of this attempt.
        `codec`: of the segment: none, lz4 or zstd.
        `level`: of zstd.
        `indexes_keys`: add the key index, which excludes keys that the segment does not have.
        `plain_bytes_max`: decompressed bytes of records that end the segment.

    A reference batch becomes a segment of its own, with the same references.
    A batch with a valid checksum but unreadable records is stored in its wire bytes. Consumers get
    it back, readers of rows skip it. So no client can stop the flush.

    Raises:
        InvalidRequest: no batches, or they do not join.
        DataCorrupt: a header contradicts itself.
    """
    headers = _joined(batches, read_headers(batches)) if batches else None
    if headers is None:
        raise InvalidRequest(f"nothing to flush: no batches. partition={layout.folder}")
    if headers["attributes"][0] & REFERENCE_BIT:
        return _referring(layout, batches[0], nonce)
    headers = headers[: _one_kind(headers)]
    unread: list[int] = []
    try:
        content = _decoded(batches, headers, unread, plain_bytes_max)
    except DataCorrupt:
        unread = _unreadable(layout, batches, headers)
        if sum(len(batches[at]) for at in unread) >= UNREAD_BYTES_MAX:
            headers = headers[: unread[-1] + 1]
        content = _decoded(batches, headers, unread, plain_bytes_max)
    about = _about(layout, nonce, codec, headers[: content.batches], content)
    draft = _draft(about, level, content, int(headers["base_offset"][0]), indexes_keys=indexes_keys)
    base_offset = int(headers["base_offset"][0])
    return FlushBuilder(draft.placed(base_offset), draft.finished(base_offset), content.batches)


def _referring(layout: PartitionLayout, data: BytesLike, nonce: str) -> FlushBuilder:
    """Return the reference segment of a reference batch.

    As part of a transaction it has no rows: a later marker decides if its records count.
    """
    header = parse_header(data)
    batch = decode_references(data, header)
    draft = build_references(layout, batch.references, nonce)
    about = replace(draft.segment, leader_epoch=header.leader_epoch, led=True)
    if header.is_transactional:
        who = header.producer_id, header.producer_epoch, header.base_sequence
        producer = ProducerBatch(*who, 0, batch.count, TRANSACTIONAL_BIT)
        about = replace(about, rows=0, producers=(producer,))
    placed = replace(draft, segment=about)
    at = header.base_offset
    return FlushBuilder(placed.placed(at, batch.commit), placed.at(at, batch.commit), 1)


@dataclass(frozen=True, slots=True)
class _Content:
    """The content of the first of the batches."""

    batches: int
    runs: Sequence[pa.RecordBatch]
    markers: tuple[Marker, ...]
    unread: tuple[UnreadBatch, ...]


def _decoded(
    batches: Sequence[BytesLike], headers: Headers, unread: Sequence[int], plain_bytes_max: int
) -> _Content:
    """Decode all batches except those at `unread`, up to the limit of one segment."""
    is_readable = np.ones(len(headers), bool)
    is_readable[unread] = False
    is_control = headers["attributes"] & CONTROL_BIT != 0
    of_data = np.flatnonzero(is_readable & ~is_control)
    runs: list[pa.RecordBatch] = []
    decoded = plain_bytes = 0
    data = [batches[at] for at in of_data.tolist()]
    for count, rows in decode_runs(data, headers[of_data], max_decompressed_bytes=INT32_MAX):
        runs.append(rows)
        decoded += count
        plain_bytes += rows.nbytes
        if plain_bytes >= plain_bytes_max:
            break
    taken = len(headers) if decoded == len(of_data) else int(of_data[decoded])
    base_offset = int(headers["base_offset"][0])
    of_markers = np.flatnonzero((is_readable & is_control)[:taken]).tolist()
    return _Content(
        taken,
        runs,
        tuple(marker for at in of_markers for marker in _markers(batches[at], base_offset)),
        tuple(_unread(batches[at], base_offset) for at in unread if at < taken),
    )


def _unreadable(
    layout: PartitionLayout, batches: Sequence[BytesLike], headers: Headers
) -> list[int]:
    """Return the indexes of unreadable batches, up to the one that reaches UNREAD_BYTES_MAX."""
    found: list[int] = []
    size = 0
    for at, offset in enumerate(headers["base_offset"].tolist()):
        try:
            decode(batches[at], verify_crc=False, max_decompressed_bytes=INT32_MAX)
        except DataCorrupt as error:
            logger.error(
                "a producer's batch cannot be read, kept as it came partition=%s offset=%d %s",
                layout.folder,
                offset,
                error,
            )
            found.append(at)
            size += len(batches[at])
            if size >= UNREAD_BYTES_MAX:
                break
    return found


def _about(
    layout: PartitionLayout, nonce: str, codec: str, headers: Headers, content: _Content
) -> Segment:
    """Return the segment's metadata that is known before its rows are encoded."""
    base_offset = int(headers["base_offset"][0])
    end_offset = int(headers["base_offset"][-1]) + int(headers["last_offset_delta"][-1]) + 1
    of_data = headers[headers["attributes"] & CONTROL_BIT == 0]
    append_time = len(of_data) and of_data["attributes"][0] & TIMESTAMP_TYPE_BIT
    return Segment(
        topic_id=layout.topic_id,
        partition=layout.partition,
        base_offset=0,
        end_offset=end_offset - base_offset,
        rows=sum(run.num_rows for run in content.runs),
        nonce=nonce,
        leader_epoch=int(headers["leader_epoch"][0]),
        led=True,
        timestamp_type=TimestampType(bool(append_time)),
        codec=codec,
        producers=tuple(_producers(headers, base_offset)),
        markers=content.markers,
        unread=content.unread,
    )


def _draft(
    about: Segment, level: int | None, content: _Content, base_offset: int, *, indexes_keys: bool
) -> SegmentBuilder:
    runs = content.runs
    columns = ["timestamp", "value"]
    if about.rows < about.end_offset:
        columns.insert(0, "offset")
    if any(run.column("key").null_count < run.num_rows for run in runs):
        columns.insert(-1, "key")
    if any(run.column("headers").null_count < run.num_rows for run in runs):
        columns.append("headers")
    stored = [run.select(columns) for run in runs]
    return build_rows(
        about, columns, stored, level, first_offset=base_offset, indexes_keys=indexes_keys
    )


def _one_kind(headers: Headers) -> int:
    """Return the number of first batches with one leader epoch and one timestamp type.

    None of them is a reference batch.
    """
    attributes = headers["attributes"]
    other_epoch = headers["leader_epoch"] != headers["leader_epoch"][0]
    # A marker is no row, so the type of its timestamp does not matter.
    of_data = np.flatnonzero(attributes & CONTROL_BIT == 0)
    types = attributes[of_data] & TIMESTAMP_TYPE_BIT
    ends = [
        np.flatnonzero(other_epoch)[:1],
        of_data[np.flatnonzero(types != types[:1])[:1]],
        np.flatnonzero(attributes & REFERENCE_BIT)[:1],
    ]
    return min((int(end[0]) for end in ends if len(end)), default=len(headers))


def _joined(batches: Sequence[BytesLike], headers: Headers) -> Headers:
    ends = headers["base_offset"] + headers["last_offset_delta"] + 1
    apart = np.flatnonzero(headers["base_offset"][1:] != ends[:-1])
    if len(apart):
        at = int(apart[0])
        raise InvalidRequest(
            "batches to flush do not join; flush each stretch by itself. "
            f"end_offset={ends[at]} next_base_offset={headers['base_offset'][at + 1]} "
            f"batches={len(batches)}"
        )
    return headers


def _producers(headers: Headers, base_offset: int) -> Iterator[ProducerBatch]:
    theirs = headers[headers["producer_id"] != NO_PRODUCER_ID]
    bases = theirs["base_offset"].astype(np.int64) - base_offset
    columns = (
        theirs["producer_id"],
        theirs["producer_epoch"],
        theirs["base_sequence"],
        bases,
        bases + theirs["last_offset_delta"] + 1,
        theirs["attributes"],
    )
    for row in zip(*(column.tolist() for column in columns), strict=True):
        yield ProducerBatch(*row)


def _markers(batch: BytesLike, base_offset: int) -> Iterator[Marker]:
    rows = decode(batch, verify_crc=False).records
    stamps = rows.column("timestamp").cast(pa.int64()).to_pylist()
    for row, stamp in zip(rows.to_pylist(), stamps, strict=True):
        yield Marker(row["offset"] - base_offset, stamp, row["key"] or b"", row["value"])


def _unread(batch: BytesLike, base_offset: int) -> UnreadBatch:
    header = parse_header(batch)
    base, end = header.base_offset - base_offset, header.end_offset - base_offset
    return UnreadBatch(base, end, bytes(batch))
