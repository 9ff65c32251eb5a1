"""Ages of the records of an object, for retention and compaction.

Records may have no timestamp (-1), or one before 1970. As in Kafka, an object whose newest
timestamp is negative has the time at which it was written: its timestamps do not show its age.

Times are milliseconds since the Unix epoch. Source: Kafka's LogSegment.largestTimestamp.
"""

from __future__ import annotations

from collections.abc import Callable

from sparklog.core.config.model import LONG_MAX
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.manifest import Entry
from sparklog.store.base import ObjectNotFound, ObjectStore

WrittenTime = Callable[[Entry], int]
"""Returns the write time of an entry's object, in milliseconds."""


def just_written(entry: Entry) -> int:
    """Return a time that is never old: for callers without a store."""
    return LONG_MAX


class WrittenTimes:
    """Reads the write times of objects from the store, each once. Cost: a HEAD for each."""

    def __init__(self, store: ObjectStore, layout: PartitionLayout) -> None:
        """Read from the folder of one partition."""
        self._store = store
        self._layout = layout
        self._known: dict[str, int] = {}

    def __call__(self, entry: Entry) -> int:
        """Return the write time of an entry's object; a missing object is never old."""
        known = self._known.get(entry.object)
        if known is None:
            try:
                known = self._store.head(self._layout.key(entry.object)).modified_ms
            except ObjectNotFound:
                known = LONG_MAX
            self._known[entry.object] = known
        return known


def newest_ms(entry: Entry, written: WrittenTime) -> int:
    """Return the time of an entry's newest record."""
    return entry.max_timestamp_ms if entry.max_timestamp_ms >= 0 else written(entry)


def oldest_ms(entry: Entry, written: WrittenTime) -> int:
    """Return the time of an entry's oldest record."""
    return entry.min_timestamp_ms if entry.min_timestamp_ms >= 0 else written(entry)
