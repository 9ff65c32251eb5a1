"""SnapshotArrivals: the records of a named snapshot, for `sparklog consume --snapshot`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor

from sparklog.cli.arrivals import Arrived, Start, checked_start
from sparklog.cluster.snapshots import SnapshotReader, read_snapshot
from sparklog.core.errors import UnknownTopicOrPartition
from sparklog.core.types import TopicPartition
from sparklog.log.unread import Unread
from sparklog.store.base import ObjectStore


class SnapshotArrivals:
    """Partitions of a snapshot, read once, one after the other."""

    def __init__(
        self,
        store: ObjectStore,
        name: str,
        columns: Sequence[str],
        pool: Executor,
        unread: Unread = Unread.FAIL,
    ) -> None:
        """Read from the snapshot `name`.

        Raises:
            InvalidRequest: no such snapshot. DataCorrupt: it is damaged.
        """
        self._reader = SnapshotReader(store, read_snapshot(store, name), pool)
        self._columns = columns
        self._unread = unread
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

    def ready(self, records_max: int | None) -> Iterator[Arrived]:
        """Yield the remaining records, at most `records_max`."""
        while self._left and (records_max is None or records_max > 0):
            place, start = self._left[0]
            opened, view = self._reader.partition(place.topic, place.partition)
            base = checked_start(place, start, view.log_start_offset, view.end_offset)
            for batch in opened.read(
                base, view.end_offset, self._columns, view=view, unread=self._unread
            ):
                some = batch if records_max is None else batch.slice(0, records_max)
                yield Arrived(place, some)
                if records_max is not None:
                    records_max -= some.num_rows
                    if records_max == 0:
                        return
            self._left.pop(0)

    def wait(self, at_most_s: float | None) -> None:
        """Do nothing: a snapshot gets no more records."""

    def settle(self) -> None:
        """Do nothing: no position is stored."""
