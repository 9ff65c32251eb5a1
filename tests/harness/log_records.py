"""Records for tests of the log."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from sparklog.log.layout import PartitionLayout
from sparklog.log.partition.partition_log import LogConfig, PartitionLog
from sparklog.log.schema import HEADERS, TIMESTAMP
from sparklog.store.base import ObjectStore

LAYOUT = PartitionLayout("flights", "Zm9vYmFyYmF6cXV4cXV1eA", 2)


def batch(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    timestamps_ms: Sequence[int | None] | None = None,
    headers: Sequence[list[tuple[str, bytes | None]] | None] | None = None,
) -> pa.RecordBatch:
    """Return records as `append` takes them."""
    columns: dict[str, pa.Array] = {"value": pa.array(values, pa.binary())}
    if keys is not None:
        columns["key"] = pa.array(keys, pa.binary())
    if timestamps_ms is not None:
        columns["timestamp"] = pa.array(timestamps_ms, TIMESTAMP)
    if headers is not None:
        columns["headers"] = pa.array(
            [None if h is None else [{"key": k, "value": v} for k, v in h] for h in headers],
            HEADERS,
        )
    return pa.RecordBatch.from_pydict(columns)


def numbered(first: int, count: int) -> pa.RecordBatch:
    """Return `count` records with their number in values, keys and timestamps."""
    span = range(first, first + count)
    return batch(
        [b"value-%d" % i for i in span],
        keys=[b"key-%d" % (i % 7) for i in span],
        timestamps_ms=[1_000_000 + 10 * i for i in span],
    )


def open_partition(store: ObjectStore, config: LogConfig | None = None) -> PartitionLog:
    """Open the test partition anew, as another process would."""
    return PartitionLog(store, LAYOUT, config)


def values(log: PartitionLog, base_offset: int, end_offset: int) -> list[bytes | None]:
    """Read values back."""
    found: list[bytes | None] = []
    for one in log.read(base_offset, end_offset, ("value",)):
        found.extend(one.column("value").to_pylist())
    return found
