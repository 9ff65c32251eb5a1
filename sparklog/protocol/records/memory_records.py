"""Splits a buffer of record batches, as Produce and Fetch carry it, into batches.

It reads headers only, not the records inside. Sizes are bytes.

MEMORY-RECORDS-1: The batches lie one after the other from the buffer's first byte.
MEMORY-RECORDS-2: Only a reader of Fetch responses may find a last batch that is cut short.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sparklog.core.errors import RecordTooLarge
from sparklog.protocol.records.header import (
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    BytesLike,
    parse_header,
    whole_batch,
)


@dataclass(frozen=True, slots=True)
class BatchSlice:
    """One batch inside a buffer: its header, position, and bytes (a view, no copy)."""

    header: BatchHeader
    position: int
    data: memoryview


def split_batches(
    buffer: BytesLike,
    *,
    max_batch_bytes: int | None = None,
    allow_cut_tail: bool = False,
) -> Iterator[BatchSlice]:
    """Yield the batches of `buffer` in order; headers are checked, checksums are not.

    Args:
        buffer: zero or more batches, nothing else.
        max_batch_bytes: `max.message.bytes`; None means any size.

        allow_cut_tail: stop silently at an incomplete last batch. A broker cuts a Fetch response at
            `max.partition.fetch.bytes`; a Produce request must be complete.

    Raises:
        DataCorrupt: not batches of magic 2, or one is cut short; reject the request.
        RecordTooLarge: a batch is over `max_batch_bytes`; the producer must send smaller ones.
    """
    view = memoryview(buffer).cast("B")
    position = 0
    while position < len(view):
        left = len(view) - position
        if allow_cut_tail and left < HEADER_BYTES and _may_be_ours(view, position):
            return
        header = parse_header(view, position)
        if max_batch_bytes is not None and header.size_bytes > max_batch_bytes:
            raise RecordTooLarge(
                "record batch is over max.message.bytes; send smaller batches or raise the limit. "
                f"batch_bytes={header.size_bytes} max.message.bytes={max_batch_bytes}"
            )
        if allow_cut_tail and header.size_bytes > left:
            return
        yield BatchSlice(header, position, whole_batch(view, header, position))
        position += header.size_bytes


def _may_be_ours(view: memoryview, position: int) -> bool:
    """Return True if a piece shorter than a header may be the beginning of a batch of magic 2."""
    magic_at = position + MAGIC_AT
    return magic_at >= len(view) or view[magic_at] == MAGIC
