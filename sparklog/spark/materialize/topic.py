"""The topic of a materialisation: what it holds now, and its records between two offsets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from sparklog.cluster.log import Log
from sparklog.core.errors import UnknownTopicOrPartition
from sparklog.core.types import Closeable, OffsetRange
from sparklog.spark.materialize.commit import Ranges
from sparklog.spark.source.options import parse_batch_options
from sparklog.spark.source.schema import SPARK_TYPES
from sparklog.spark.source.tracking import Tracker

_COLUMNS: Final = ("key", "value", "partition", "offset", "timestamp")


class MaterializedTopic(Closeable):
    """Looks at one topic, and reads it. A context manager."""

    def __init__(
        self,
        log: Log,
        root: str,
        topic: str,
        isolation: str,
        options: dict[str, str],
    ) -> None:
        """Follow `topic`; `options` are more options of the source.

        Raises:
            InvalidConfig: an option that the source does not have.
        """
        self._log = log
        self._topic = topic
        self._options = {
            **options, "path": root, "subscribe": topic, "isolationLevel": isolation
        }  # fmt: skip
        source = parse_batch_options(self._options)
        self._tracker = Tracker(
            log,
            source.selection,
            leaders=source.leaders(),
            committed_only=source.committed_only,
        )

    def close(self) -> None:
        """Stop looking."""
        self._tracker.close()

    def held(self) -> tuple[str, Ranges]:
        """Return the topic's id, and what each partition holds now.

        Raises:
            UnknownTopicOrPartition: the topic is gone.
        """
        snapshot = self._tracker.now()
        topic = snapshot.image.topics.get(self._topic)
        if topic is None:
            raise UnknownTopicOrPartition(f"the topic is gone. topic={self._topic}")
        return topic.topic_id, {
            place.partition: OffsetRange(view.log_start_offset, view.end_offset)
            for place, view in snapshot.views.items()
        }

    def records(
        self, spark: SparkSession, ranges: Ranges, *, headers: bool, fail_on_data_loss: bool = True
    ) -> DataFrame:
        """Return the records of some offsets; all partitions of the topic must be named."""
        names = (*_COLUMNS, "headers") if headers else _COLUMNS
        return self._load(spark, ranges, names, fail_on_data_loss=fail_on_data_loss)

    def count(self, spark: SparkSession, ranges: Ranges) -> int:
        """Return how many records there are, from manifests where they hold the number."""
        return self._load(spark, ranges, ("offset",), fail_on_data_loss=False).count()

    def _load(
        self,
        spark: SparkSession,
        ranges: Ranges,
        columns: tuple[str, ...],
        *,
        fail_on_data_loss: bool,
    ) -> DataFrame:
        schema = ", ".join(f"{name} {SPARK_TYPES[name].simpleString()}" for name in columns)
        starts = {str(n): one.base_offset for n, one in ranges.items()}
        ends = {str(n): one.end_offset for n, one in ranges.items()}
        options = {
            **self._options,
            "startingOffsets": json.dumps({self._topic: starts}),
            "endingOffsets": json.dumps({self._topic: ends}),
            "failOnDataLoss": str(fail_on_data_loss).lower(),
            "farTimestamps": "null",  # such a record is parked
        }
        return spark.read.format("sparklog").options(**options).schema(schema).load()


def ranges_between(starts: Mapping[int, int], ends: Mapping[int, int]) -> Ranges:
    """Return the offsets from starts to ends, by partition."""
    return {number: OffsetRange(at, ends[number]) for number, at in starts.items()}
