"""sparklog through its Spark data source, and its Python API outside Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from sparklog import Log, open_log
from tests.bench.log.kafka_system import span_options
from tests.bench.log.system import COLUMN_TYPES, Live, OffsetSpan, System


class SparklogSystem(System, Live):
    """One log in a folder, topics with default settings."""

    name = "sparklog"

    def __init__(self, root: Path) -> None:
        """Keep the log at `root`."""
        self.root = root
        self._log: Log = open_log(root.as_uri())

    def create(self, topic: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        self._log.create_topic(topic, partitions, configs)

    def drop(self, topic: str) -> None:
        self._log.delete_topic(topic)

    def write(self, rows: DataFrame, topic: str, options: Mapping[str, str] | None = None) -> None:
        writer = rows.write.format("sparklog").options(**self._address, **(options or {}))
        writer.option("topic", topic).mode("append").save()

    def read(
        self,
        spark: SparkSession,
        topic: str,
        *,
        column: str | None = None,
        span: OffsetSpan | None = None,
    ) -> DataFrame:
        options = {**self._address, "subscribe": topic}
        if span is not None:
            options |= span_options(topic, span)
        reader = spark.read.format("sparklog").options(**options)
        if column is not None:
            reader = reader.schema(f"{column} {COLUMN_TYPES[column]}")
        return reader.load()

    def stream(self, spark: SparkSession, topic: str) -> DataFrame:
        options = {**self._address, "subscribe": topic, "startingOffsets": "earliest"}
        return spark.readStream.format("sparklog").options(**options).load()

    def append(self, topic: str, values: list[bytes]) -> None:
        batch = pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"])
        self._log.partition(topic, 0).append([batch])

    def end_offset(self, topic: str) -> int:
        return self._log.partition(topic, 0).view().end_offset

    def start_sink(self, rows: DataFrame, topic: str, checkpoint: Path) -> StreamingQuery:
        writer = rows.select("key", "value").writeStream.format("sparklog").options(**self._address)
        return (
            writer.option("topic", topic).option("checkpointLocation", checkpoint.as_uri()).start()
        )

    def bytes_on_disk(self, topic: str) -> int:
        """Return the size of every object of a topic: segments, staged data and manifests."""
        return sum(f.stat().st_size for f in self.root.glob(f"topics/{topic}~*/**/*.arrow"))

    def close(self) -> None:
        """Release the log."""
        self._log.close()

    @property
    def _address(self) -> dict[str, str]:
        return {"path": self.root.as_uri()}
