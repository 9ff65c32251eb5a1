"""The partitions of a read as they are now: which there are, and a view of each.

The shell between options and log: it looks, at several partitions at once, and tells what it saw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass

from sparklog.cluster.image import MetadataImage
from sparklog.cluster.open import Log
from sparklog.core.errors import DataCorrupt
from sparklog.core.types import TopicPartition
from sparklog.log.partition_log import PartitionLog
from sparklog.log.view import PartitionView
from sparklog.spark.offsets import select
from sparklog.spark.options import Selection

LOOKS_AT_ONCE = 16
DELETIONS_MET_MAX = 8
"""How often topics may vanish while they are looked at before damage is taken for damage."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Partitions and what they held."""

    logs: Mapping[TopicPartition, PartitionLog]
    views: Mapping[TopicPartition, PartitionView]

    def offset_at_time(self, place: TopicPartition, timestamp_ms: int) -> int | None:
        """Return the first offset of a partition at or after a time, or None."""
        found = self.logs[place].offset_for_time(timestamp_ms, view=self.views[place])
        return None if found is None else found.offset

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """Return the end offset of every partition."""
        return {place: view.end_offset for place, view in self.views.items()}


def take_snapshot(
    log: Log, selection: Selection, pool: Executor, *, probing: bool = False, lenient: bool = False
) -> Snapshot:
    """Look at the registry and at every selected partition.

    Args:
        pool: where partitions are looked at, several at once.
        probing: look the cheap way, see `PartitionLog.probe`.
        lenient: leave out what is named and does not exist.

    Raises:
        UnknownTopicOrPartition: a topic or partition that is named does not exist.
        DataCorrupt: a partition's tail is damaged. Unavailable: the store does not answer.

    Cost: three listings for the registry and for each partition; probing, one request each.
    """
    image = log.refresh(probing=probing)
    for _ in range(DELETIONS_MET_MAX):
        try:
            return _look(log, image, selection, pool, probing, lenient)
        except DataCorrupt:
            # Half of a topic looks like a damaged one while it is being deleted.
            before, image = image, log.refresh()
            if _topic_ids(before) == _topic_ids(image):
                raise
    return _look(log, image, selection, pool, probing, lenient)


def new_pool() -> ThreadPoolExecutor:
    """Return threads to look with; they start when they are needed."""
    return ThreadPoolExecutor(LOOKS_AT_ONCE, "sparklog-look")


def _look(
    log: Log,
    image: MetadataImage,
    selection: Selection,
    pool: Executor,
    probing: bool,
    lenient: bool,
) -> Snapshot:
    places = select(selection, image.topics, lenient=lenient)
    logs = {place: log.partition(place.topic, place.partition) for place in places}
    look: Callable[[PartitionLog], PartitionView] = (
        PartitionLog.probe if probing else PartitionLog.view
    )
    each = map if len(logs) < 2 else pool.map
    return Snapshot(logs, dict(zip(places, each(look, logs.values()), strict=True)))


def _topic_ids(image: MetadataImage) -> set[str]:
    return {topic.topic_id for topic in image.topics.values()}
