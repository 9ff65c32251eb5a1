"""From what the options say to offsets: which partitions, from where to where.

The module decides on a registry image and on views of partitions. It asks the log only for an
offset by time, through a function it is given. Messages are worded as in Spark's Kafka source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from sparklog.cluster.metadata.changes import topic_named
from sparklog.cluster.metadata.image import Topic
from sparklog.core.errors import InvalidRequest, UnknownTopicOrPartition
from sparklog.core.topic_names import LISTED_AS_INTERNAL
from sparklog.core.types import OffsetRange, TopicPartition
from sparklog.protocol.partitioner.partitioner import partition_for_key
from sparklog.spark.access.data_loss import report_data_loss
from sparklog.spark.source.offset_options import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTime,
    AtTimes,
    Everywhere,
    OffsetLimit,
    spell,
)
from sparklog.spark.source.readable_partition import ReadablePartition
from sparklog.spark.source.selection import Assign, OfKey, Selection, Subscribe

Views = Mapping[TopicPartition, ReadablePartition]
TimeLookup = Callable[[TopicPartition, int], int | None]
"""The first offset of a partition whose record is at or after a time, or None."""


def select(
    selection: Selection, topics: Mapping[str, Topic], *, lenient: bool = False
) -> tuple[TopicPartition, ...]:
    """Return the partitions that a selection means now, in order.

    If `lenient`, what is named and does not exist is left out.

    Raises:
        UnknownTopicOrPartition: a topic or partition that is named does not exist.
    """
    if isinstance(selection, Assign):
        if lenient:
            return tuple(p for p in selection.partitions if _exists(p, topics))
        for place in selection.partitions:
            topic = topic_named(topics, place.topic)
            if not _exists(place, topics):
                raise UnknownTopicOrPartition(
                    "no such partition. "
                    f"topic={place.topic} partition={place.partition} partitions={topic.partitions}"
                )
        return selection.partitions
    if isinstance(selection, OfKey):
        count = topic_named(topics, selection.topic).partitions
        return (TopicPartition(selection.topic, partition_for_key(selection.key, count)),)
    if isinstance(selection, Subscribe):
        named = [name for name in selection.topics if not lenient or name in topics]
        chosen = [topic_named(topics, name) for name in named]
    else:
        pattern = re.compile(selection.pattern)
        chosen = [
            topic
            for name, topic in topics.items()
            if pattern.search(name) and name not in LISTED_AS_INTERNAL
        ]
    return tuple(sorted(TopicPartition(t.name, p) for t in chosen for p in range(t.partitions)))


def resolve_start(
    limit: OffsetLimit, views: Views, at_time: TimeLookup, *, unmatched_is_latest: bool
) -> dict[TopicPartition, int]:
    """Return the offset each partition is read from; LATEST and EARLIEST are looked up.

    Raises:
        InvalidRequest: the limit names other partitions than are read, or nothing matches a time.
    """
    found: dict[TopicPartition, int] = {}
    for place, timestamp_ms in _times(limit, views, "start").items():
        offset = at_time(place, timestamp_ms)
        if offset is None and not unmatched_is_latest:
            raise InvalidRequest(
                f"No offset matched from request of topic-partition {place} and timestamp "
                f"{timestamp_ms}. Set startingOffsetsByTimestampStrategy to latest to begin there "
                "at the end."
            )
        found[place] = views[place].end_offset if offset is None else offset
    return found or _offsets(limit, views, "start")


def resolve_end(limit: OffsetLimit, views: Views, at_time: TimeLookup) -> dict[TopicPartition, int]:
    """Return the offset each partition is read to, itself not included.

    Raises:
        InvalidRequest: the limit names other partitions than are read.
    """
    found: dict[TopicPartition, int] = {}
    for place, timestamp_ms in _times(limit, views, "end").items():
        offset = at_time(place, timestamp_ms)
        found[place] = views[place].end_offset if offset is None else offset
    return found or _offsets(limit, views, "end")


def readable_ranges(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    views: Views,
    *,
    fail_on_data_loss: bool,
) -> dict[TopicPartition, OffsetRange]:
    """Return what is to be read of each partition, without what is empty.

    Raises:
        InvalidRequest: a start beyond its end.
        OffsetOutOfRange: offsets are not in the log, and that is to fail.
    """
    ranges: dict[TopicPartition, OffsetRange] = {}
    for place in sorted(end):
        low, high = start[place], end[place]
        if low > high:
            raise InvalidRequest(
                f"The resolved start offset {low} is greater than the resolved end offset {high} "
                f"for topic {place.topic} partition {place.partition}."
            )
        clipped = clip(place, low, high, views[place], fail_on_data_loss=fail_on_data_loss)
        if clipped:
            ranges[place] = clipped
    return ranges


def clip(
    place: TopicPartition, low: int, high: int, view: ReadablePartition, *, fail_on_data_loss: bool
) -> OffsetRange:
    """Return what the log still holds of [low, high).

    Raises:
        OffsetOutOfRange: not everything, and that is to fail. DataCorrupt: some is damaged.
    """
    if low == high:
        return OffsetRange(low, high)
    if low < view.log_start_offset:
        report_data_loss(
            f"Starting offset for {place} was {low} but the log starts at {view.log_start_offset}.",
            fail=fail_on_data_loss,
        )
    end = view.readable_end if high <= view.readable_end else view.end_offset
    if high > end:
        report_data_loss(
            f"Ending offset for {place} was {high} but the log ends at {end}.",
            fail=fail_on_data_loss,
        )
    low = max(low, view.log_start_offset)
    return OffsetRange(low, max(low, min(high, end)))


def _times(limit: OffsetLimit, views: Views, which: str) -> Mapping[TopicPartition, int]:
    if isinstance(limit, AtTime):
        return dict.fromkeys(views, limit.timestamp_ms)
    if not isinstance(limit, AtTimes):
        return {}
    _check_all_named(limit.timestamps_ms.keys(), views.keys(), f"timestamp based {which}")
    return limit.timestamps_ms


def _offsets(limit: OffsetLimit, views: Views, which: str) -> dict[TopicPartition, int]:
    if isinstance(limit, Everywhere):
        wanted: Mapping[TopicPartition, int] = dict.fromkeys(views, limit.offset)
    elif isinstance(limit, AtOffsets):
        _check_all_named(limit.offsets.keys(), views.keys(), which)
        wanted = limit.offsets
    else:
        wanted = {}
    return {place: _looked_up(offset, views[place]) for place, offset in wanted.items()}


def _looked_up(offset: int, view: ReadablePartition) -> int:
    if offset == EARLIEST:
        return view.log_start_offset
    return view.end_offset if offset == LATEST else offset


def _check_all_named(
    specified: Collection[TopicPartition], assigned: Collection[TopicPartition], which: str
) -> None:
    if set(specified) != set(assigned):
        raise InvalidRequest(
            f"Partitions specified for {which} offsets don't match what are assigned: name every "
            "partition of the topics that are read. Use -1 for latest, -2 for earliest. "
            f"Specified: {spell(specified)} Assigned: {spell(assigned)}"
        )


def _exists(place: TopicPartition, topics: Mapping[str, Topic]) -> bool:
    topic = topics.get(place.topic)
    return topic is not None and place.partition < topic.partitions
