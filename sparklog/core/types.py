"""Types that all packages share: plain immutable values, and `Closeable`.

Offsets count records in one partition. `base_offset` is inclusive, `end_offset` exclusive and
`last_offset` inclusive, everywhere. Timestamps are milliseconds since the Unix epoch, UTC.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import IntEnum
from types import TracebackType
from typing import NamedTuple, Self

NO_TIMESTAMP_MS = -1
NO_PRODUCER_ID = -1
UNLED_EPOCH = -1
"""Leader epoch of records appended directly, as Kafka has for a batch that no leader took."""
FIRST_LED_EPOCH = 0
"""Leader epoch of a partition's first leader."""


class TimestampType(IntEnum):
    """Timestamp types, with Kafka's numbers (also Spark's `timestampType`)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


@dataclass(frozen=True, order=True, slots=True)
class TopicPartition:
    """One partition of one topic, by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Return Kafka's usual spelling, `topic-partition`."""
        return f"{self.topic}-{self.partition}"


class PartitionId(NamedTuple):
    """One partition of one topic, by the topic's id: a topic created again is another one.

    A tuple, because it is the key of a broker's look-ups, many times for every request.
    """

    topic_id: str
    partition: int

    def __str__(self) -> str:
        """Return `topic id-partition`."""
        return f"{self.topic_id}-{self.partition}"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets [base_offset, end_offset) of one partition."""

    base_offset: int
    end_offset: int

    def __post_init__(self) -> None:
        """Reject a range that ends before it starts."""
        if not 0 <= self.base_offset <= self.end_offset:
            raise ValueError(f"not a range of offsets: [{self.base_offset}, {self.end_offset})")

    def __len__(self) -> int:
        """Return the number of offsets in the range; compaction may leave fewer records."""
        return self.end_offset - self.base_offset


class Closeable(ABC):
    """An object to close; `with` returns it, and closes it however the block ends."""

    @abstractmethod
    def close(self) -> None:
        """Release its resources. Repeated calls have no effect."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()
