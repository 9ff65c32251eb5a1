"""Clients of a real cluster, unmodified librdkafka, that write down what they see.

Producers are idempotent and never give up while the test lasts; consumers assign their partitions
themselves and fail rather than reset a position. Values are integers, each sent once.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.types import TopicPartition as Where
from sparklog.testing.history import Poll, Send, SendOutcome

QUIET = 2
"""Of librdkafka's log: it has a line for every refused connection."""
PAUSE_S = 0.01
DELIVERY_S = 120
POLL_S = 0.2
POLL_RECORDS = 500
READ_S = 120.0
STARTING_OVER = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT})
"""Errors of librdkafka while it looks for brokers; it goes on by itself."""
MOVED = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})
"""Errors that it gets where a leader has changed, and passes on."""


class Load:
    """All clients of one test."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.history: list[Send | Poll] = []
        self.complaints: list[str] = []
        self.topic = topic
        self.partitions = partitions
        self._bootstrap = bootstrap
        self._values = itertools.count(1)
        self._stop_sending = threading.Event()
        self._stop_reading = threading.Event()
        self._gave_up = False
        self._senders: list[threading.Thread] = []
        self._readers: list[threading.Thread] = []

    @property
    def acknowledged(self) -> int:
        """Return how many records were acknowledged until now."""
        sends = [one for one in list(self.history) if isinstance(one, Send)]
        return sum(one.outcome is SendOutcome.OK for one in sends)

    def create_topic(self, configs: Mapping[str, str], replicas: int = 3) -> None:
        """Create the topic, with replicas on three brokers."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        wanted = NewTopic(
            self.topic, self.partitions, replication_factor=replicas, config=dict(configs)
        )
        admin.create_topics([wanted])[self.topic].result(30)

    def create_another_topic(self, name: str) -> None:
        """Create a topic that nothing is sent to, with one replica."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        admin.create_topics([NewTopic(name, 3, replication_factor=1)])[name].result(30)

    def live_brokers(self) -> int:
        """Return how many brokers the cluster has now, as one of them says."""
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        return len(admin.describe_cluster().result(30).nodes)

    def start(self, producers: int, consumers: int) -> None:
        """Begin to send and to read."""
        for n in range(producers):
            self._senders.append(self._thread(self._send, f"p{n}"))
        for n in range(consumers):
            self._readers.append(self._thread(self._read, f"c{n}"))

    def finish(self) -> None:
        """Stop sending, wait for every acknowledgement, and read everything once more."""
        self._stop_sending.set()
        for thread in self._senders:
            thread.join(DELIVERY_S + 30)
        self._stop_reading.set()
        for thread in self._readers:
            thread.join(60)
        self._read_all()

    def give_up(self) -> None:
        """Let all clients end by themselves, also with records not acknowledged yet."""
        self._stop_sending.set()
        self._stop_reading.set()
        self._gave_up = True

    def _thread(self, work: Any, name: str) -> threading.Thread:
        def guarded() -> None:
            try:
                work(name)
            except Exception as error:  # reported by the test's thread
                self.complaints.append(f"{name} ended: {error!r}")

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        thread.start()
        return thread

    def _send(self, name: str) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "client.id": name,
                "log_level": QUIET,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": DELIVERY_S * 1000,
                "retry.backoff.ms": 50,
                "error_cb": self._told(name),
            }
        )
        numbers: dict[int, int] = defaultdict(int)
        while not self._stop_sending.is_set():
            for partition in range(self.partitions):
                self._send_one(producer, name, partition, numbers[partition])
                numbers[partition] += 1
            producer.poll(PAUSE_S)
        while len(producer) and not self._gave_up:
            producer.poll(PAUSE_S)

    def _send_one(self, producer: Producer, name: str, partition: int, number: int) -> None:
        value, invoked_s = next(self._values), SYSTEM_CLOCK.monotonic_s()
        where = Where(self.topic, partition)

        def delivered(error: KafkaError | None, message: Message) -> None:
            now_s = SYSTEM_CLOCK.monotonic_s()
            outcome = SendOutcome.UNKNOWN if error is not None else SendOutcome.OK
            offset = None if error is not None else message.offset()
            if error is not None:
                self.complaints.append(f"{name}: value={value} was not delivered: {error}")
            self.history.append(Send(name, where, value, number, invoked_s, now_s, outcome, offset))

        data = str(value).encode()
        producer.produce(self.topic, data, partition=partition, on_delivery=delivered)

    def _consumer(self, name: str) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "client.id": name,
                "log_level": QUIET,
                "group.id": name,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                "error_cb": self._told(name),
            }
        )
        consumer.assign([TopicPartition(self.topic, n, 0) for n in range(self.partitions)])
        return consumer

    def _read(self, name: str) -> None:
        consumer = self._consumer(name)
        while not self._stop_reading.is_set():
            self._take(name, consumer, final=False)
        consumer.close()

    def _read_all(self) -> None:
        consumer = self._consumer("final")
        wheres = [TopicPartition(self.topic, n) for n in range(self.partitions)]
        deadline = SYSTEM_CLOCK.monotonic_s() + READ_S
        ends = [_end_of(consumer, where, deadline) for where in wheres]
        while any(p.offset < end for p, end in zip(consumer.position(wheres), ends, strict=True)):
            self._take("final", consumer, final=True)
            if SYSTEM_CLOCK.monotonic_s() > deadline:
                self.complaints.append(f"the final read is stuck at {consumer.position(wheres)}")
                break
        consumer.close()

    def _take(self, name: str, consumer: Consumer, *, final: bool) -> None:
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        messages: list[Any] = consumer.consume(POLL_RECORDS, POLL_S)
        for message in messages:
            error = message.error()
            if error is not None:
                if not error.retriable() and error.code() not in STARTING_OVER:
                    self.complaints.append(f"{name}: {error}")
                continue
            found[message.partition()].append((message.offset(), int(message.value())))
        now_s = SYSTEM_CLOCK.monotonic_s()
        for partition, records in found.items():
            where = Where(self.topic, partition)
            self.history.append(Poll(name, where, records[0][0], tuple(records), now_s, final))

    def _told(self, name: str) -> Any:
        def told(error: KafkaError) -> None:
            if error.fatal():
                self.complaints.append(f"{name}: fatal: {error}")

        return told


def _end_of(consumer: Consumer, where: TopicPartition, deadline_s: float) -> int:
    """Return the end of a partition, as soon as its leader serves."""
    while True:
        try:
            end: int = consumer.get_watermark_offsets(where, 30)[1]
            return end
        except KafkaException as error:
            passes = error.args[0].retriable() or error.args[0].code() in MOVED
            if not passes or SYSTEM_CLOCK.monotonic_s() > deadline_s:
                raise
            SYSTEM_CLOCK.sleep_s(POLL_S)  # no event shows a new leader
