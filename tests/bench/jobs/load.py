"""A paced producer and a consumer on one topic, and how long records wait between them."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.bench.common.side import ANSWER_TIMEOUT_S
from tests.harness.waiting import eventually

TOGETHER = 10
"""Records sent in one go, before the pace is looked at."""
POLL_S = 0.001
NEW = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError._UNKNOWN_PARTITION})
"""Errors of brokers and librdkafka for a topic that they do not know yet."""
_SENT = struct.Struct(">d")


Waits = list[tuple[float, float]]
"""Of every record: when it was sent (`time.perf_counter`), and milliseconds from then on."""


@dataclass
class Latencies:
    """Latency of every record, in milliseconds."""

    produced: Waits = field(default_factory=list)
    """From send to acknowledgement."""
    received: Waits = field(default_factory=list)
    """From send to receipt."""

    def between(self, start_s: float, end_s: float) -> Latencies:
        """Return those of the records that were sent in a stretch of time."""
        return Latencies(
            [wait for wait in self.produced if start_s <= wait[0] < end_s],
            [wait for wait in self.received if start_s <= wait[0] < end_s],
        )


def p99(waits: Waits) -> float:
    """Return the 99th percentile, in milliseconds."""
    return float(np.percentile([ms for _, ms in waits], 99))


def loaded(
    bootstrap: str,
    topic: str,
    records_per_s: int,
    size_bytes: int,
    goes_on: Callable[[float], bool],
) -> Latencies:
    """Produce at a steady rate, and consume, as long as `goes_on(seconds so far)` says so."""
    found, over, begun = Latencies(), Event(), Event()
    consumer = Thread(target=_consume, args=(bootstrap, topic, found, begun, over), daemon=True)
    consumer.start()
    assert begun.wait(ANSWER_TIMEOUT_S), "the consumer does not begin"
    try:
        _produce(bootstrap, topic, records_per_s, size_bytes, goes_on, found)
        eventually(
            lambda: len(found.received) >= len(found.produced),
            "every record is at the consumer",
            ANSWER_TIMEOUT_S,
        )
    finally:
        over.set()
        consumer.join()
    return found


def _produce(
    bootstrap: str,
    topic: str,
    records_per_s: int,
    size_bytes: int,
    goes_on: Callable[[float], bool],
    found: Latencies,
) -> None:
    failed: list[object] = []

    def delivered(error: object, message: Any) -> None:
        if error is not None:
            failed.append(error)
        else:
            sent = _SENT.unpack_from(message.value())[0]
            found.produced.append((sent, message.latency() * 1000))

    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
    filler = bytes(size_bytes - _SENT.size)
    start = time.perf_counter()
    sent = 0
    while goes_on(time.perf_counter() - start):
        while sent > (time.perf_counter() - start) * records_per_s:
            producer.poll(POLL_S)
        for _ in range(TOGETHER):
            producer.produce(
                topic, _SENT.pack(time.perf_counter()) + filler, partition=0, on_delivery=delivered
            )
        sent += TOGETHER
        producer.poll(0)
    left = producer.flush(ANSWER_TIMEOUT_S)
    assert not left, f"{left} records were not acknowledged in time"
    assert not failed, f"{len(failed)} records failed, the first with {failed[0]}"


def _end_of(consumer: Consumer, topic: str) -> TopicPartition | None:
    """Return the end of a topic; None while its leader does not know it yet."""
    place = TopicPartition(topic, 0)
    try:
        place.offset = consumer.get_watermark_offsets(place, ANSWER_TIMEOUT_S)[1]
    except KafkaException as error:
        if error.args[0].code() not in NEW:
            raise
        return None
    return place


def _consume(bootstrap: str, topic: str, found: Latencies, begun: Event, over: Event) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "load", "log_level": 2})
    try:
        place = eventually(lambda: _end_of(consumer, topic), "the leader says where it ends")
        consumer.assign([place])
        begun.set()
        while not over.is_set():
            for message in consumer.consume(1000, timeout=0.05):
                value = message.value()
                if message.error() is None and value is not None:
                    sent = _SENT.unpack_from(value)[0]
                    found.received.append((sent, (time.perf_counter() - sent) * 1000))
    finally:
        consumer.close()
