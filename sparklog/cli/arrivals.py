"""Records as they arrive at `sparklog consume`, from the storage or from brokers."""

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
    """Partitions that are followed."""

    def ready(self, records_max: int | None) -> Iterator[Arrived]:
        """Yield what there is to read now, and at most `records_max` records."""

    def wait(self, at_most_s: float | None) -> None:
        """Wait for more, at most so long."""

    def settle(self) -> None:
        """Take all records yielded so far for consumed."""


def checked_start(tp: TopicPartition, start: Start, log_start: int, log_end: int) -> int:
    """Return the offset that `start` means.

    Raises:
        OffsetOutOfRange: there is no such offset to start at.
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
