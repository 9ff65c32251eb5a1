"""BrokerSource: follows partitions through brokers, all of them or those that a group assigns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparklog.cli.console.record_sources import Start, checked_start
from sparklog.client.consumer import RECORDS_AT_ONCE, Consumer, Record
from sparklog.client.values import EARLIEST, LATEST, ListedOffset
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import SparklogError, Unavailable, UnknownTopicOrPartition
from sparklog.core.types import TopicPartition
from sparklog.log.schema import read_schema
from sparklog.sql.arrived import SourceRecord

if TYPE_CHECKING:
    from sparklog.client.admin import Admin


POLL_S: Final = 0.2
SILENCE_MAX_S: Final = 30.0
"""Time that brokers may return nothing from partitions that have records."""
TOPICS_EVERY_S: Final = 30.0
"""Interval between checks for new partitions."""


class BrokerSource:
    """Reads through a consumer, and converts records to batches."""

    def __init__(
        self, consumer: Consumer, columns: Sequence[str], *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """Read `columns`."""
        self._consumer = consumer
        self._schema = read_schema(columns)
        self._clock = clock
        self._admin: Admin | None = None
        self._topics: dict[str, int] = {}
        """Whole topics, with the number of their partitions that are read."""
        self._looked_s = clock.monotonic_s()
        self._catching_up: dict[TopicPartition, int] = {}
        """Partitions that were not read up to their ends at the start yet, with those ends."""
        self._arrived: list[Record] = []

    def assign(
        self, admin: Admin, topics: Sequence[str], start: Start, only: int | None = None
    ) -> None:
        """Read every partition of `topics`, or `only` one of each, from `start` on.

        Raises:
            UnknownTopicOrPartition: no such topic or partition.
            OffsetOutOfRange: the log has no such offset.
        """
        chosen = [tp for topic in topics for tp in _partitions(admin, topic, only)]
        firsts = _found(admin.offsets(dict.fromkeys(chosen, EARLIEST)))
        ends = _found(admin.offsets(dict.fromkeys(chosen, LATEST)))
        starts = {tp: checked_start(tp, start, firsts[tp], ends[tp]) for tp in chosen}
        self._catching_up = {tp: ends[tp] for tp in chosen if starts[tp] < ends[tp]}
        self._consumer.assign(starts)
        self._admin = admin
        if only is None:
            self._topics = {name: sum(tp.topic == name for tp in chosen) for name in topics}

    def subscribe(self, topics: Sequence[str]) -> None:
        """Share the partitions of `topics` with the other members of the consumer's group."""
        self._consumer.subscribe(topics)

    def ready(self, records_max: int | None) -> Iterator[SourceRecord]:
        """Yield received records. Wait for those that existed at the start.

        Raises:
            Unavailable: brokers do not return records that exist.
        """
        arrived, self._arrived = self._arrived, []
        wanted = RECORDS_AT_ONCE if records_max is None else min(records_max, RECORDS_AT_ONCE)
        deadline_s = self._clock.monotonic_s() + SILENCE_MAX_S
        while not arrived:
            arrived = self._polled(wanted, POLL_S if self._catching_up else 0.0)
            if not self._catching_up:
                break
            if not arrived and self._clock.monotonic_s() > deadline_s:
                waiting = ",".join(map(str, sorted(self._catching_up)))
                raise Unavailable(
                    "brokers do not hand out records that are there; look at their logs. "
                    f"partitions={waiting} silent_s={SILENCE_MAX_S:g}"
                )
        yield from self._batches(arrived)

    def wait(self, at_most_s: float | None) -> None:
        """Wait for a record; the next `ready` yields it."""
        if self._clock.monotonic_s() - self._looked_s >= TOPICS_EVERY_S:
            self._look_at_topics()
            self._looked_s = self._clock.monotonic_s()
        patience_s = POLL_S if at_most_s is None else min(POLL_S, max(0.0, at_most_s))
        self._arrived = self._polled(1, patience_s)

    def settle(self) -> None:
        """Commit for the group, so that its next member continues here. Raises as `commit`."""
        if self._admin is None:
            self._consumer.commit()

    def _polled(self, records_max: int, timeout_s: float) -> list[Record]:
        records = self._consumer.poll(records_max, timeout_s)
        if self._catching_up:
            # The end may have transaction markers instead of a last record.
            reached = self._consumer.ends_reached | {
                record.topic_partition
                for record in records
                if record.offset + 1 >= self._catching_up.get(record.topic_partition, math.inf)
            }
            self._catching_up = {
                tp: end for tp, end in self._catching_up.items() if tp not in reached
            }
        return records

    def _look_at_topics(self) -> None:
        for topic, known in self._topics.items():
            count = self._admin.listed_topic(topic).partitions if self._admin is not None else known
            if count > known:
                added = [TopicPartition(topic, number) for number in range(known, count)]
                self._consumer.assign_more(dict.fromkeys(added, EARLIEST))
                self._topics[topic] = count

    def _batches(self, records: Sequence[Record]) -> Iterator[SourceRecord]:
        of_partition: dict[TopicPartition, list[Record]] = {}
        for record in records:
            of_partition.setdefault(record.topic_partition, []).append(record)
        for tp, chosen in of_partition.items():
            yield SourceRecord(tp, record_batch(chosen, self._schema))


def record_batch(records: Sequence[Record], schema: pa.Schema) -> pa.RecordBatch:
    """Return records as a batch with the columns of `schema`, of those that records have."""
    if not schema.names:  # there is still a number of records
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(records), pa.struct([])))
    arrays = [
        pa.array([_FIELDS[field.name](record) for record in records], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _headers(record: Record) -> list[dict[str, Any]] | None:
    if not record.headers:
        return None
    return [{"key": name, "value": value} for name, value in record.headers]


_FIELDS: Final[Mapping[str, Any]] = {
    "offset": lambda record: record.offset,
    "timestamp": lambda record: record.timestamp_ms,
    "timestampType": lambda record: record.timestamp_type,
    "key": lambda record: record.key,
    "value": lambda record: record.value,
    "headers": _headers,
}


def _partitions(admin: Admin, topic: str, only: int | None) -> list[TopicPartition]:
    count = admin.listed_topic(topic).partitions
    if only is not None and only >= count:
        raise UnknownTopicOrPartition(
            f"no such partition. topic={topic} partition={only} partitions={count}"
        )
    return [TopicPartition(topic, n) for n in (range(count) if only is None else (only,))]


def _found(
    offsets: Mapping[TopicPartition, ListedOffset | SparklogError],
) -> dict[TopicPartition, int]:
    found = {}
    for tp, offset in offsets.items():
        if isinstance(offset, SparklogError):
            raise offset
        found[tp] = offset.offset
    return found
