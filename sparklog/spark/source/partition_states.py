"""The partitions of a read as they are now: which there are, and what each holds.

The shell between options and log: it looks at several partitions at once, and returns their
states.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from sparklog.cluster.log import Log
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.named_snapshots import SnapshotReader, read_snapshot
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import SparklogError
from sparklog.core.types import TopicPartition
from sparklog.log.effects import run
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.refresh import unreadable
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.log.partition.read_committed import TransactionOutcomes, decided
from sparklog.spark.access.leaders import PartitionLeaders
from sparklog.spark.source.early_look import EarlyLook
from sparklog.spark.source.offsets import select
from sparklog.spark.source.readable_partition import ReadablePartition
from sparklog.spark.source.selection import Selection
from sparklog.store.kept_ends import KeptEnds

LOOKS_AT_ONCE = 16
DELETIONS_MET_MAX = 8
"""Number of times that topics may vanish during a look before damage counts as damage."""
LEADER_PATIENCE_S = 30.0
"""The time without a leader after which a read that needs one fails."""
LEADER_ROUND_S = 2.0
"""After so long without a leader it is looked again whether the partition still needs one."""


@dataclass(frozen=True, slots=True)
class PartitionStates:
    """Partitions and what they held."""

    logs: Mapping[TopicPartition, PartitionLog]
    views: Mapping[TopicPartition, ReadablePartition]
    image: MetadataImage = field(default_factory=MetadataImage)
    leaders: PartitionLeaders | None = None

    def offset_at_time(self, place: TopicPartition, timestamp_ms: int) -> int | None:
        """Return the first offset of a partition at or after a time, or None.

        Raises:
            DataCorrupt: it may lie where the partition is damaged.
        """
        extent = self.views[place]
        if extent.brokers and self.leaders is not None:
            return self.leaders.offset_at_time(self.image, place, timestamp_ms, LEADER_PATIENCE_S)
        found = self.logs[place].offset_for_time(timestamp_ms, view=extent.view)
        if found is None and extent.is_damaged:
            raise unreadable(extent.view)
        return None if found is None else found.offset

    @property
    def topic_ids(self) -> dict[str, str]:
        """Return the id of every topic, by name."""
        return {place.topic: extent.layout.topic_id for place, extent in self.views.items()}

    @property
    def readable_ends(self) -> dict[TopicPartition, int]:
        """Return up to where every partition can be read."""
        return {place: extent.readable_end for place, extent in self.views.items()}

    def ends_beyond(self, begin: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return up to where every partition can be read from `begin` on, or from its start.

        Raises:
            DataCorrupt: one is damaged just there.
        """
        return {
            place: extent.end_beyond(begin.get(place, extent.log_start_offset))
            for place, extent in self.views.items()
        }


