"""Look-up of a record by its timestamp in one batch of a tail.

A batch may decompress to more than a hundred times its size. So a broker looks up outside of its
event loop, with memory taken from its budget for decompressed batches. Beyond the decompressed
records, a look-up takes no memory.

Timestamps are milliseconds. Source: Kafka's ListOffsets (KIP-79) and max timestamp (KIP-734).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sparklog.core.errors import DataCorrupt
from sparklog.core.types import TimestampType
from sparklog.protocol.records.compression import decompress
from sparklog.protocol.records.header import HEADER_BYTES, INT32_MAX, parse_header
from sparklog.protocol.records.unfolded_size import unfolded_bytes_max

if TYPE_CHECKING:
    from types import ModuleType


class TimestampedOffset(NamedTuple):
    """A record found by its timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


def first_since(batch: bytes, timestamp_ms: int) -> TimestampedOffset | None:
    """Return a batch's first record that is not older than a timestamp.

    Args:
        batch: of a tail; its checksum is not verified again.
        timestamp_ms: the lowest timestamp wanted.

    Returns:
        None if all records are older. Also None for unreadable records, which earlier versions
        appended.
    """
    header = parse_header(batch)
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        if header.max_timestamp < timestamp_ms:
            return None
        return TimestampedOffset(header.base_offset, header.max_timestamp, header.leader_epoch)
    size_bytes_max = unfolded_bytes_max(batch, INT32_MAX)
    try:
        records = decompress(memoryview(batch)[HEADER_BYTES:], header.codec, size_bytes_max)
    except DataCorrupt:
        return None
    kernels = _kernels()
    found = np.zeros(kernels.FOUND, np.int64)
    data = np.frombuffer(records, np.uint8)
    outcome = kernels.first_since(
        data, header.record_count, header.base_timestamp, timestamp_ms, found
    )
    if outcome != 1:
        return None
    record, delta, newest_ms = found.tolist()
    # A dense batch counts its records, and ignores their deltas; see DECODE-KERNELS-2.
    is_dense = header.record_count == header.last_offset_delta + 1
    offset = header.base_offset + (record if is_dense else delta)
    return TimestampedOffset(offset, newest_ms, header.leader_epoch)


@cache
def _kernels() -> ModuleType:
    """Load numba and the machine code on first use: importing them costs a third of a second."""
    from sparklog.protocol.records import timestamp_kernels  # noqa: PLC0415 - see above

    return timestamp_kernels
