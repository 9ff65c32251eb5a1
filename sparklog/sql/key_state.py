"""The newest record of a key: the state of a compacted topic, as a table with one key.

Records that a leader has not flushed yet come first, since they are newer. Then the segments
follow, from the newest on, without those that cannot have the key. Cost: as `find_key`.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.core.errors import InvalidRequest
from sparklog.core.types import TopicPartition
from sparklog.log.numpy_arrays import binary_scalar
from sparklog.log.partition.read_committed import TransactionOutcomes
from sparklog.spark.source.readable_partition import ReadablePartition
from sparklog.sql.columns import SCHEMA, stored_columns
from sparklog.sql.filters import Among, Condition
from sparklog.sql.record_scan import PartitionScan
from sparklog.sql.scan_plan import plan_partition
from sparklog.sql.topics import PRESENT, TopicReader
from sparklog.store.kept_ends import KeptEnds

COLUMNS = tuple(stored_columns(SCHEMA.names))
"""Of the record that is returned."""


def newest_record(
    topics: TopicReader, topic: str, key: bytes, partition: int | None = None
) -> tuple[TopicPartition, pa.RecordBatch] | None:
    """Return the newest record of a key as one row, or None; a tombstone is a record, too.

    Args:
        topics: the topics of a root.
        topic: to look in.
        key: byte for byte.
        partition: look here; None is where Kafka's producers put the key.

    Raises:
        UnknownTopicOrPartition: no such topic or partition.
        InvalidRequest: without a root a look-up would read the whole partition.
        DataCorrupt, Unavailable: the records cannot be read.
    """
    if topics.log is None:
        raise InvalidRequest("a look-up by key reads the storage; give the root")
    chosen = key if partition is None else partition
    ends = KeptEnds(topics.log.store)
    ((place, state),) = topics.states(topic, PRESENT, chosen, ends).items()
    found = _unflushed(topics, place, state, key)
    if found is None:
        found = _flushed(topics, place, state, key, ends)
    return None if found is None else (place, found)


def _unflushed(
    topics: TopicReader, place: TopicPartition, state: ReadablePartition, key: bytes
) -> pa.RecordBatch | None:
    condition: Condition = Among("key", frozenset([key]))
    plan = plan_partition(place, state, condition, (state.stored_end, state.readable_end))
    found = None
    for rows in PartitionScan(plan, condition, COLUMNS, topics, lambda: state).batches():
        hits = _hits(rows, key)
        found = hits.slice(hits.num_rows - 1) if hits.num_rows else found
    return found


def _flushed(
    topics: TopicReader,
    place: TopicPartition,
    state: ReadablePartition,
    key: bytes,
    ends: KeptEnds,
) -> pa.RecordBatch | None:
    log = topics.log
    assert log is not None, "the caller has a log"
    partition = log.partition(place.topic, place.partition)
    hidden = bool(state.aborted) or state.stored_end < state.view.end_offset
    found = partition.find(key, COLUMNS, newest_only=not hidden, view=state.view, through=ends)
    if not found.rows:
        return None
    if not hidden:
        return found.records[-1]
    # The newest may be of an aborted or open transaction: read the committed ones again.
    outcomes = TransactionOutcomes(state.stored_end, state.aborted)
    offsets = [offset.as_py() for rows in found.records for offset in rows.column("offset")]
    for offset in reversed(offsets):
        one = partition.read(
            offset, offset + 1, COLUMNS, view=state.view, outcomes=outcomes, through=ends
        )
        for rows in one:
            if rows.num_rows:
                return rows
    return None


def _hits(rows: pa.RecordBatch, key: bytes) -> pa.RecordBatch:
    return rows.filter(pc.equal(rows.column("key"), binary_scalar(key)))
