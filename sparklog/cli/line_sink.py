"""Where lines go that `sparklog produce` read: to a root or to brokers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from sparklog.cli.line_reader import LineRecord
from sparklog.core.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Delivery:
    """Where some of the records went: `count` of them, side by side."""

    topic_partition: TopicPartition
    base_offset: int
    """-1 when nobody said, with acks=0."""
    count: int


class LineSink(Protocol):
    """Takes records in batches."""

    def append(self, records: Sequence[LineRecord]) -> Iterator[Delivery]:
        """Append records; yield what is acknowledged by now, of these or earlier ones.

        Raises:
            SparklogError: some were not appended; the class says what to do.
        """

    def finish(self) -> Iterator[Delivery]:
        """Wait for every acknowledgement, and yield the rest. Raises as `append`."""
