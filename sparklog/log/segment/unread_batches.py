"""Batches stored in their wire bytes, because a flush could not convert them to rows.

Older versions accepted batches without a check. This version can read some of those batches: Kafka
accepts some that older versions of sparklog could not decode. No reader can read the others.

UNREAD-BATCHES-1: A batch that can be read is returned as its rows.
UNREAD-BATCHES-2: A reader that skips an unreadable batch logs a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import Enum

import pyarrow as pa

from sparklog.core.errors import DataCorrupt, UnreadableRecords
from sparklog.core.types import TopicPartition
from sparklog.log.layout import PartitionLayout
from sparklog.log.numpy_arrays import int64_array
from sparklog.log.schema import READ_TYPES
from sparklog.log.segment.column_reader import batch_of
from sparklog.log.segment.segment import UnreadBatch
from sparklog.protocol.records.header import INT32_MAX, parse_header
from sparklog.protocol.records.record_batch import decode

logger = logging.getLogger(__name__)


class Unread(Enum):
    """The reaction of a reader to an unreadable batch."""

    FAIL = "fail"
    PASS_OVER = "pass over"  # noqa: S105 - no password
    """Skip it, with a line in the log."""
    KEEP = "keep"
    """For maintenance jobs: leave all such batches as they are, and read the other rows."""


def unread_rows(
    layout: PartitionLayout,
    batch: UnreadBatch,
    base_offset: int,
    columns: Sequence[str],
    unread: Unread,
) -> pa.RecordBatch | None:
    """Return the rows of a batch that was stored in its wire bytes; None if it is skipped.

    Args:
        `layout`: of its partition.
        `batch`: its entry in the footer.
        `base_offset`: of its first record, in the log.
        `columns`: of the rows.
        `unread`: the reaction to an unreadable batch; not KEEP.

    Raises:
        UnreadableRecords: the batch is unreadable, and `unread` is FAIL.
    """
    assert unread is not Unread.KEEP
    end_offset = base_offset + batch.end - batch.base
    try:
        header = parse_header(batch.data)
        rows = decode(batch.data, verify_crc=False, max_decompressed_bytes=INT32_MAX).records
    except DataCorrupt as error:
        place = TopicPartition(layout.topic, layout.partition)
        report_unreadable(place, base_offset, end_offset, error, unread)
        return None
    offsets = rows.column("offset").to_numpy() + (base_offset - header.base_offset)
    arrays = {
        "offset": int64_array(offsets),
        "timestampType": pa.repeat(
            pa.scalar(int(header.timestamp_type), pa.int32()), rows.num_rows
        ),
    }
    found = [
        arrays[name] if name in arrays else rows.column(name).cast(READ_TYPES[name])
        for name in columns
    ]
    return batch_of(found, columns, rows.num_rows)


def report_unreadable(
    place: TopicPartition, base_offset: int, end_offset: int, reason: DataCorrupt, unread: Unread
) -> None:
    """Log that the records of a batch are unreadable, or raise.

    Raises:
        UnreadableRecords: `unread` is FAIL.
    """
    message = (
        "records cannot be read: their producer's batch is malformed, and an older version "
        f"acknowledged it. topic={place.topic} partition={place.partition} "
        f"base_offset={base_offset} end_offset={end_offset} reason={reason}"
    )
    if unread is Unread.FAIL:
        raise UnreadableRecords(
            f"{message}; to read on without them set failOnDataLoss to false (Spark) or pass "
            "--skip-unreadable (sparklog consume)"
        ) from reason
    logger.warning("passed over: %s", message)


def why_unreadable(batch: UnreadBatch) -> str:
    """Return the reason why a batch is unreadable, or '' if it can be read."""
    try:
        decode(batch.data, verify_crc=False, max_decompressed_bytes=INT32_MAX)
    except DataCorrupt as error:
        return str(error)
    return ""
