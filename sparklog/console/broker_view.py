"""BrokerView: a log behind brokers for the console, with one principal's rights.

An `Admin` serves one thread at a time, so the view keeps a few and lends them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from queue import Empty, LifoQueue
from threading import Lock
from typing import Final

import pyarrow as pa

from sparklog.cli.console.broker_source import record_batch
from sparklog.cli.target import AdminTarget
from sparklog.client.admin import Admin
from sparklog.client.consumer import Consumer, Record
from sparklog.client.producer import Producer
from sparklog.client.registry_log import BrokerSchemaLog
from sparklog.client.values import (
    CLASSIC,
    CONSUMER,
    LATEST,
    SHARE,
    Committed,
    ConfigResource,
    GroupDescription,
    GroupListing,
)
from sparklog.cluster.log import Log
from sparklog.cluster.metadata.image import Topic
from sparklog.console.bill import Bill
from sparklog.console.cluster_view import (
    RECORD_COLUMNS,
    AppendedRecord,
    Arrival,
    FoundGroups,
    NewRecord,
    PartitionRange,
    lag_in_records,
    milliseconds_of,
)
from sparklog.console.lag_history import LagHistory
from sparklog.console.program_usage import ProgramUsage
from sparklog.console.query_runs import QueryRuns
from sparklog.console.share_state_reader import ShareStateReader
from sparklog.console.stored_share_groups import StoredShareGroup
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import (
    ClusterAuthorizationFailed,
    GroupIdNotFound,
    InvalidRequest,
    SparklogError,
    Unavailable,
    UnknownTopicOrPartition,
)
from sparklog.core.types import TopicPartition
from sparklog.log.schema import read_schema
from sparklog.registry.registry import SchemaRegistry
from sparklog.spark.schedule.history import HISTORY_TOPIC, JobHistory, consume_history
from sparklog.sql.topics import BrokerTopics

ADMINS_MAX: Final = 4
ANSWER_WITHIN_S: Final = 8.0
GROUPS_AGE_MAX_S: Final = 5.0
READ_WITHIN_S: Final = 8.0
"""Longest wait for the next record that is there."""
POLL_S: Final = 0.25
POLLED_MAX: Final = 500
LISTED_TYPES: Final = (CLASSIC, CONSUMER, SHARE)
_NO_STORAGE: Final = "only the storage shows this; start the console with --root to see it"
_READER: Final[Mapping[str, str | int]] = {
    "fetch.wait.max.ms": 100,
    "queued.max.messages.kbytes": 16 * 1024,
    "fetch.message.max.bytes": 1024 * 1024,
}
"""Bounds what one page holds in memory."""


class BrokerView:
    """Brokers. Thread-safe."""

    kind = "brokers"
    asks_brokers = True

    def __init__(
        self,
        bootstrap: str,
        settings: Mapping[str, str],
        clock: Clock = SYSTEM_CLOCK,
        *,
        bill: Bill | None = None,
    ) -> None:
        """Use these brokers and these settings of TLS and SASL; nothing is sent yet.

        Raises:
            InvalidRequest: not host:port,host:port. InvalidConfig: a wrong setting.
        """
        self.place = bootstrap
        self.bill = bill
        self.usage: ProgramUsage | None = None
        self._settings = dict(settings)
        self._clock = clock
        self._idle: LifoQueue[Admin] = LifoQueue()
        self._made = 1
        self._lock = Lock()
        self._closed = False
        self._listed: tuple[float, Sequence[GroupListing]] | None = None
        self._schemas: SchemaRegistry | None = None
        self.share_states = ShareStateReader(clock)
        self._give_back(self._new_admin())
        self.lags = LagHistory(partial(lag_in_records, self), clock)
        self.queries = QueryRuns(
            lambda: BrokerTopics(self.place, committed_only=True, settings=self._settings), clock
        )

    def release(self) -> None:
        """Close all: a view of brokers belongs to one user."""
        self.close()

    def close(self) -> None:
        """Close idle connections; lent ones close when they come back."""
        self.queries.close()
        self.lags.close()
        if self._schemas is not None:
            self._schemas.close()
        self._closed = True
        while not self._idle.empty():
            self._idle.get_nowait().close()

    @contextmanager
    def brokers_admin(self) -> Iterator[Admin]:
        """Lend a client. Raises Unavailable if all wait for brokers."""
        admin = self._borrowed()
        try:
            yield admin
        finally:
            self._give_back(admin)

    @contextmanager
    def administered(self) -> Iterator[AdminTarget]:
        """Lend a client."""
        with self.brokers_admin() as admin:
            yield admin

    def storage(self) -> Log:
        """Raise InvalidRequest: the storage is not known."""
        raise InvalidRequest(_NO_STORAGE)

    def topics(self) -> Mapping[str, Topic]:
        """Return all topics without their settings. Cost: one request."""
        with self.brokers_admin() as admin:
            return admin.listed_topics()

    def topic(self, name: str) -> Topic:
        """Return one topic without its settings. Raises UnknownTopicOrPartition."""
        with self.brokers_admin() as admin:
            found = admin.listed_topics([name])
        if name not in found:
            raise UnknownTopicOrPartition(f"no such topic. topic={name}")
        return found[name]

    def creators(self, topics: Sequence[Topic]) -> Mapping[str, str]:
        """Return the creators of topics whose settings the principal sees. Cost: one request."""
        with self.brokers_admin() as admin:
            return admin.topic_creators([topic.name for topic in topics])

    def sizes(self, topics: Sequence[Topic]) -> Mapping[TopicPartition, int]:
        """Return the bytes that leaders report; none without the right to see log directories.

        Cost: a request to each broker.
        """
        leaders = {
            TopicPartition(topic.name, number): state.leader
            for topic in topics
            for number, state in enumerate(topic.partition_states)
        }
        found: dict[TopicPartition, int] = {}
        with self.brokers_admin() as admin:
            for broker in admin.brokers():
                try:
                    folders = admin.log_dirs(broker)
                except ClusterAuthorizationFailed:
                    return {}
                for folder in folders:
                    for tp, replica in folder.replicas.items():
                        if leaders.get(tp) == broker.broker_id:
                            found[tp] = replica.size_bytes
        return found

    def read(self, ranges: Sequence[PartitionRange], take: Arrival) -> None:
        """Read through a consumer. Raises Unavailable if brokers return nothing in time."""
        ends = {one.partition: one.end for one in ranges if one.base < one.end}
        if not ends:
            return
        schema = read_schema(RECORD_COLUMNS)
        deadline_s = self._clock.monotonic_s() + READ_WITHIN_S
        with self._consumer() as consumer:
            consumer.assign({one.partition: one.base for one in ranges if one.partition in ends})
            while ends:
                arrived = _by_partition(consumer.poll(POLLED_MAX, POLL_S))
                done = set(consumer.ends_reached)
                for tp in arrived.keys() & ends.keys():
                    wanted = [one for one in arrived[tp] if one.offset < ends[tp]]
                    goes_on = not wanted or take(tp, record_batch(wanted, schema))
                    if not goes_on or arrived[tp][-1].offset + 1 >= ends[tp]:
                        done.add(tp)
                for tp in done & ends.keys():
                    del ends[tp]
                if arrived:
                    deadline_s = self._clock.monotonic_s() + READ_WITHIN_S
                if ends and self._clock.monotonic_s() > deadline_s:
                    waiting = ",".join(map(str, sorted(ends)))
                    raise Unavailable(
                        "brokers return no more records; try again. "
                        f"partitions={waiting} seconds={READ_WITHIN_S:g}"
                    )

    def follow(self, topic: str, partitions: Sequence[int], take: Arrival) -> None:
        """Follow through a consumer."""
        schema = read_schema(RECORD_COLUMNS)
        nothing = pa.RecordBatch.from_pylist([], schema)
        with self._consumer() as consumer:
            consumer.assign({TopicPartition(topic, number): LATEST for number in partitions})
            while True:
                arrived = _by_partition(consumer.poll(POLLED_MAX, POLL_S))
                if not arrived and not take(TopicPartition(topic, 0), nothing):
                    return
                for tp, records in arrived.items():
                    if not take(tp, record_batch(records, schema)):
                        return

    def append(self, record: NewRecord) -> AppendedRecord:
        """Send one record and wait for the response. Raises as `ProducerDelivery.result`."""
        timeout = {"delivery.timeout.ms": int(ANSWER_WITHIN_S * 1000), "linger.ms": 0}
        with Producer(self.place, {**timeout, **self._settings}) as producer:
            sent = producer.send(
                record.topic, record.value, key=record.key, headers=record.headers or None,
                partition=record.partition,
            )  # fmt: skip
            delivered = sent.result(ANSWER_WITHIN_S)
        return AppendedRecord(delivered.topic_partition, delivered.offset)

    def append_copies(self, to: TopicPartition, batches: Sequence[pa.RecordBatch]) -> None:
        """Send records, and wait for all responses. Raises as `append`; some may be there then."""
        timeout = {"delivery.timeout.ms": int(ANSWER_WITHIN_S * 1000)}
        with Producer(self.place, {**timeout, **self._settings}) as producer:
            sent = [
                producer.send(
                    to.topic, row["value"], key=row["key"], partition=to.partition,
                    headers=[(one["key"], one["value"]) for one in row["headers"] or ()] or None,
                    timestamp_ms=milliseconds_of(row["timestamp"]),
                )
                for batch in batches
                for row in batch.to_pylist()
            ]  # fmt: skip
            for delivery in sent:
                delivery.result(ANSWER_WITHIN_S)

    def groups(self) -> FoundGroups:
        """Return the groups of all coordinators. Cost: a request to each broker."""
        now_s = self._clock.monotonic_s()
        known = self._listed
        if known is None or now_s - known[0] > GROUPS_AGE_MAX_S:
            with self.brokers_admin() as admin:
                known = (now_s, admin.groups.list(types=LISTED_TYPES))
            self._listed = known
        return FoundGroups(known[1])

    def group(self, group_id: str) -> GroupDescription | None:
        """Return one group. Raises GroupIdNotFound and others."""
        with self.brokers_admin() as admin:
            found = admin.groups.describe([group_id])[group_id]
        if isinstance(found, GroupIdNotFound) and self.committed(group_id):
            return None
        if isinstance(found, SparklogError):
            raise found
        return found

    def share_group(self, group_id: str) -> GroupDescription | None:
        """Return one share group. Raises GroupIdNotFound and others."""
        with self.brokers_admin() as admin:
            found = admin.share_groups.describe([group_id])[group_id]
        if isinstance(found, SparklogError):
            raise found
        return found

    def stored_share_group(self, group_id: str) -> StoredShareGroup | None:
        """Return None: only the storage shows it."""
        return None

    def group_settings(self, group_id: str) -> Mapping[str, str]:
        """Return all settings of a group. Raises as `Admin.configs`. Cost: one request."""
        with self.brokers_admin() as admin:
            found = admin.configs(ConfigResource.GROUP, [group_id]).get(group_id, [])
        return {one.name: one.value for one in found if one.value is not None}

    def committed(self, group_id: str) -> Committed:
        """Return the committed offsets of a group."""
        with self.brokers_admin() as admin:
            found = admin.groups.offsets([group_id])[group_id]
        if isinstance(found, SparklogError):
            raise found
        return found

    def jobs(self) -> JobHistory:
        """Return schedules and runs of jobs."""
        with self.brokers_admin() as admin:
            if HISTORY_TOPIC not in admin.listed_topics():
                return JobHistory()
        return consume_history(self.place, self._settings)

    def schemas(self) -> SchemaRegistry:
        """Return the registry of schemas, as far as this principal may read its topic."""
        with self._lock:
            if self._schemas is None:
                self._schemas = SchemaRegistry(BrokerSchemaLog(self.place, self._settings))
            return self._schemas

    def forget_groups(self) -> None:
        """Drop the remembered list of groups, after a change."""
        self._listed = None

    def _consumer(self) -> Consumer:
        return Consumer(self.place, settings={**_READER, **self._settings})

    def _new_admin(self) -> Admin:
        return Admin(self.place, settings=self._settings, timeout_s=ANSWER_WITHIN_S)

    def _borrowed(self) -> Admin:
        with self._lock:
            if self._idle.empty() and self._made < ADMINS_MAX:
                self._made += 1
                return self._new_admin()
        try:
            return self._idle.get(timeout=ANSWER_WITHIN_S)
        except Empty as error:
            raise Unavailable(
                "the console still waits for brokers; try again in a moment"
            ) from error

    def _give_back(self, admin: Admin) -> None:
        if self._closed:
            admin.close()
        else:
            self._idle.put(admin)


def _by_partition(records: Sequence[Record]) -> dict[TopicPartition, list[Record]]:
    found: dict[TopicPartition, list[Record]] = {}
    for record in records:
        found.setdefault(record.topic_partition, []).append(record)
    return found
