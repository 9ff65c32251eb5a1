"""Arrivals: records for `sparklog consume`, from the storage or from brokers.

`Follower` reads partitions of a root from given positions on, and follows their ends.

While nothing arrives, a check of a partition is one request: does the object of the next append
exist? At intervals the follower refreshes all partitions and topics. A job may have rewritten the
log, and deleted the object that the check waits for.

At `read_committed` both sources end at the last stable offset and leave out the records of aborted
transactions. The segments and the snapshot of producers say which those are; no broker is asked.

`SnapshotSource` reads the records of a named snapshot, for `sparklog consume --snapshot`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from sparklog.client.values import EARLIEST, LATEST
from sparklog.cluster.log import Log
from sparklog.cluster.named_snapshots import SnapshotReader, read_snapshot
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import OffsetOutOfRange, Unavailable, UnknownTopicOrPartition
from sparklog.core.types import TopicPartition
from sparklog.log.manifest.refresh import unreadable
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.log.partition.read_committed import TransactionOutcomes
from sparklog.log.segment.unread_batches import Unread
from sparklog.sql.arrived import SourceRecord
from sparklog.store.base import ObjectNotFound, ObjectStore

Start = int
"""An offset, or EARLIEST or LATEST."""


class RecordSource(Protocol):
    """Partitions that the command follows."""

    def ready(self, records_max: int | None) -> Iterator[SourceRecord]:
        """Yield the records that are ready, at most `records_max`."""

    def wait(self, at_most_s: float | None) -> None:
        """Wait for more records, at most `at_most_s`."""

    def settle(self) -> None:
        """Mark all records yielded so far as consumed."""


def checked_start(
    tp: TopicPartition, start: Start, log_start: int, log_end: int, latest: int | None = None
) -> int:
    """Return the start offset; `latest` is what LATEST means where that is not `log_end`.

    Raises:
        OffsetOutOfRange: the log has no such offset.
    """
    if start == EARLIEST:
        return log_start
    if start == LATEST:
        return log_end if latest is None else latest
    if not log_start <= start <= log_end:
        raise OffsetOutOfRange(
            "there is no such offset to start at; use --offset earliest or latest. "
            f"partition={tp} offset={start} log_start_offset={log_start} log_end_offset={log_end}"
        )
    return start


@dataclass(frozen=True, slots=True)
class PartitionExtent:
    """A view of a partition, and what an isolation level allows to read of it."""

    view: PartitionView
    outcomes: TransactionOutcomes | None = None
    """The transactions' outcomes; None to read uncommitted records, too."""

    @property
    def readable_end(self) -> int:
        """Return the log end, or the last stable offset for committed records."""
        if self.outcomes is None:
            return self.view.end_offset
        return max(self.view.log_start_offset, self.outcomes.stable_end)

    def start(self, tp: TopicPartition, start: Start) -> int:
        """Return the offset that `start` means. Raises OffsetOutOfRange as `checked_start`."""
        view = self.view
        return checked_start(tp, start, view.log_start_offset, view.end_offset, self.readable_end)


VIEWS_MAX = 5
"""Views to take while a job replaces the objects that name the aborted transactions."""


def extent_of(partition: PartitionLog, *, committed_only: bool) -> PartitionExtent:
    """Return the partition as it is now.

    Raises:
        Unavailable: the store does not answer, or objects are replaced all the time.
        DataCorrupt: a segment that names aborted transactions is damaged.
    """
    if not committed_only:
        return PartitionExtent(partition.readable())
    for _ in range(VIEWS_MAX - 1):
        view = partition.readable()
        try:
            return PartitionExtent(view, partition.outcomes(view))
        except Unavailable:
            continue  # a job replaced an object meanwhile
    view = partition.readable()
    return PartitionExtent(view, partition.outcomes(view))


CHUNK_OFFSETS = 65_536
"""Offsets to read of one partition before the next one's turn."""
POLL_MIN_S = 0.05
POLL_MAX_S = 1.0
"""Pauses between checks while idle: doubled each time, so that a quiet topic costs little."""
FULL_LOOK_EVERY_S = 30.0
VIEW_AGE_MAX_S = 20.0
"""Limit for the age of a view during a long read.

Retention deletes rewritten objects after `file.delete.delay.ms` (60 s).
"""


