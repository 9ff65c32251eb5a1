"""A consumer group that reads all the while: plain Kafka consumers that share a topic.

Its members keep what they have read. So the demo can check afterwards whether the group as a whole
missed a record while brokers and its own coordinator were killed.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock, Thread

from confluent_kafka import Consumer, KafkaException

from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.errors import Unavailable

GROUP = "boards"
MEMBERS = 2
READ_AT_ONCE = 1000
POLL_S = 0.1
LOOK_S = 0.1

Place = tuple[int, int]
"""A partition and an offset."""


class ReadingGroup:
    """Members in threads; they commit as Kafka's consumers do by default, and at their end."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        """Have a group for `topic`; no member joins before `start`."""
        self._servers = bootstrap_servers
        self._topic = topic
        self._stopping = Event()
        self._lock = Lock()
        self._read: set[Place] = set()
        self._threads = [
            Thread(target=self._run, name=f"{GROUP}-{number}", daemon=True)
            for number in range(MEMBERS)
        ]
        self.reads = 0
        """Counts a record each time that one is read."""
        self.failed: list[str] = []

    def start(self) -> None:
        """Let the members join and read from the beginning."""
        for thread in self._threads:
            thread.start()

    def await_reads(self, count: int, timeout_s: float) -> None:
        """Wait until the group has read that many records.

        Raises:
            Unavailable: not in time.
        """
        self._wait(lambda: self.reads >= count, timeout_s)

    def await_all(self, places: set[Place], timeout_s: float) -> None:
        """Wait until the group has read these records.

        Raises:
            Unavailable: not in time.
        """
        self._wait(lambda: not self.missing(places), timeout_s)

    def missing(self, places: set[Place]) -> set[Place]:
        """Return what the group has not read of some records."""
        with self._lock:
            return places - self._read

    def stop(self) -> None:
        """Let the members commit and leave."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _wait(self, holds: Callable[[], bool], timeout_s: float) -> None:
        deadline_s = SYSTEM_CLOCK.monotonic_s() + timeout_s
        while not holds():
            if SYSTEM_CLOCK.monotonic_s() > deadline_s:
                raise Unavailable(
                    f"a consumer group does not read on. group={GROUP} reads={self.reads} "
                    f"failed={self.failed}"
                )
            SYSTEM_CLOCK.sleep_s(LOOK_S)

    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "log_level": 2,
            }
        )
        try:
            consumer.subscribe([self._topic])
            while not self._stopping.is_set():
                self._take(consumer)
        except KafkaException as error:
            self.failed.append(str(error))
        finally:
            consumer.close()

    def _take(self, consumer: Consumer) -> None:
        found: list[Place] = []
        for message in consumer.consume(READ_AT_ONCE, POLL_S):
            partition, offset = message.partition(), message.offset()
            if message.error() is None and partition is not None and offset is not None:
                found.append((partition, offset))
        with self._lock:
            self._read.update(found)
            self.reads += len(found)
