"""Apache Kafka through Spark's own connector, and its Python client outside Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.bench.log.system import Live, OffsetSpan, System
from tests.peers.kafka import KafkaCluster

ANSWER_TIMEOUT_S = 30
BROKER_SETTINGS = {
    # Records of the past must stay, and dropped topics must leave the disk soon.
    "log.retention.ms": "-1",
    "log.segment.delete.delay.ms": "1000",
}


class KafkaSystem(System, Live):
    """One broker, one replica."""

    name = "kafka"

    def __init__(self, cluster: KafkaCluster) -> None:
        """Use a started cluster."""
        self._cluster = cluster
        # Real errors raise; a connection that the broker closes is no news.
        client: dict[str, str | int | float | bool] = {
            "bootstrap.servers": cluster.bootstrap,
            "log_level": 2,
        }
        self._admin = AdminClient(client)
        self._producer = Producer({**client, "linger.ms": 0})
        self._consumer = Consumer({**client, "group.id": "end-offsets"})

    def create(self, topic: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        wanted = NewTopic(topic, partitions, 1, config=dict(configs or {}))
        self._admin.create_topics([wanted])[topic].result(ANSWER_TIMEOUT_S)

    def drop(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(ANSWER_TIMEOUT_S)

    def write(self, rows: DataFrame, topic: str, options: Mapping[str, str] | None = None) -> None:
        writer = rows.write.format("kafka").options(**self._address, **(options or {}))
        writer.option("topic", topic).save()

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
        return spark.read.format("kafka").options(**options).load()

    def stream(self, spark: SparkSession, topic: str) -> DataFrame:
        options = {**self._address, "subscribe": topic, "startingOffsets": "earliest"}
        return spark.readStream.format("kafka").options(**options).load()

    def append(self, topic: str, values: list[bytes]) -> None:
        for value in values:
            self._producer.produce(topic, value, partition=0)
        left = self._producer.flush(ANSWER_TIMEOUT_S)
        assert left == 0, f"the broker did not take {left} records"

    def end_offset(self, topic: str) -> int:
        place = TopicPartition(topic, 0)
        return int(self._consumer.get_watermark_offsets(place, ANSWER_TIMEOUT_S)[1])

    def start_sink(self, rows: DataFrame, topic: str, checkpoint: Path) -> StreamingQuery:
        writer = rows.select("key", "value").writeStream.format("kafka").options(**self._address)
        return (
            writer.option("topic", topic).option("checkpointLocation", checkpoint.as_uri()).start()
        )

    def bytes_on_disk(self, topic: str) -> int:
        """Return the size of a topic's log files; indexes, which are preallocated, not counted."""
        folders = (node.data_folder for node in self._cluster.nodes)
        files = (f for folder in folders for f in folder.glob(f"{topic}-*/*.log"))
        return sum(file.stat().st_size for file in files)

    def close(self) -> None:
        """End the clients."""
        self._consumer.close()
        del self._producer, self._admin  # their threads would look for the broker for ever

    @property
    def _address(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._cluster.bootstrap}


def span_options(topic: str, span: OffsetSpan) -> dict[str, str]:
    """Return the options that ask Spark's Kafka source, or sparklog's, for a span of offsets."""

    def limits(offset: int) -> str:
        return json.dumps({topic: {str(p): offset for p in range(span.partitions)}})

    return {"startingOffsets": limits(span.base_offset), "endingOffsets": limits(span.end_offset)}