@dataclass(slots=True)
class Position:
    """The next offset to read of one partition, and the last view of it."""

    topic_partition: TopicPartition
    partition: PartitionLog
    extent: PartitionExtent
    seen_s: float
    """Time of the view."""
    next_offset: int

    @property
    def view(self) -> PartitionView:
        """Return the last view."""
        return self.extent.view


class LogFollower:
    """Reads partitions in turns and keeps the position of each."""

    def __init__(
        self,
        log: Log,
        columns: Sequence[str],
        warn: Callable[[str], None],
        clock: Clock = SYSTEM_CLOCK,
        unread: Unread = Unread.FAIL,
        *,
        committed_only: bool = False,
    ) -> None:
        """Read `columns`; call `warn` for records that were deleted before they were read.

        `committed_only`: leave out records of aborted transactions, and wait for open ones.
        """
        self._log = log
        self._columns = list(columns)
        self._names = self._columns if "offset" in columns else ["offset", *columns]
        self._unread = unread
        self._committed_only = committed_only
        self._warn = warn
        self._clock = clock
        self._positions: list[Position] = []
        self._whole_topics: list[str] = []
        self._poll_s = POLL_MIN_S
        self._looked_s = clock.monotonic_s()

    def add_topic(self, topic: str, start: Start, only: int | None = None) -> None:
        """Read every partition of `topic`, or `only` one, from `start` on.

        Raises:
            UnknownTopicOrPartition: no such topic or partition.
            OffsetOutOfRange: the log has no such offset.
        """
        if only is not None:
            self._add(TopicPartition(topic, only), start)
            return
        self._whole_topics.append(topic)
        for number in range(self._log.topic(topic).partitions):
            self._add(TopicPartition(topic, number), start)

    def settle(self) -> None:
        """Do nothing: a root stores no positions."""

    def ready(self, records_max: int | None) -> Iterator[SourceRecord]:
        """Yield the records that are ready, at most about `CHUNK_OFFSETS` of each partition.

        Raises:
            DataCorrupt: a damaged object, by name; one of the tail after all other records.
        """
        left = records_max
        for position in self._positions:
            if left is not None and left <= 0:
                return
            for batch in self._chunk(position, left):
                # This skips the offsets without a record, of compacted segments and of markers.
                left = None if left is None else left - batch.num_rows
                yield SourceRecord(position.topic_partition, batch)
        if not any(map(_behind, self._positions)):
            for position in self._positions:
                if position.view.damage is not None:
                    raise unreadable(position.view)

    def wait(self, at_most_s: float | None) -> None:
        """Wait a little, then check for new records.

        Raises:
            UnknownTopicOrPartition: a topic was deleted.
        """
        pause_s = self._poll_s if at_most_s is None else min(self._poll_s, max(0.0, at_most_s))
        self._clock.sleep_s(pause_s)
        self._poll_s = min(POLL_MAX_S, self._poll_s * 2)
        full = self._clock.monotonic_s() - self._looked_s >= FULL_LOOK_EVERY_S
        if full:
            self._look_at_topics()
            self._looked_s = self._clock.monotonic_s()
        for position in self._positions:
            if full or self._has_more(position):
                self._refresh(position)
                self._poll_s = POLL_MIN_S if _behind(position) else self._poll_s

    def _add(self, tp: TopicPartition, start: Start) -> None:
        partition = self._log.partition(tp.topic, tp.partition)
        extent = extent_of(partition, committed_only=self._committed_only)
        view = extent.view
        seen_s = self._clock.monotonic_s()
        if view.damage is not None and (start == LATEST or start > view.end_offset):
            raise unreadable(view)
        first = extent.start(tp, start)
        self._positions.append(Position(tp, partition, extent, seen_s, first))

    def _chunk(self, position: Position, records_max: int | None) -> Iterator[pa.RecordBatch]:
        if _behind(position) and self._clock.monotonic_s() - position.seen_s > VIEW_AGE_MAX_S:
            self._refresh(position)
        left = records_max
        rows = 0
        offsets = CHUNK_OFFSETS if left is None else min(CHUNK_OFFSETS, left)
        # A chunk without any record (markers, compacted, aborted) does not end the turn.
        while not rows and _behind(position):
            base = position.next_offset
            position.next_offset = min(position.extent.readable_end, base + offsets)
            offsets = CHUNK_OFFSETS
            for batch in position.partition.read(
                base,
                position.next_offset,
                self._names,
                view=position.view,
                unread=self._unread,
                outcomes=position.extent.outcomes,
            ):
                some = batch if left is None else batch.slice(0, left)
                if some.num_rows:
                    rows += some.num_rows
                    yield some.select(self._columns)
                if left is not None:
                    left -= some.num_rows
                    if left == 0:
                        position.next_offset = some.column("offset")[-1].as_py() + 1
                        return

    def _has_more(self, position: Position) -> bool:
        layout = position.partition.layout
        try:
            self._log.store.head(layout.key(position.view.next_name))
        except ObjectNotFound:
            return False
        return True

    def _refresh(self, position: Position) -> None:
        position.seen_s = self._clock.monotonic_s()
        position.extent = extent_of(position.partition, committed_only=self._committed_only)
        start = position.view.log_start_offset
        if position.next_offset < start:
            self._warn(
                "warning: records were deleted before they were read; going on at the log start. "
                f"partition={position.topic_partition} "
                f"offset={position.next_offset} log_start_offset={start}"
            )
            position.next_offset = start

    def _look_at_topics(self) -> None:
        topics = self._log.topics()
        for layout in {p.partition.layout for p in self._positions}:
            found = topics.get(layout.topic)
            if found is None or found.topic_id != layout.topic_id:
                raise UnknownTopicOrPartition(
                    "the topic was deleted while it was read. "
                    f"topic={layout.topic} topic_id={layout.topic_id}"
                )
        known = {p.topic_partition for p in self._positions}
        for name in self._whole_topics:
            for number in range(topics[name].partitions):
                if TopicPartition(name, number) not in known:
                    self._add(TopicPartition(name, number), EARLIEST)


