"""Streaming reads: one process per query decides offsets and plans batches, tasks read them.

Offsets in the checkpoint look as those of Spark's Kafka source: `{"topic": {"0": 123}}`, the next
offset to read by partition. Beside them are the ids of the topics: `{"~topicIds": {"topic": …}}`;
checkpoints of before have none. A plan depends on nothing but two of them and the log. So a batch
that is repeated after a crash reads what it read before.

  STREAM-READER-1: the first batch of a query that starts at the end of a partition reads nothing
      from it. It writes the offset into the checkpoint, which a restart would otherwise look up
      anew
  STREAM-READER-2: another id than the checkpoint's means that the topic was created anew. If that
      is not to fail, the source reads the new topic from its beginning. If the checkpoint has no
      id, an end below its start means the same (a log's end never moves back)
  STREAM-READER-3: records before the start of a planned batch have been processed. Spark asks for
      a batch after the one before has ended, and after a restart repeats that first

Admission decides the share of the available records that goes into the next batch of a stream.

As in Spark's Kafka source: a maximum is shared out by what each partition has, and a minimum is
waited for, but not for ever. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from sparklog.cluster.log import Log
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.types import OffsetRange, TopicPartition
from sparklog.spark.access.data_loss import report_data_loss
from sparklog.spark.access.log_access import shared_log
from sparklog.spark.source.group_progress import GroupProgress
from sparklog.spark.source.offset_options import (
    format_offsets,
    parse_offsets,
    parse_topic_ids,
    spell,
)
from sparklog.spark.source.offsets import clip, resolve_start
from sparklog.spark.source.options import SourceOptions
from sparklog.spark.source.partition_states import PartitionStates
from sparklog.spark.source.scan import Scan, slice_of
from sparklog.spark.source.splitting import split
from sparklog.spark.source.tracking import Tracker


@dataclass(slots=True)
class Delay:
    """Holds a batch back until there are `rows_min` records or `delay_max_s` has passed."""

    rows_min: int
    delay_max_s: float
    last_s: float = -math.inf
    """When a batch was last let through."""

    def holds(self, begin: Offsets, latest: Offsets, now_s: float) -> bool:
        """Return whether to wait; if not, the batch counts as let through."""
        rows = available(begin, latest)
        if not rows or (rows < self.rows_min and now_s - self.last_s < self.delay_max_s):
            return True
        self.last_s = now_s
        return False


def available(begin: Offsets, latest: Offsets) -> int:
    """Return how many offsets lie between."""
    return sum(max(0, end - begin[place]) for place, end in latest.items())


def at_most(rows_max: int, begin: Offsets, latest: Offsets) -> dict[TopicPartition, int]:
    """Return the offsets up to which to read so that there are about `rows_max` records.

    Every partition gets a share by what it has, and at least one record, so that small ones do not
    starve beside large ones.
    """
    total = available(begin, latest)
    limited: dict[TopicPartition, int] = {}
    for place, end in latest.items():
        size = end - begin[place]
        if size <= 0 or not total:
            limited[place] = end
            continue
        share = rows_max * (size / total)
        rows = math.ceil(share) if share < 1 else math.floor(share)
        limited[place] = min(end, begin[place] + rows)
    return limited


Offsets = Mapping[TopicPartition, int]
_START, _END = "start of the batch", "end of the batch"


class SparklogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows topics. Method names and the order of calls are Spark's."""

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        open_log: Callable[[str], Log] = shared_log,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Read the columns of `schema`; nothing is looked at before a query asks.

        Raises:
            InvalidRequest: columns or types that the source does not have.
        """
        self._options = options
        self._scan = Scan.of(options, schema)
        self._open_log = open_log
        self._clock = clock
        self._tracker: Tracker | None = None
        self._delay = Delay(
            options.min_offsets_per_trigger or 0, options.max_trigger_delay_ms / 1000
        )
        self._initial: dict[TopicPartition, int] | None = None
        self._initial_ids: Mapping[str, str] = {}
        self._at_end: frozenset[TopicPartition] = frozenset()
        """Partitions that the query starts at the end of (STREAM-READER-1)."""
        self._noted_initial = False
        self._recreated: dict[TopicPartition, int] = {}
        """The query's offsets in partitions whose topic was created anew meanwhile."""
        self._latest: Offsets = {}
        self._until: PartitionStates | None = None
        """With Trigger.AvailableNow: what there was when the query began."""
        self._available_now = False
        self._progress: GroupProgress | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a query without a checkpoint begins; the same however often it is asked.

        Raises:
            UnknownTopicOrPartition, InvalidRequest: the options do not fit what is in the log.
        """
        if self._initial is None:
            snapshot = self._follow().first()
            self._initial_ids = snapshot.topic_ids
            self._initial = resolve_start(
                self._options.starting,
                snapshot.views,
                snapshot.offset_at_time,
                unmatched_is_latest=self._options.unmatched_start_is_latest,
            )
            ends = snapshot.readable_ends
            self._at_end = frozenset(p for p, o in self._initial.items() if o == ends[p])
        return format_offsets(self._initial, self._initial_ids)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return up to where the next batch reads; `start` again if there is nothing to read.

        Raises:
            OffsetOutOfRange: a topic is gone or new under its old name, and that is to fail.
            DataCorrupt: a segment is damaged, and all before it has been read.
        """
        begin = parse_offsets(start, _START)
        snapshot = self._available()
        anew = _recreated(parse_topic_ids(start, _START), snapshot.topic_ids)
        for topic in anew:
            read = {p.partition: offset for p, offset in begin.items() if p.topic == topic}
            self._lost(f"{_created_anew(topic)} The query had read it up to offsets {read}.")
        begin = {place: offset for place, offset in begin.items() if place.topic not in anew}
        self._tell_group(snapshot, begin)
        latest = self._check_ends(begin, snapshot, parse_topic_ids(start, _START))
        self._latest = snapshot.readable_ends
        if not anew and begin == self._initial and not self._noted_initial:
            self._noted_initial = True
            latest.update({place: begin[place] for place in self._at_end if place in latest})
        if isinstance(limit, ReadAllAvailable):
            return format_offsets(latest, snapshot.topic_ids)
        known = {p: begin.get(p, snapshot.views[p].log_start_offset) for p in latest}
        if self._waits(known, latest):
            return start
        if isinstance(limit, ReadMaxRows):
            latest = at_most(limit.max_rows, known, latest)
        return format_offsets(latest, snapshot.topic_ids)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit that the options set.

        Spark's Python API has no limit of both kinds; `latestOffset` applies a minimum by itself.
        """
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read what is there when the query begins, and then no more."""
        self._available_now = True

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """Return the ends of all partitions, for the query's progress."""
        return format_offsets(self._latest) or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Cut what lies between two offsets into tasks.

        Raises:
            OffsetOutOfRange: some of it is gone, and that is to fail.
        """
        begin, until = parse_offsets(start, _START), parse_offsets(end, _END)
        self._check_gone(begin, until)
        snapshot = self._follow().holding(until)
        views, end_ids = snapshot.views, parse_topic_ids(end, _END)
        gone = _recreated(end_ids, snapshot.topic_ids)
        anew = _recreated(parse_topic_ids(start, _START), end_ids)
        for topic in gone | anew:
            self._lost(_created_anew(topic))
        ranges: dict[TopicPartition, OffsetRange] = {}
        for place, high in until.items():
            if place.topic in gone:
                continue  # the batch was planned before; the next one begins in the new topic
            view = views.get(place)
            if view is None:
                self._lost(f"Partitions {spell([place])} have been deleted.")
                continue
            if place.topic in anew:
                low = min(view.log_start_offset, high)
            else:
                low = self._begin_of(place, begin, high, view.log_start_offset)
            ranges[place] = clip(
                place, low, high, view, fail_on_data_loss=self._options.fail_on_data_loss
            )
        tasks = split(
            ranges,
            views,
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
            counted=self._scan.counted,
        )
        return [slice_of(task, views[task.place]) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a task's records."""
        return self._scan.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: the query's checkpoint holds its offsets.

        Nor does this commit to the group: for the last batch Spark calls it only when another
        follows.
        """

    def stop(self) -> None:
        """Stop following."""
        if self._tracker is not None:
            self._tracker.close()
        if self._progress is not None:
            self._progress.close()

    def _follow(self) -> Tracker:
        if self._tracker is None:
            log = self._open_log(self._options.root)
            leaders = self._options.leaders(self._clock)
            self._tracker = Tracker(
                log,
                self._options.selection,
                self._clock,
                leaders,
                committed_only=self._options.committed_only,
            )
        return self._tracker

    def _tell_group(self, snapshot: PartitionStates, processed: Offsets) -> None:
        """Commit the query's place for its group, if it has one (STREAM-READER-3)."""
        if self._options.group_id is None:
            return
        if self._progress is None:
            self._progress = GroupProgress(
                self._options.group_id,
                self._options.bootstrap,
                self._clock,
                self._options.security,
            )
        ends = snapshot.readable_ends
        if self._available_now and all(processed.get(tp, -1) >= end for tp, end in ends.items()):
            log = self._open_log(self._options.root)
            self._progress.tell_last(log.refresh, processed)
        else:
            self._progress.tell(snapshot.image, processed)

    def _available(self) -> PartitionStates:
        if not self._available_now:
            return self._follow().now()
        if self._until is None:
            self._until = self._follow().now()
        return self._until

    def _check_ends(
        self, begin: Offsets, snapshot: PartitionStates, known_ids: Mapping[str, str]
    ) -> dict[TopicPartition, int]:
        """Return the ends, after reporting what cannot be a log that only grows."""
        latest = snapshot.ends_beyond(begin)
        self._check_gone(begin, latest)
        self._recreated = {p: o for p, o in self._recreated.items() if begin.get(p) == o}
        for place in self._follow().take_recreated() & begin.keys():
            if place.topic in known_ids:
                continue
            self._recreated[place] = begin[place]
        for place, offset in begin.items():
            if self._recreated.get(place) == offset and place in latest:
                self._lost(_created_anew(place.topic))
                # Below its start: the plan reads the new topic from the start (STREAM-READER-2).
                latest[place] = min(latest[place], max(0, offset - 1))
            elif latest.get(place, offset) < offset:
                self._lost(_changed(place, offset, latest[place]))
        return latest

    def _check_gone(self, begin: Offsets, until: Offsets) -> None:
        gone = begin.keys() - until.keys()
        if gone:
            self._lost(f"Partitions {spell(gone)} have been deleted.")

    def _waits(self, begin: Offsets, latest: Offsets) -> bool:
        if self._options.min_offsets_per_trigger is None or self._available_now:
            return False
        return self._delay.holds(begin, latest, self._clock.monotonic_s())

    def _begin_of(self, place: TopicPartition, begin: Offsets, high: int, log_start: int) -> int:
        low = begin.get(place)
        if low is None:
            if log_start:
                self._lost(f"Added partition {place} starts from {log_start} instead of 0.")
            return min(log_start, high)
        if low <= high:
            return low
        if begin != self._initial:
            self._lost(_changed(place, low, high))
            return min(log_start, high)
        if place not in self._at_end:
            self._lost(_changed(place, low, high))
        # A first batch that is repeated: its start was looked up anew, its end is what counts.
        return high

    def _lost(self, reason: str) -> None:
        report_data_loss(reason, fail=self._options.fail_on_data_loss)


def _recreated(before: Mapping[str, str], now: Mapping[str, str]) -> set[str]:
    """Return the topics that have another id than before."""
    return {topic for topic, known in before.items() if now.get(topic, known) != known}


def _created_anew(topic: str) -> str:
    return f"Topic {topic} was deleted and created again."


def _changed(place: TopicPartition, before: int, now: int) -> str:
    return (
        f"Partition {place} offset was changed from {before} to {now}. This could either be a user "
        "error that the start offset is set too high and this is the first batch, or the topic was "
        "deleted and created again."
    )
