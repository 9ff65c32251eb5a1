"""LineSink: the destination of the lines of `sparklog produce`, a root or brokers.

`TopicAppender` appends records to the partitions that Kafka's default partitioner chooses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from sparklog.cli.console.line_reader import LineRecord
from sparklog.cluster.log import Log, log_config
from sparklog.cluster.metadata.image import Topic
from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy
from sparklog.core.types import TopicPartition
from sparklog.log.schema import HEADERS
from sparklog.protocol.partitioner.partitioner import partition_for_key, partitions_for_keys


@dataclass(frozen=True, slots=True)
class SinkDelivery:
    """Acknowledgement of `count` records with consecutive offsets."""

    topic_partition: TopicPartition
    base_offset: int
    """-1 with acks=0, where the broker does not return it."""
    count: int


class LineSink(Protocol):
    """Appends records in batches."""

    def append(self, records: Sequence[LineRecord]) -> Iterator[SinkDelivery]:
        """Append records; yield new acknowledgements, of these or earlier records.

        Raises:
            SparklogError: some were not appended; the class says what to do.
        """

    def finish(self) -> Iterator[SinkDelivery]:
        """Wait for every acknowledgement, and yield the rest. Raises as `append`."""


KEYS_WORTH_COMPILING = 4096
"""From this number of keys on, the compiled partitioner is worth its load time."""


class TopicAppender:
    """Appends to one topic."""

    def __init__(
        self, log: Log, topic: Topic, codec: str | None, entropy: Entropy = SYSTEM_ENTROPY
    ) -> None:
        """Compress with `codec` (Kafka's name); None uses the topic's.

        As in Kafka the topic's `compression.type` wins unless it is `producer`.
        """
        self._topic = topic
        self._entropy = entropy
        self._partitions = [log.partition(topic.name, p) for p in range(topic.partitions)]
        if codec is not None and topic.settings.get("compression.type", "producer") == "producer":
            chosen = "uncompressed" if codec == "none" else codec
            config = log_config({**topic.settings, "compression.type": chosen})
            for partition in self._partitions:
                partition.config = config

    def append(self, records: Sequence[LineRecord]) -> Iterator[SinkDelivery]:
        """Append the records, each partition's as one segment; yield each acknowledgement.

        Raises:
            NotServing: a broker leads the topic; give --bootstrap-server.
            RecordTooLarge: over `max.message.bytes`; nothing of that partition was appended.
            OutcomeUnknown, Unavailable: as `PartitionLog.append`.
        """
        rows: dict[int, list[LineRecord]] = {}
        for record, partition in zip(records, self._chosen(records), strict=True):
            rows.setdefault(partition, []).append(record)
        for partition, chosen in rows.items():
            appended = self._partitions[partition].append([_batch(chosen)])
            count = appended.end_offset - appended.base_offset
            yield SinkDelivery(
                TopicPartition(self._topic.name, partition), appended.base_offset, count
            )

    def finish(self) -> Iterator[SinkDelivery]:
        """Yield nothing: an append is acknowledged when it returns."""
        return iter(())

    def _chosen(self, records: Sequence[LineRecord]) -> Sequence[int]:
        count = len(self._partitions)
        if count == 1:
            return [0] * len(records)
        # Records without a key go to one partition, so that they make one segment: KIP-480.
        sticky = int(self._entropy.random() * count)
        keys = [record.key for record in records]
        if len(keys) < KEYS_WORTH_COMPILING:
            return [sticky if key is None else partition_for_key(key, count) for key in keys]
        column = pa.array(keys, pa.binary())
        chosen: list[int] = partitions_for_keys(column, count, sticky_partition=sticky).tolist()
        return chosen


def _batch(records: Sequence[LineRecord]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([r.key for r in records], pa.binary()),
            "value": pa.array([r.value for r in records], pa.binary()),
            "headers": pa.array([_headers(r) for r in records], HEADERS),
        }
    )


def _headers(record: LineRecord) -> list[dict[str, object]] | None:
    if record.headers is None:
        return None
    return [{"key": name, "value": value} for name, value in record.headers]
