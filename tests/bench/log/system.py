"""One way to ask every system for the same work, so that measures name no system.

Rows of a read have at least the columns of Spark's Kafka source: key, value, topic, partition,
offset, timestamp, timestampType. A topic lives until it is dropped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

COLUMN_TYPES = {"key": "BINARY", "value": "BINARY", "offset": "BIGINT"}


@dataclass(frozen=True)
class OffsetSpan:
    """Offsets [base_offset, end_offset) of every partition of a topic."""

    base_offset: int
    end_offset: int
    partitions: int

    @property
    def rows(self) -> int:
        """Return how many records the span holds."""
        return self.partitions * (self.end_offset - self.base_offset)

    @property
    def where(self) -> str:
        """Return the span as a filter."""
        return f"offset >= {self.base_offset} AND offset < {self.end_offset}"


class System(ABC):
    """A log, or what stands in for one."""

    name: str

    @abstractmethod
    def create(self, topic: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        """Make an empty topic."""

    @abstractmethod
    def drop(self, topic: str) -> None:
        """Remove a topic and its data."""

    @abstractmethod
    def write(self, rows: DataFrame, topic: str, options: Mapping[str, str] | None = None) -> None:
        """Append rows with the columns key and value."""

    @abstractmethod
    def read(
        self,
        spark: SparkSession,
        topic: str,
        *,
        column: str | None = None,
        span: OffsetSpan | None = None,
    ) -> DataFrame:
        """Return a topic's rows.

        `column` names the only one the query needs, and `span` the only offsets, for systems that
        use them. Others leave both to Spark's optimizer.
        """

    @abstractmethod
    def stream(self, spark: SparkSession, topic: str) -> DataFrame:
        """Return a topic's rows from the earliest on, as a stream."""


class Live(ABC):
    """Operations that a system needs to be followed while a writer appends outside Spark."""

    @abstractmethod
    def append(self, topic: str, values: list[bytes]) -> None:
        """Append records to partition 0; returns when they are visible."""

    @abstractmethod
    def end_offset(self, topic: str) -> int:
        """Return the end of partition 0, as a consumer sees it now."""

    @abstractmethod
    def start_sink(self, rows: DataFrame, topic: str, checkpoint: Path) -> StreamingQuery:
        """Start a query that appends a stream to a topic as fast as it can."""
