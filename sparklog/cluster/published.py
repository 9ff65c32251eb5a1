"""Finds where the records of a published batch are: the offsets of `cluster.publication`'s work.

The batch's record names the staged objects of each partition. The log names these objects, too,
until a rewrite replaces them. An append with a commit key is known longer: by its writer's state.
Only storage is read, so no broker is needed. Source: FORMAT.md 7.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.cluster.log import Log
from sparklog.cluster.publication import StagedPartition, decode
from sparklog.core.errors import UnknownTopicOrPartition
from sparklog.core.types import TopicPartition
from sparklog.log.effects import get, run
from sparklog.log.layout import commit_key
from sparklog.log.manifest.view import PartitionView
from sparklog.log.segment.segment import CommitKey


def published_offsets(
    log: Log, writer: str, sequence: int
) -> Mapping[TopicPartition, tuple[int, int] | None]:
    """Return base and end offset of a batch in each partition that got records of it.

    None: the topic was deleted, or the log no longer knows the batch. A batch without records has
    no partition.

    Raises:
        Unavailable: the store does not answer. DataCorrupt: the batch's record is damaged.

    Cost: one request for the record, and for each partition those of a refresh.
    """
    name = commit_key(writer, sequence)
    stored = run(get(name), log.store)
    if stored is None:
        return {}
    key = CommitKey(writer, sequence)
    parts = decode(stored, name).partitions
    return {part.place: _place(log, part, key) for part in parts}


def _place(log: Log, part: StagedPartition, key: CommitKey) -> tuple[int, int] | None:
    try:
        partition = log.partition(part.topic, part.partition)
    except UnknownTopicOrPartition:
        return None
    if partition.layout.topic_id != part.topic_id:
        return None
    return _offsets(partition.view(), part, key)


def _offsets(view: PartitionView, part: StagedPartition, key: CommitKey) -> tuple[int, int] | None:
    names = {one.object for one in part.staged}
    # An aborted attempt may have named the same objects before.
    end = max((one.end_offset for one in view.entries if one.object in names), default=None)
    if end is not None:
        return end - sum(one.end - one.base for one in part.staged), end
    known = view.committed(key)
    if known is None or known.sequence != key.sequence:
        return None
    return known.base_offset, known.end_offset
