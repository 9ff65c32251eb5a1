"""LineSink: the destination of the lines of `sparklog produce`, a root or brokers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from sparklog.cli.line_reader import LineRecord
from sparklog.core.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Delivery:
    """Acknowledgement of `count` records with consecutive offsets."""

    topic_partition: TopicPartition
    base_offset: int
    """-1 with acks=0, where the broker does not return it."""
    count: int


class LineSink(Protocol):
    """Appends records in batches."""

    def append(self, records: Sequence[LineRecord]) -> Iterator[Delivery]:
        """Append records; yield new acknowledgements, of these or earlier records.

        Raises:
            SparklogError: some were not appended; the class says what to do.
        """

    def finish(self) -> Iterator[Delivery]:
        """Wait for every acknowledgement, and yield the rest. Raises as `append`."""
