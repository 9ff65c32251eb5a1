"""Look-ups by timestamp in a tail, as a broker makes them, without an event loop."""

from __future__ import annotations

from sparklog.log.tail.tail import Tail
from sparklog.log.tail.timestamp_lookup import TimestampedOffset, first_since


def find_timestamp(tail: Tail, timestamp_ms: int, limit_offset: int) -> TimestampedOffset | None:
    """Return the first record at or after a timestamp below an offset."""
    found = (first_since(b, timestamp_ms) for b in tail.batches_since(timestamp_ms, limit_offset))
    return next((one for one in found if one is not None), None)


def max_timestamp(tail: Tail, limit_offset: int) -> TimestampedOffset | None:
    """Return the first record with the highest timestamp below an offset."""
    found = (first_since(batch, ms) for ms, batch in tail.newest_batches(limit_offset))
    return next((one for one in found if one is not None), None)
