"""Arrivals: records for `sparklog consume`, from the storage or from brokers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from sparklog.client.values import EARLIEST, LATEST
from sparklog.core.errors import OffsetOutOfRange
from sparklog.core.types import TopicPartition

Start = int
"""An offset, or EARLIEST or LATEST."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """Some records of one partition."""

    topic_partition: TopicPartition
    batch: pa.RecordBatch


class Arrivals(Protocol):
    """Partitions that the command follows."""

    def ready(self, records_max: int | None) -> Iterator[Arrived]:
        """Yield the records that are ready, at most `records_max`."""

    def wait(self, at_most_s: float | None) -> None:
        """Wait for more records, at most `at_most_s`."""

    def settle(self) -> None:
        """Mark all records yielded so far as consumed."""


def checked_start(tp: TopicPartition, start: Start, log_start: int, log_end: int) -> int:
    """Return the start offset.

    Raises:
        OffsetOutOfRange: the log has no such offset.
    """
    if start == EARLIEST:
        return log_start
    if start == LATEST:
        return log_end
    if not log_start <= start <= log_end:
        raise OffsetOutOfRange(
            "there is no such offset to start at; use --offset earliest or latest. "
            f"partition={tp} offset={start} log_start_offset={log_start} log_end_offset={log_end}"
        )
    return start
