"""EarlyLook: reads the partition of a look-up by key while the registry is read.

The registry names the partition's folder, and reading it takes three steps of requests. So this
look guesses the folder: from the last registry, or from a listing of the topic's name. The caller
compares the guess with the registry, and discards a view of another partition.

A view begins with requests that are sent after the look-up began. So it has all that was
acknowledged before, whether it is read before the registry or after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final

from sparklog.cluster.log import Log
from sparklog.core.errors import SparklogError
from sparklog.core.types import Closeable
from sparklog.log.layout import PartitionLayout, partition_of_key, topic_folders_prefix
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.protocol.partitioner.partitioner import partition_for_key
from sparklog.spark.source.offsets import select
from sparklog.spark.source.selection import Assign, OfKey, Selection
from sparklog.store.base import ObjectInfo
from sparklog.store.kept_ends import KeptEnds

LISTED_MAX: Final = 1000
"""Objects of a topic that are listed: one request."""


class EarlyLook(Closeable):
    """A look at the one partition of a selection, in a thread of its own."""

    def __init__(self, log: Log, selection: Selection, through: KeptEnds) -> None:
        """Begin to look, through a store that keeps what it reads."""
        self._log = log
        self._selection = selection
        self._topic = _topic(selection)
        self._through = through
        self._known = self._known_partition()
        # A pool that others use may be busy with long reads, and then this look would be late.
        self._pool = ThreadPoolExecutor(1, "sparklog-early-look")
        self._found = self._pool.submit(self._look)

    def view(self, layout: PartitionLayout) -> PartitionView | None:
        """Return the view if it is of this partition and whole. It waits for the look."""
        try:
            found = self._found.result()
        except SparklogError:
            return None  # the caller looks itself, and reports what it meets
        return found if found is not None and found.layout == layout and not found.damage else None

    def close(self) -> None:
        """Wait for the requests under way."""
        self._pool.shutdown()

    def _known_partition(self) -> PartitionLog | None:
        """Return the partition by the last registry, without a request."""
        image = self._log.known_image
        if image is None or self._topic not in image.topics:
            return None
        places = select(self._selection, image.topics, lenient=True)
        return self._log.partition(places[0].topic, places[0].partition) if places else None

    def _look(self) -> PartitionView | None:
        if self._known is not None:
            return self._known.readable(through=self._through)
        prefix = None if self._topic is None else topic_folders_prefix(self._topic)
        if prefix is None:
            return None
        listed = list(islice(self._log.store.list(prefix), LISTED_MAX))
        layout = None if len(listed) == LISTED_MAX else _guess(self._selection, listed)
        if layout is None:
            return None
        own = [info for info in listed if info.key.startswith(layout.folder)]
        return self._log.expected_partition(layout).readable(through=self._through, early=own)


def _topic(selection: Selection) -> str | None:
    """Return the topic of a selection of one partition."""
    if isinstance(selection, OfKey):
        return selection.topic
    if isinstance(selection, Assign) and len(selection.partitions) == 1:
        return selection.partitions[0].topic
    return None


def _guess(selection: Selection, listed: Sequence[ObjectInfo]) -> PartitionLayout | None:
    """Return the partition by the folders of the topic that was written to last.

    The topic may have partitions without objects. Then the guess for a key may be wrong.
    """
    newest = max(listed, key=lambda info: info.modified_ms, default=None)
    topic = None if newest is None else partition_of_key(newest.key)
    if topic is None:
        return None
    if isinstance(selection, OfKey):
        found = (partition_of_key(info.key) for info in listed)
        count = 1 + max(one.partition for one in found if one and one.topic_id == topic.topic_id)
        return PartitionLayout(topic.topic, topic.topic_id, partition_for_key(selection.key, count))
    assert isinstance(selection, Assign), "a selection of one partition"
    return PartitionLayout(topic.topic, topic.topic_id, selection.partitions[0].partition)
