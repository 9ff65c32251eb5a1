"""RootView: a log under a root for the console, with no broker.

Committed offsets of groups come from the stored records of `__consumer_offsets`. They lack what
coordinators hold in memory only: members and states. `with_brokers` adds those. The members of
share groups are stored there, and the states of their records in `__share_group_state`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Final

import pyarrow as pa

from sparklog.cli.console.record_sources import LogFollower, extent_of
from sparklog.cli.root_log import LOOKED_AT_ONCE, RootLog
from sparklog.cli.target import AdminTarget, opened_store
from sparklog.client.admin import Admin
from sparklog.client.values import (
    LATEST,
    SHARE,
    Committed,
    CommittedOffset,
    GroupDescription,
    GroupListing,
)
from sparklog.cluster.log import Log
from sparklog.cluster.metadata.image import MetadataImage, Topic
from sparklog.console.bill import Bill, CounterSources, PriceList
from sparklog.console.cluster_view import (
    RECORD_COLUMNS,
    AppendedRecord,
    Arrival,
    FoundGroups,
    NewRecord,
    PartitionRange,
    lag_in_records,
)
from sparklog.console.lag_history import LagHistory
from sparklog.console.program_usage import ProgramUsage
from sparklog.console.query_runs import QueryRuns
from sparklog.console.served_brokers import ServedBrokers
from sparklog.console.share_state_reader import ShareStateReader
from sparklog.console.stored_share_groups import StoredShareGroup, StoredShareGroups
from sparklog.coordinator.group_records import key_kind, read_offset_key, read_offset_value
from sparklog.coordinator.share.records import SHARE_KEYS
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.entropy import SYSTEM_ENTROPY
from sparklog.core.errors import (
    DataCorrupt,
    InvalidRequest,
    SparklogError,
    UnknownTopicOrPartition,
)
from sparklog.core.types import TopicPartition
from sparklog.log.schema import HEADERS, read_schema
from sparklog.log.segment.unread_batches import Unread
from sparklog.protocol.partitioner.partitioner import partition_for_key
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.schema_log import RootSchemaLog
from sparklog.spark.schedule.history import JobHistory, read_history
from sparklog.sql.topics import RootTopics

IMAGE_AGE_MAX_S: Final = 1.0
GROUPS_AGE_MAX_S: Final = 3.0
OFFSETS_TOPIC: Final = "__consumer_offsets"
OFFSET_KINDS: Final = (0, 1)
FOLLOW_WAIT_S: Final = 1.0
READS_AT_ONCE: Final = 32
"""A search by key waits for a footer and a filter of each segment, about 50 ms each on S3."""
_NO_BROKERS: Final = "only brokers know this; start the console with --bootstrap-server to see it"


@dataclass(slots=True)
class StoredOffsets:
    """Offsets and share groups in the storage: folded records of `__consumer_offsets`."""

    ends: dict[int, int] = field(default_factory=dict)
    """The offset up to which each partition was read."""
    topic_id: str = ""
    groups: dict[str, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)
    shares: StoredShareGroups = field(default_factory=StoredShareGroups)

    def take(self, batch: pa.RecordBatch) -> None:
        """Fold some records; skip those that are neither."""
        keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
        for key, value in zip(keys, values, strict=True):
            try:
                if key is None:
                    continue
                kind = key_kind(key)
                if kind in SHARE_KEYS:
                    self.shares.take(key, value)
                if kind not in OFFSET_KINDS:
                    continue
                where = read_offset_key(key)
                tp = TopicPartition(where.topic, where.partition)
                if value is None:
                    self._remove(where.group_id, tp)
                    continue
                found = read_offset_value(value)
            except DataCorrupt:
                continue
            self.groups.setdefault(where.group_id, {})[tp] = CommittedOffset(
                found.offset, found.leader_epoch, found.metadata
            )

    def _remove(self, group_id: str, tp: TopicPartition) -> None:
        offsets = self.groups.get(group_id, {})
        offsets.pop(tp, None)
        if not offsets:
            self.groups.pop(group_id, None)


class RootView:
    """A log under a root. Thread-safe."""

    kind = "root"

    def __init__(
        self,
        root: str,
        clock: Clock = SYSTEM_CLOCK,
        *,
        prices: PriceList | None = None,
        counters: CounterSources | None = None,
        pages: Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        """Open the root; nothing is read yet.

        Args:
            root: its URL.
            clock: for ages.
            prices: of requests and storage; None takes the defaults.
            counters: readers of more counters, by their names on the bill.
            pages: returns brokers' pages for Prometheus, by their names on the bill.

        Raises:
            InvalidConfig: not a root.
        """
        self.place = root
        self._log = Log(opened_store(root), clock=clock, read_threads=READS_AT_ONCE)
        self._clock = clock
        self.asks_brokers = False
        self._brokers: ServedBrokers | None = None
        self._image: tuple[float, MetadataImage] | None = None
        self._offsets = StoredOffsets()
        self._offsets_s: float | None = None
        self._offsets_lock = Lock()
        self.share_states = ShareStateReader(clock)
        self._schemas = SchemaRegistry(RootSchemaLog(self._log))
        counted = {"this console": self._log.requests, **(counters or {})}
        self.bill: Bill | None = Bill(prices or PriceList(), counted, clock, pages=pages)
        self.usage: ProgramUsage | None = ProgramUsage(self._log, clock)
        self.lags = LagHistory(partial(lag_in_records, self), clock)
        # Stored records only, as on the pages of records: no broker has to run.
        self.queries = QueryRuns(
            lambda: RootTopics(self._log, committed_only=True, includes_unflushed=False), clock
        )

    def with_brokers(self, settings: Mapping[str, str]) -> RootView:
        """Return this view, which asks the registered brokers, too, with a client's settings.

        It shares the log and all caches with this one. `release` closes its connections.
        """
        other = copy(self)
        other.asks_brokers = True
        other._brokers = ServedBrokers(self.image, settings, self._clock)  # noqa: SLF001 - a copy
        return other

    def release(self) -> None:
        """Close the connections to brokers; the log stays open."""
        if self._brokers is not None:
            self._brokers.close()

    def close(self) -> None:
        """Release connections and threads."""
        self.release()
        self.queries.close()
        self.lags.close()
        if self.bill is not None and self.bill.activity is not None:
            self.bill.activity.close()
        self._log.close()

    @contextmanager
    def administered(self) -> Iterator[AdminTarget]:
        """Lend the log."""
        self._image = None
        yield RootLog(self._log)

    def brokers_admin(self) -> AbstractContextManager[Admin]:
        """Lend a client of the brokers. Raises InvalidRequest: this view asks none."""
        if self._brokers is None:
            raise InvalidRequest(_NO_BROKERS)
        return self._brokers.view().brokers_admin()

    def storage(self) -> Log:
        """Return the log."""
        return self._log

    def image(self) -> MetadataImage:
        """Return the registry, at most a second old."""
        now_s = self._clock.monotonic_s()
        known = self._image
        if known is None or now_s - known[0] > IMAGE_AGE_MAX_S:
            known = (now_s, self._log.refresh())
            self._image = known
        return known[1]

    def topics(self) -> Mapping[str, Topic]:
        """Return all topics with their settings."""
        return self.image().topics

    def topic(self, name: str) -> Topic:
        """Return one topic. Raises UnknownTopicOrPartition."""
        return self._log.topic(name)

    def creators(self, topics: Sequence[Topic]) -> Mapping[str, str]:
        """Return the recorded creators."""
        return {topic.name: topic.creator for topic in topics if topic.creator}

    def sizes(self, topics: Sequence[Topic]) -> Mapping[TopicPartition, int]:
        """Return the bytes of the objects that readers use. Cost: three requests a partition."""
        chosen = [TopicPartition(t.name, number) for t in topics for number in range(t.partitions)]
        with ThreadPoolExecutor(LOOKED_AT_ONCE) as pool:
            return dict(zip(chosen, pool.map(self._size, chosen), strict=True))

    def read(self, ranges: Sequence[PartitionRange], take: Arrival) -> None:
        """Read from the storage. Raises as `PartitionLog.read`."""
        for one in ranges:
            partition = self._log.partition(one.partition.topic, one.partition.partition)
            extent = extent_of(partition, committed_only=True)
            base = max(one.base, extent.view.log_start_offset)
            end = min(one.end, extent.readable_end)
            if base >= end:
                continue
            for batch in partition.read(
                base, end, RECORD_COLUMNS, view=extent.view, unread=Unread.PASS_OVER,
                outcomes=extent.outcomes,
            ):  # fmt: skip
                if not take(one.partition, batch):
                    break

    def follow(self, topic: str, partitions: Sequence[int], take: Arrival) -> None:
        """Follow the stored records. Raises as `LogFollower`."""
        source = LogFollower(
            self._log, RECORD_COLUMNS, lambda _: None, self._clock, Unread.PASS_OVER,
            committed_only=True,
        )  # fmt: skip
        for number in partitions:
            source.add_topic(topic, LATEST, number)
        nothing = pa.RecordBatch.from_pylist([], read_schema(RECORD_COLUMNS))
        while True:
            for found in source.ready(None):
                if not take(found.topic_partition, found.batch):
                    return
            if not take(TopicPartition(topic, 0), nothing):
                return
            source.wait(FOLLOW_WAIT_S)

    def append(self, record: NewRecord) -> AppendedRecord:
        """Append directly. Raises NotServing for a topic that brokers lead; others as `append`."""
        topic = self._log.topic(record.topic)
        number = record.partition
        if number is None and record.key is not None:
            number = partition_for_key(record.key, topic.partitions)
        elif number is None:
            number = int(SYSTEM_ENTROPY.random() * topic.partitions)
        headers = [{"key": name, "value": value} for name, value in record.headers] or None
        batch = pa.RecordBatch.from_pydict(
            {
                "key": pa.array([record.key], pa.binary()),
                "value": pa.array([record.value], pa.binary()),
                "headers": pa.array([headers], HEADERS),
            }
        )
        done = self._log.partition(record.topic, number).append([batch])
        return AppendedRecord(TopicPartition(record.topic, number), done.base_offset)

    def append_copies(self, to: TopicPartition, batches: Sequence[pa.RecordBatch]) -> None:
        """Append all records or none. Raises as `append`."""
        self._log.partition(to.topic, to.partition).append(batches)

    def groups(self) -> FoundGroups:
        """Return the groups with stored offsets or states, and those of brokers that answer.

        The state of a group is `Unknown` if no broker says it.
        """
        stored = self._stored()
        found = {name: GroupListing(name, "consumer", "Unknown", "Unknown")
                 for name in list(stored.groups)}  # fmt: skip
        sharing = set(stored.shares.group_ids)
        problem = None
        try:
            with self.share_states.lend(self) as states:
                sharing.update(states.group_ids)
        except SparklogError as error:
            problem = str(error)
        found |= {name: GroupListing(name, "share", "Unknown", SHARE) for name in sharing}
        if self._brokers is not None:
            try:
                known = self._brokers.view().groups().listings
                found |= {one.group_id: one for one in known}
            except SparklogError as error:
                problem = str(error)
        return FoundGroups([found[name] for name in sorted(found)], problem)

    def group(self, group_id: str) -> GroupDescription | None:
        """Return a group as brokers know it; None without brokers. Raises as `BrokerView.group`."""
        return None if self._brokers is None else self._brokers.view().group(group_id)

    def share_group(self, group_id: str) -> GroupDescription | None:
        """Return a share group as brokers know it; None without brokers.

        Raises as `BrokerView.share_group`.
        """
        return None if self._brokers is None else self._brokers.view().share_group(group_id)

    def stored_share_group(self, group_id: str) -> StoredShareGroup | None:
        """Return a share group as its coordinator stored it."""
        return self._stored().shares.group(group_id)

    def group_settings(self, group_id: str) -> Mapping[str, str]:
        """Return the settings that the group has of its own."""
        return self.image().group_configs.get(group_id, {})

    def committed(self, group_id: str) -> Committed:
        """Return the stored offsets of a group."""
        return dict(self._stored().groups.get(group_id, {}))

    def jobs(self) -> JobHistory:
        """Return schedules and runs of jobs."""
        return read_history(self._log)

    def schemas(self) -> SchemaRegistry:
        """Return the registry of schemas. Cost: none before its first use."""
        return self._schemas

    def _size(self, tp: TopicPartition) -> int:
        entries = self._log.partition(tp.topic, tp.partition).readable().entries
        return sum({entry.object: entry.size_bytes for entry in entries}.values())

    def _stored(self) -> StoredOffsets:
        """Return the folded offsets. Cost: the records since the last call."""
        with self._offsets_lock:
            now_s = self._clock.monotonic_s()
            if self._offsets_s is not None and now_s - self._offsets_s < GROUPS_AGE_MAX_S:
                return self._offsets
            try:
                topic = self._log.topic(OFFSETS_TOPIC)
            except UnknownTopicOrPartition:
                self._offsets = StoredOffsets()
                return self._offsets
            if topic.topic_id != self._offsets.topic_id:
                self._offsets = StoredOffsets(topic_id=topic.topic_id)
            for number in range(topic.partitions):
                self._read_on(number)
            self._offsets_s = now_s
            return self._offsets

    def _read_on(self, number: int) -> None:
        partition = self._log.partition(OFFSETS_TOPIC, number)
        extent = extent_of(partition, committed_only=True)
        base = max(self._offsets.ends.get(number, 0), extent.view.log_start_offset)
        if base < extent.readable_end:
            for batch in partition.read(
                base, extent.readable_end, ("key", "value"), view=extent.view,
                unread=Unread.PASS_OVER, outcomes=extent.outcomes,
            ):  # fmt: skip
                self._offsets.take(batch)
        self._offsets.ends[number] = max(base, extent.readable_end)
