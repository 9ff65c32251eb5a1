"""Parquet files through Spark: what reading and writing rows costs when there is no log."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.bench.log.system import OffsetSpan, System

ROW_BITS = 33
"""`monotonically_increasing_id` counts rows of a task in its lower 33 bits."""
SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, "
    "timestamp TIMESTAMP, timestampType INT"
)


class ParquetSystem(System):
    """A folder per topic and a file per task, Spark's defaults; rows as a Kafka read has them."""

    name = "parquet"

    def __init__(self, root: Path) -> None:
        """Keep topics below `root`."""
        self._root = root

    def create(self, topic: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        """Do nothing: a folder appears with its first file."""

    def drop(self, topic: str) -> None:
        shutil.rmtree(self._root / topic, ignore_errors=True)

    def write(self, rows: DataFrame, topic: str, options: Mapping[str, str] | None = None) -> None:
        offset = f"monotonically_increasing_id() & {(1 << ROW_BITS) - 1}L AS offset"
        rows.selectExpr(
            *("key", "value", f"'{topic}' AS topic", "spark_partition_id() AS partition", offset),
            *("current_timestamp() AS timestamp", "0 AS timestampType"),
        ).write.mode("append").parquet(str(self._root / topic))

    def read(
        self,
        spark: SparkSession,
        topic: str,
        *,
        column: str | None = None,
        span: OffsetSpan | None = None,
    ) -> DataFrame:
        rows = spark.read.schema(SCHEMA).parquet(str(self._root / topic))
        return rows if span is None else rows.where(span.where)

    def stream(self, spark: SparkSession, topic: str) -> DataFrame:
        return spark.readStream.schema(SCHEMA).parquet(str(self._root / topic))
