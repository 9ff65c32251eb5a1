"""Logs in memory, and readers on them, for tests of the source without Spark."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructField, StructType

from sparklog.cluster.log import Log
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.counters import RequestCounters
from sparklog.log.schema import TIMESTAMP
from sparklog.spark.access import log_access
from sparklog.spark.source.batch_reader import SparklogReader
from sparklog.spark.source.options import parse_batch_options, parse_stream_options
from sparklog.spark.source.schema import SPARK_TYPES
from sparklog.spark.source.stream_reader import SparklogStreamReader
from sparklog.store.retrying import RetryingStore

_numbers = itertools.count()


def new_log() -> Log:
    """Return a log in memory that the data source finds under its root."""
    return log_access.shared_log(f"memory://source-tests-{next(_numbers)}")


def append(log: Log, topic: str, partition: int, values: Sequence[bytes], at_ms: int = 1000) -> int:
    """Append records a millisecond apart; returns the new end."""
    stamps = pa.array(range(at_ms, at_ms + len(values)), pa.int64()).cast(TIMESTAMP)
    batch = pa.RecordBatch.from_pydict(
        {"timestamp": stamps, "value": pa.array(values, pa.binary())}
    )
    return log.partition(topic, partition).append([batch]).end_offset


def numbered(first: int, count: int) -> list[bytes]:
    return [b"%d" % i for i in range(first, first + count)]


def schema(*columns: str) -> StructType:
    return StructType([StructField(name, SPARK_TYPES[name]) for name in columns])


def batch_reader(
    log: Log, columns: Sequence[str] = ("partition", "offset", "value"), **options: str
) -> SparklogReader:
    return SparklogReader(parse_batch_options({"path": root_of(log), **options}), schema(*columns))


def stream_reader(
    log: Log,
    columns: Sequence[str] = ("partition", "offset", "value"),
    clock: Clock = SYSTEM_CLOCK,
    /,
    **options: str,
) -> SparklogStreamReader:
    parsed = parse_stream_options({"path": root_of(log), **options})
    return SparklogStreamReader(parsed, schema(*columns), clock=clock)


def root_of(log: Log) -> str:
    return log.store.url


def requests_of(log: Log) -> RequestCounters:
    """Return the counters of what the log asked of its store."""
    assert isinstance(log.store, RetryingStore), "a log opened by its root counts its requests"
    return log.store.counters


def read_all(
    reader: SparklogReader | SparklogStreamReader, partitions: Iterable[InputPartition]
) -> list[Any]:
    """Read every partition as a task would, pickled on its way, and return rows as tuples."""
    rows: list[Any] = []
    for partition in partitions:
        sent = pickle.loads(pickle.dumps(partition))
        for batch in reader.read(sent):
            rows.extend(zip(*(c.to_pylist() for c in batch.columns), strict=True))
    return rows


def rows_of(log: Log, columns: Sequence[str] = ("value",), **options: str) -> list[Any]:
    reader = batch_reader(log, columns, **options)
    return read_all(reader, reader.partitions())