def _behind(position: Position) -> bool:
    return position.next_offset < position.extent.readable_end


class SnapshotSource:
    """Partitions of a snapshot, read once, one after the other."""

    def __init__(
        self,
        store: ObjectStore,
        name: str,
        columns: Sequence[str],
        pool: Executor,
        unread: Unread = Unread.FAIL,
        *,
        committed_only: bool = False,
    ) -> None:
        """Read from the snapshot `name`; `committed_only` as for `LogFollower`.

        Raises:
            InvalidRequest: no such snapshot. DataCorrupt: it is damaged.
        """
        self._reader = SnapshotReader(store, read_snapshot(store, name), pool)
        self._columns = columns
        self._unread = unread
        self._committed_only = committed_only
        self._left: list[tuple[TopicPartition, Start]] = []

    @property
    def topics(self) -> list[str]:
        """Return the snapshot's topics."""
        return self._reader.snapshot.topics

    def add_topic(self, topic: str, start: Start, partition: int | None = None) -> None:
        """Read a topic, or one partition of it, from `start` on.

        Raises:
            UnknownTopicOrPartition: the snapshot does not have it.
        """
        found = [
            place
            for place in self._reader.snapshot.by_place
            if place.topic == topic and partition in (None, place.partition)
        ]
        if not found:
            raise UnknownTopicOrPartition(
                "the snapshot does not have it; `sparklog snapshots --describe` shows what it has. "
                f"snapshot={self._reader.snapshot.name} topic={topic} partition={partition}"
            )
        self._left += [(place, start) for place in found]

    def ready(self, records_max: int | None) -> Iterator[SourceRecord]:
        """Yield the remaining records, at most `records_max`."""
        while self._left and (records_max is None or records_max > 0):
            place, start = self._left[0]
            opened, view = self._reader.partition(place.topic, place.partition)
            extent = PartitionExtent(view, opened.outcomes(view) if self._committed_only else None)
            base = extent.start(place, start)
            for batch in opened.read(
                base,
                max(base, extent.readable_end),
                self._columns,
                view=view,
                unread=self._unread,
                outcomes=extent.outcomes,
            ):
                some = batch if records_max is None else batch.slice(0, records_max)
                yield SourceRecord(place, some)
                if records_max is not None:
                    records_max -= some.num_rows
                    if records_max == 0:
                        return
            self._left.pop(0)

    def wait(self, at_most_s: float | None) -> None:
        """Do nothing: a snapshot gets no more records."""

    def settle(self) -> None:
        """Do nothing: no position is stored."""