class PartitionLookup:
    """Looks at the partitions of one selection."""

    def __init__(
        self,
        log: Log,
        selection: Selection,
        pool: Executor,
        leaders: PartitionLeaders | None,
        clock: Clock = SYSTEM_CLOCK,
        *,
        committed_only: bool = False,
        pinned: str | None = None,
        through: KeptEnds | None = None,
    ) -> None:
        """Look with the threads of `pool`; without `leaders`, at the segments alone.

        `committed_only`: ends are last stable offsets, and states name aborted transactions.
        `pinned`: look at what the named snapshot has, not at what is there now.
        `through`: the store of a look-up by key, which keeps what it reads.
        """
        self._log = log
        self._selection = selection
        self._pool = pool
        self._leaders = leaders
        self._clock = clock
        self._committed_only = committed_only
        self._pinned = pinned
        self._through = through
        self._decided: dict[PartitionLayout, tuple[int, TransactionOutcomes]] = {}
        """The last read state of transactions, and the end of the segments then."""

    def take(
        self,
        *,
        probing: bool = False,
        lenient: bool = False,
        known_ends: Mapping[TopicPartition, int] | None = None,
    ) -> PartitionStates:
        """Look at the registry and at every selected partition.

        Args:
            probing: look the cheap way, see `PartitionLog.probe`.
            lenient: leave out what is named and does not exist.
            known_ends: ends that were seen before. While a partition has no leader, its end is
                taken to be there still; without one it is waited for.

        Raises:
            UnknownTopicOrPartition: a topic or partition that is named does not exist.
            Unavailable: the store does not answer, or a partition has no leader and only a leader
            knows its end.

        Cost: three listings for the registry and for each partition; probing, one request each.
            If brokers lead: two requests to brokers, and one more for each that leads.
        """
        if self._pinned is not None:
            return self._kept(self._pinned)
        deadline_s = self._clock.monotonic_s() + LEADER_PATIENCE_S
        known = known_ends or {}
        while True:
            snapshot = self._segments(probing=probing, lenient=lenient)
            if self._leaders is None:
                return snapshot
            unknown: SparklogError | None = None
            extents = dict(snapshot.views)
            served = [p for p, extent in extents.items() if _is_served(snapshot.image, p, extent)]
            brokers = self._leaders.addresses(snapshot.image) if served else ""
            patience_s = 0.0 if known.keys() >= set(served) else LEADER_ROUND_S
            for place, outcome in self._ends(snapshot.image, served, patience_s).items():
                extent = extents[place]
                if isinstance(outcome, SparklogError) and extent.is_damaged:
                    continue  # no broker can lead it
                if isinstance(outcome, SparklogError) and place not in known:
                    unknown = unknown or outcome
                    continue
                end = known[place] if isinstance(outcome, SparklogError) else outcome
                end = max(extent.readable_end, end)
                extents[place] = replace(extent, readable_end=end, brokers=brokers)
            if unknown is None:
                return PartitionStates(snapshot.logs, extents, snapshot.image, self._leaders)
            if self._clock.monotonic_s() >= deadline_s:
                raise unknown
            probing = False

    def _kept(self, name: str) -> PartitionStates:
        """Return what a named snapshot has of the selected partitions."""
        store = self._log.store
        reader = SnapshotReader(store, read_snapshot(store, name), self._pool)
        places = select(self._selection, reader.snapshot.as_topics())
        each = map if len(places) < 2 else self._pool.map
        opened = dict(
            zip(places, each(lambda p: reader.partition(p.topic, p.partition), places), strict=True)
        )
        return PartitionStates(
            {place: log for place, (log, _) in opened.items()},
            {place: self._extent(view) for place, (_, view) in opened.items()},
        )

    def _ends(
        self, image: MetadataImage, served: Collection[TopicPartition], patience_s: float
    ) -> dict[TopicPartition, int | SparklogError]:
        if not served or self._leaders is None:
            return {}
        return self._leaders.ends(image, served, patience_s)

    def _segments(self, *, probing: bool, lenient: bool) -> PartitionStates:
        early = None
        if self._through is not None:
            early = EarlyLook(self._log, self._selection, self._through)
        with early or nullcontext():
            image = self._log.refresh(probing=probing)
            found = self._views(image, probing=probing, lenient=lenient, early=early)
        for _ in range(DELETIONS_MET_MAX):
            if not any(extent.view.damage for extent in found.views.values()):
                return found
            # Half of a topic looks like a damaged one while it is being deleted.
            before, image = image, self._log.refresh()
            if _topic_ids(before) == _topic_ids(image):
                return found
            found = self._views(image, probing=probing, lenient=lenient)
        return found

    def _views(
        self,
        image: MetadataImage,
        *,
        probing: bool,
        lenient: bool,
        early: EarlyLook | None = None,
    ) -> PartitionStates:
        places = select(self._selection, image.topics, lenient=lenient)
        logs = {place: self._log.partition(place.topic, place.partition) for place in places}

        def look(log: PartitionLog) -> PartitionView:
            view = None if early is None else early.view(log.layout)
            if view is None:
                return log.readable(probing=probing, through=self._through)
            log.use(view)
            return view

        each = map if len(logs) < 2 else self._pool.map
        views = zip(places, each(look, logs.values()), strict=True)
        return PartitionStates(logs, {place: self._extent(view) for place, view in views}, image)

    def _extent(self, view: PartitionView) -> ReadablePartition:
        if not self._committed_only:
            return ReadablePartition(view, view.end_offset, view.end_offset)
        end, known = self._decided.get(view.layout, (-1, TransactionOutcomes(0)))
        if end != view.end_offset:
            known = run(decided(view), self._log.store)
            self._decided[view.layout] = (view.end_offset, known)
        return ReadablePartition(view, known.stable_end, known.stable_end, aborted=known.aborted)


def new_pool() -> ThreadPoolExecutor:
    """Return threads to look with; they start when they are needed."""
    return ThreadPoolExecutor(LOOKS_AT_ONCE, "sparklog-look")


def _is_served(image: MetadataImage, place: TopicPartition, extent: ReadablePartition) -> bool:
    """Return whether a partition may hold more than its segments do.

    The fence in the log is what counts. The marker is put after the metadata name a leader, so a
    leader there is enough, too. It is deleted after the metadata name none.
    """
    topic = image.topics.get(place.topic)
    if extent.view.is_led or topic is None or place.partition >= topic.partitions:
        return extent.view.is_led
    return topic.partition_states[place.partition].leader >= 0


def _topic_ids(image: MetadataImage) -> set[str]:
    return {topic.topic_id for topic in image.topics.values()}
