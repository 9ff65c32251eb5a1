"""A plain Kafka client that sends flights all the while: confluent-kafka, nothing of sparklog's.

It remembers when each record was acknowledged, and in which partition. So the demo can report
afterwards the length of every take-over and the fate of every acknowledged record. Offsets it may
not know: where an answer was lost with its broker and a later batch is acknowledged, so is what
came before.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from threading import Event, Thread
from typing import Any, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as Place

from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import Unavailable

PAUSE_S = 0.002
FLUSH_TIMEOUT_S = 60.0
READ_TIMEOUT_S = 60.0
READ_AT_ONCE = 5000
NUMBER = "number"
"""The header with the number of one of the client's records."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """One record that the brokers have promised to keep."""

    number: int
    partition: int
    acknowledged_s: float


class PlainClient:
    """Sends rows as JSON until stopped, over and over, each with a number of its own."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        rows: Sequence[dict[str, Any]],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Send `rows` to `topic`, keyed by tail number."""
        # Kafka's own defaults, but for the partitioner: Java's, which all other producers use.
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "log_level": 2,
            }
        )
        self._topic = topic
        self._rows = rows
        self._clock = clock
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="plain-client", daemon=True)
        self.acknowledged: list[Acknowledged] = []
        self.failed: list[str] = []
        self.sent = 0

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self) -> None:
        """Send no more, and wait for what was sent."""
        self.abandon()
        self._producer.flush(FLUSH_TIMEOUT_S)

    def abandon(self) -> None:
        """Send no more, and wait for nothing: there is no broker to answer."""
        self._stopping.set()
        self._thread.join()

    def acknowledgements_s(self, partition: int) -> list[float]:
        """Return when records of a partition were acknowledged, in order."""
        found = list(self.acknowledged)
        return [one.acknowledged_s for one in found if one.partition == partition]

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._send(self._rows[self.sent % len(self._rows)])
            self._producer.poll(PAUSE_S)

    def _send(self, row: dict[str, Any]) -> None:
        number = self.sent
        self._producer.produce(
            self._topic,
            json.dumps(row),
            row["tailnum"] or str(number),
            on_delivery=partial(self._answered, number),
            headers=[(NUMBER, str(number))],
        )
        self.sent += 1

    def _answered(self, number: int, error: KafkaError | None, message: Message) -> None:
        partition = message.partition()
        if error is not None or partition is None:
            self.failed.append(str(error or "acknowledged, but in no partition"))
            return
        self.acknowledged.append(Acknowledged(number, partition, self._clock.monotonic_s()))


@dataclass(frozen=True, slots=True)
class Read:
    """A record that a consumer found. The number is None for those of other producers."""

    partition: int
    offset: int
    number: int | None


def read_everything(bootstrap_servers: str, topic: str, partitions: int) -> list[Read]:
    """Read a topic from its beginning to its end, by a plain Kafka client.

    Raises:
        Unavailable: the end was not reached in time.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "demo",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 2,
        }
    )
    found: list[Read] = []
    open_ends = set(range(partitions))
    deadline_s = SYSTEM_CLOCK.monotonic_s() + READ_TIMEOUT_S
    try:
        consumer.assign([Place(topic, number, OFFSET_BEGINNING) for number in open_ends])
        while open_ends:
            if SYSTEM_CLOCK.monotonic_s() > deadline_s:
                raise Unavailable(f"the topic was not read to its end. topic={topic}")
            for message in consumer.consume(READ_AT_ONCE, 1.0):
                partition = message.partition() or 0
                error = message.error()
                if error is None:
                    found.append(Read(partition, message.offset() or 0, _number_of(message)))
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    open_ends.discard(partition)
    finally:
        consumer.close()
    return found


def _number_of(message: Message) -> int | None:
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    return next((int(value) for name, value in headers if name == NUMBER and value), None)
