"""SchemaLog: where the records of a registry are, as a registry sees it.

`RootSchemaLog` uses the storage. An append is a put-if-absent of the next segment's name, at the
offset of the state that the decision is about. Of two processes the first one succeeds, and the
other decides again. `client.registry_log` has the one that goes through brokers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import pyarrow as pa

from sparklog.cluster.log import Log
from sparklog.core.errors import TopicAlreadyExists, UnknownTopicOrPartition
from sparklog.core.topic_names import SCHEMAS_TOPIC
from sparklog.log.partition.partition_log import PartitionLog

PARTITION: Final = 0
TOPIC_CONFIGS: Final = {"cleanup.policy": "compact"}
"""As Confluent's registry requires it; the topic has one partition."""

Row = tuple[bytes | None, bytes | None]
"""A key and a value."""


class SchemaLog(Protocol):
    """The records of one registry, in one order for all processes."""

    def read(self, base_offset: int) -> tuple[int, Iterator[Row]]:
        """Return the end of the log now, and the rows from `base_offset` up to it.

        Raises:
            SparklogError: they cannot be read now.
        """

    def append_at(self, rows: Sequence[Row], offset: int) -> int | None:
        """Append all rows or none, if the log ends at `offset`; return its new end, or None.

        Raises:
            OutcomeUnknown: they may be there. SparklogError: they are not.
        """

    def close(self) -> None:
        """Release connections."""


class RootSchemaLog:
    """The topic `_schemas` under a root that no broker leads."""

    def __init__(self, log: Log, *, topic: str = SCHEMAS_TOPIC) -> None:
        """Use `log`, and create the topic at the first append. Closing leaves the log open."""
        self._log = log
        self._topic = topic
        self._partition: PartitionLog | None = None

    def read(self, base_offset: int) -> tuple[int, Iterator[Row]]:
        """See `SchemaLog`. Cost: one request if nothing is new; three listings without a topic."""
        partition = self._opened()
        if partition is None:
            return base_offset, iter(())
        view = partition.probe()
        start = max(base_offset, view.log_start_offset)
        batches = partition.read(start, view.end_offset, ("key", "value"), view=view)
        return view.end_offset, _rows(batches)

    def append_at(self, rows: Sequence[Row], offset: int) -> int | None:
        """See `SchemaLog`. Cost: a put, and a listing of manifests.

        Raises:
            NotServing: a broker leads the topic; give its address instead of the root.
        """
        partition = self._opened()
        if partition is None:
            try:
                self._log.create_topic(self._topic, 1, TOPIC_CONFIGS)
            except TopicAlreadyExists:
                pass
            partition = self._log.partition(self._topic, PARTITION)
        done = partition.append_at([record_batch(rows)], offset)
        return None if done is None else done.end_offset

    def close(self) -> None:
        """Do nothing: the log is the caller's."""

    def _opened(self) -> PartitionLog | None:
        if self._partition is None:
            try:
                self._partition = self._log.partition(self._topic, PARTITION)
            except UnknownTopicOrPartition:
                return None
        return self._partition


def record_batch(rows: Sequence[Row]) -> pa.RecordBatch:
    """Return rows as columns `key` and `value`."""
    keys, values = zip(*rows, strict=True)
    return pa.record_batch(
        {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    )


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
        yield from zip(keys, values, strict=True)
