"""ClusterView: what the console needs of a log, on a root or at brokers.

`RootView` and `BrokerView` implement it. Most of it is an `AdminTarget`, which both have. The other
methods differ: records come from the storage or from brokers, and so do groups and sizes.

A method blocks. The console calls it in a thread, and limits the wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa

from sparklog.cli.target import AdminTarget
from sparklog.client.admin import Admin
from sparklog.client.values import (
    LATEST,
    Committed,
    GroupDescription,
    GroupListing,
    ListedOffset,
)
from sparklog.cluster.log import Log
from sparklog.cluster.metadata.image import Topic
from sparklog.console.bill import Bill
from sparklog.console.lag_history import LagHistory
from sparklog.console.program_usage import ProgramUsage
from sparklog.console.query_runs import QueryRuns
from sparklog.console.stored_share_groups import StoredShareGroup
from sparklog.core.errors import SparklogError
from sparklog.core.types import TopicPartition
from sparklog.registry.registry import SchemaRegistry
from sparklog.spark.schedule.history import JobHistory

if TYPE_CHECKING:
    from sparklog.console.share_state_reader import ShareStateReader

RECORD_COLUMNS: Final = ("offset", "timestamp", "key", "value", "headers", "timestampType")


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """Offsets [base, end) of one partition."""

    partition: TopicPartition
    base: int
    end: int


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to append; `partition` None lets the key decide."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class AppendedRecord:
    """The place of an appended record."""

    partition: TopicPartition
    offset: int


Arrival = Callable[[TopicPartition, pa.RecordBatch], bool]
"""Takes records with `RECORD_COLUMNS` as they arrive; returns False to stop."""


@dataclass(frozen=True, slots=True)
class FoundGroups:
    """Groups by name."""

    listings: Sequence[GroupListing]
    problem: str | None = None
    """Why groups without stored offsets, and the states of the others, are missing."""


class ClusterView(Protocol):
    """A log, on a root or at brokers. Thread-safe."""

    kind: str
    """`root` or `brokers`."""
    place: str
    """The root, or the bootstrap servers, for people."""
    asks_brokers: bool
    """True if it can show what only brokers know: members, states and transactions."""
    bill: Bill | None
    """The requests to the store and their price; None if no counters are known."""
    usage: ProgramUsage | None
    """The requests that programs reported; None at brokers, which do not show them."""
    lags: LagHistory
    """The lags of the groups that pages show."""
    queries: QueryRuns
    """Queries of SQL with the rights of this view."""
    share_states: ShareStateReader
    """The stored states of share groups."""

    def administered(self) -> AbstractContextManager[AdminTarget]:
        """Lend the topics, settings, offsets and users, for one thread."""

    def brokers_admin(self) -> AbstractContextManager[Admin]:
        """Lend what only brokers know. Raises InvalidRequest on a root."""

    def storage(self) -> Log:
        """Return what only the storage shows. Raises InvalidRequest at brokers."""

    def topics(self) -> Mapping[str, Topic]:
        """Return all topics, possibly a second old; at brokers without their settings."""

    def topic(self, name: str) -> Topic:
        """Return one topic, at brokers without its settings. Raises UnknownTopicOrPartition."""

    def creators(self, topics: Sequence[Topic]) -> Mapping[str, str]:
        """Return the principals that created these topics, by topic, as far as they are known."""

    def sizes(self, topics: Sequence[Topic]) -> Mapping[TopicPartition, int]:
        """Return the stored bytes of the partitions of these topics."""

    def read(self, ranges: Sequence[PartitionRange], take: Arrival) -> None:
        """Read ranges of partitions, one after the other, each in order of offsets.

        Records of aborted transactions are left out. `take` returns False to end its partition.
        """

    def follow(self, topic: str, partitions: Sequence[int], take: Arrival) -> None:
        """Follow partitions from their ends until `take` returns False.

        It calls `take` at least once a second, with an empty batch while nothing arrives.
        """

    def append(self, record: NewRecord) -> AppendedRecord:
        """Append one record, and return its place."""

    def append_copies(self, to: TopicPartition, batches: Sequence[pa.RecordBatch]) -> None:
        """Append records with their `key`, `value`, `headers` and `timestamp` to a partition."""

    def groups(self) -> FoundGroups:
        """Return all groups by name, possibly some seconds old."""

    def group(self, group_id: str) -> GroupDescription | None:
        """Return one group with its members; None if only its offsets are known."""

    def share_group(self, group_id: str) -> GroupDescription | None:
        """Return one share group with its members; None if no broker is asked."""

    def stored_share_group(self, group_id: str) -> StoredShareGroup | None:
        """Return one share group as its coordinator stored it; None at brokers."""

    def group_settings(self, group_id: str) -> Mapping[str, str]:
        """Return the settings of a group; those that are missing have their defaults."""

    def committed(self, group_id: str) -> Committed:
        """Return the committed offsets of a group."""

    def jobs(self) -> JobHistory:
        """Return schedules and runs of jobs."""

    def schemas(self) -> SchemaRegistry:
        """Return the registry of schemas; nothing is read before it is needed."""

    def release(self) -> None:
        """Close what belongs to one user, when the user's session ends."""

    def close(self) -> None:
        """Release connections and threads."""


def milliseconds_of(timestamp: Any) -> int | None:
    """Return a record's timestamp in ms; None if it has none."""
    if timestamp is None:
        return None
    if isinstance(timestamp, datetime):
        return round(timestamp.timestamp() * 1000)
    return int(timestamp)


def lag_in_records(view: ClusterView, group_id: str) -> int | None:
    """Return the sum of a group's lag in records; None if it has committed no offset.

    Cost: two requests. Raises SparklogError: brokers or the store do not answer.
    """
    committed = view.committed(group_id)
    if not committed:
        return None
    with view.administered() as admin:
        ends = admin.offsets(dict.fromkeys(committed, LATEST))
    return sum(
        max(0, end.offset - committed[tp].offset)
        for tp, end in ends.items()
        if isinstance(end, ListedOffset)
    )


def offsets_of(
    answers: Mapping[TopicPartition, ListedOffset | SparklogError],
) -> dict[TopicPartition, int]:
    """Return the offset that was found in each partition.

    Raises:
        SparklogError: the first partition's error, if one has no answer.
    """
    found = {}
    for tp, answer in answers.items():
        if isinstance(answer, SparklogError):
            raise answer
        found[tp] = answer.offset
    return found
