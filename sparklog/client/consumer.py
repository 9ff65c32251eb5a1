"""Consumer: reads given partitions from given offsets, or topics as a member of a group.

    with Consumer("localhost:9092") as consumer:
        consumer.assign({TopicPartition("flights", 0): EARLIEST})
        for record in consumer.poll(timeout_s=1.0): ...

Only `commit` commits a position. So after a crash records may repeat, and none is skipped. Records
of uncommitted transactions are not read, unless `isolation.level` allows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import confluent_kafka as ck
from confluent_kafka import KafkaException

from sparklog.client.librdkafka_errors import of_exception, of_kafka
from sparklog.client.settings import SecurityProblem, Settings, client_settings, refused
from sparklog.client.values import EARLIEST, LATEST
from sparklog.core.errors import InvalidRequest
from sparklog.core.types import Closeable, TopicPartition

NO_GROUP: Final = "sparklog-no-group"
"""librdkafka requires a group id even if nothing is committed under it."""
NO_RIGHT_TO_GROUP: Final = "GROUP_AUTHORIZATION_FAILED"
"""librdkafka asks for the coordinator of that group, too; a reader without a group needs none."""
SAFE: Final[Settings] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
}
ALONE: Final[Settings] = {"auto.offset.reset": "error"}
"""Without a group, the caller chose the offset: a wrong one is an error, and not replaced."""
RECORDS_AT_ONCE: Final = 10_000

_LIBRARY_OFFSETS = {EARLIEST: ck.OFFSET_BEGINNING, LATEST: ck.OFFSET_END}


@dataclass(frozen=True, slots=True)
class Record:
    """One record."""

    topic_partition: TopicPartition
    offset: int
    timestamp_ms: int
    timestamp_type: int
    """A number of `core.types.TimestampType`."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Consumer(Closeable):
    """Reads records. A context manager; not thread-safe."""

    def __init__(
        self, bootstrap_servers: str, *, group: str | None = None, settings: Settings | None = None
    ) -> None:
        """Create the client; `settings` are librdkafka's and override the safe defaults.

        TLS and SASL may have Java's names, too, and refer to secrets: `${file:/path:key}`.

        Raises:
            InvalidConfig: librdkafka rejects a setting.
        """
        self._group = group
        self._returned: dict[TopicPartition, int] = {}
        self._ends_reached: set[TopicPartition] = set()
        layer = {"group.id": NO_GROUP, **ALONE} if group is None else {"group.id": group}
        self._problem = SecurityProblem()
        given = client_settings(
            bootstrap_servers, SAFE, layer, settings or {}, problem=self._problem
        )
        try:
            self._client = ck.Consumer(given)
        except KafkaException as error:
            raise refused(error) from error

    def close(self) -> None:
        """Leave the group, and close. Repeated calls have no effect."""
        self._client.close()

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from an offset, EARLIEST or LATEST on, and no others."""
        self._ends_reached.clear()
        self._client.assign(_with_offsets(starts))

    def assign_more(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read these partitions in addition."""
        self._client.incremental_assign(_with_offsets(starts))

    def subscribe(self, topics: Sequence[str]) -> None:
        """Join the group, and share the partitions of these topics with its other members.

        Raises:
            InvalidRequest: there is no group.
        """
        if self._group is None:
            raise InvalidRequest("subscribe needs a group; assign partitions without one")
        self._client.subscribe(list(topics))

    def poll(self, records_max: int = RECORDS_AT_ONCE, timeout_s: float = 1.0) -> list[Record]:
        """Return received records, at most `records_max`; wait `timeout_s` for the first one.

        Raises:
            OffsetOutOfRange: no such offset, and no `auto.offset.reset`.
            SaslAuthenticationFailed, InvalidConfig: no login, or the broker is not trusted.
            SparklogError: reading cannot continue; the class says what to do.
        """
        try:
            first = self._client.poll(timeout_s)  # consume() would wait for the last one, too
            messages = [] if first is None else [first]
            if messages and records_max > 1:
                messages += self._client.consume(records_max - 1, 0)
        except KafkaException as error:
            raise of_exception(error, "records could not be read") from error
        if self._problem.found is not None and not messages:
            raise self._problem.found
        records = [_record(message) for message in messages if self._holds_record(message)]
        self._returned.update((record.topic_partition, record.offset + 1) for record in records)
        return records

    @property
    def ends_reached(self) -> frozenset[TopicPartition]:
        """Return the partitions whose end was reached at some time since their assignment.

        This includes an end after which only transaction markers follow.
        """
        return frozenset(self._ends_reached)

    def commit(self) -> None:
        """Commit the positions behind all records that `poll` returned; return when it is done.

        Raises:
            Unavailable, InvalidRequest: not committed, for example because another member has the
                partitions now. Their next reader gets the records again.
        """
        if not self._returned:
            return
        positions, self._returned = self._returned, {}
        offsets = [ck.TopicPartition(tp.topic, tp.partition, at) for tp, at in positions.items()]
        try:
            done = self._client.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            raise of_exception(error, "offsets were not committed", group=self._group) from error
        for tp in done:
            if tp.error is not None:
                raise of_kafka(
                    tp.error, "an offset was not committed", topic=tp.topic, partition=tp.partition
                )

    def _holds_record(self, message: ck.Message) -> bool:
        error = message.error()
        if error is None:
            return True
        topic, partition = message.topic() or "", message.partition()
        if error.name() == "_PARTITION_EOF" and partition is not None:
            self._ends_reached.add(TopicPartition(topic, partition))
            return False
        if error.retriable() and not error.fatal():
            return False
        if self._group is None and error.name() == NO_RIGHT_TO_GROUP:
            return False
        raise of_kafka(
            error,
            "records could not be read",
            topic=topic or None,
            partition=partition,
            offset=message.offset(),
        )


def _with_offsets(starts: Mapping[TopicPartition, int]) -> list[ck.TopicPartition]:
    return [
        ck.TopicPartition(tp.topic, tp.partition, _LIBRARY_OFFSETS.get(offset, offset))
        for tp, offset in starts.items()
    ]


def _record(message: ck.Message) -> Record:
    kind, timestamp_ms = message.timestamp()
    headers = message.headers()
    return Record(
        TopicPartition(message.topic() or "", message.partition() or 0),
        message.offset() or 0,
        timestamp_ms,
        max(0, kind - 1),  # librdkafka: 0 none, 1 create time, 2 log append time
        message.key(),
        message.value(),
        tuple(headers) if headers else (),  # type: ignore[arg-type]
    )
