"""Encodes rewritten segments: rows of neighbouring entries, in as few objects as possible.

Rows come in order of offsets, with gaps where some were removed. An object ends when its
decompressed rows take PLAIN_BYTES_MAX, because it is encoded from memory. It does not use a store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from sparklog.core.types import TimestampType
from sparklog.log.cleanup.merged_footer import MergedFooter
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.manifest import REWRITTEN_NONCE, Entry
from sparklog.log.segment.builder import build_rows
from sparklog.log.segment.segment import Segment

PLAIN_BYTES_MAX: Final = 80 << 20
"""With its encoded form and the file, a task holds an object in memory three times at most."""
ROW_COLUMNS: Final = ("offset", "timestamp", "key", "value", "headers")


@dataclass(frozen=True, slots=True)
class Encoding:
    """The encoding of rewritten segments."""

    codec: str
    """none, lz4 or zstd."""
    level: int | None = None
    indexes_keys: bool = False


@dataclass(frozen=True, slots=True)
class RewritePosition:
    """The common properties of the rewritten segments of one run."""

    layout: PartitionLayout
    base_offset: int
    end_offset: int
    leader_epoch: int
    led: bool
    timestamp_type: TimestampType


def rewritten(
    place: RewritePosition,
    rows: Iterable[pa.RecordBatch],
    lineage: MergedFooter,
    encoding: Encoding,
    nonces: Iterator[str],
) -> Iterator[tuple[Entry, bytes]]:
    """Yield the objects with these rows, which cover all of `place`: entry and file.

    Args:
        `place`: the offsets to cover, and the common properties of the objects.
        `rows`: with ROW_COLUMNS, in order of their offsets, within `place`.
        `lineage`: the data to keep from the footers of the replaced segments.
        `encoding`: of the objects.
        `nonces`: one for each object.
    """
    pending: list[pa.RecordBatch] = []
    size = 0
    base = place.base_offset
    for batch in rows:
        if not batch.num_rows:
            continue
        if pending and size + batch.nbytes > PLAIN_BYTES_MAX:
            end = batch.column("offset")[0].as_py()
            yield _object(place, base, end, pending, lineage, encoding, next(nonces))
            pending, size, base = [], 0, end
        pending.append(batch)
        size += batch.nbytes
    yield _object(place, base, place.end_offset, pending, lineage, encoding, next(nonces))


def _object(
    place: RewritePosition,
    base: int,
    end: int,
    rows: list[pa.RecordBatch],
    lineage: MergedFooter,
    encoding: Encoding,
    nonce: str,
) -> tuple[Entry, bytes]:
    """Return one object of these rows; it empties the list."""
    count = sum(batch.num_rows for batch in rows)
    columns = ["timestamp", "value"]
    if count < end - base:
        columns.insert(0, "offset")
    if any(batch.column("key").null_count < batch.num_rows for batch in rows):
        columns.insert(-1, "key")
    if any(batch.column("headers").null_count < batch.num_rows for batch in rows):
        columns.append("headers")
    about = Segment(
        topic_id=place.layout.topic_id,
        partition=place.layout.partition,
        base_offset=0,
        end_offset=end - base,
        rows=count,
        nonce=nonce,
        leader_epoch=place.leader_epoch,
        led=place.led,
        timestamp_type=place.timestamp_type,
        codec=encoding.codec,
    )
    about = lineage.within(base, end).relative(about, base)
    draft = build_rows(
        about, columns, _released(rows, columns), encoding.level,
        first_offset=base, indexes_keys=encoding.indexes_keys,
    )  # fmt: skip
    data = draft.at(base)
    entry = Entry(
        base_offset=base,
        end_offset=end,
        object=place.layout.rewritten_name(base, nonce),
        size_bytes=len(data),
        rows=count,
        min_timestamp_ms=draft.segment.min_timestamp_ms,
        max_timestamp_ms=draft.segment.max_timestamp_ms,
        leader_epoch=place.leader_epoch,
        nonce=REWRITTEN_NONCE,
    )
    return entry, data


def _released(rows: list[pa.RecordBatch], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the batches and release each, so that memory does not hold joined rows twice."""
    rows.reverse()
    while rows:
        yield rows.pop().select(columns)
