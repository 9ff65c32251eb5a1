"""Kafka's log cleaner: one partition filled, its one cleaning timed by what the cleaner says.

The topic keeps everything until it is full; then it becomes compacted, so that the cleaner meets
all of it at once. One more record, with a key of its own, rolls the last segment, as the cleaner
never touches the newest. So all kept records are below that record.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.bench.common.topic_settings import alter
from tests.bench.jobs.keyed_rows import chunks
from tests.bench.jobs.plan import KeyedShape
from tests.harness.waiting import eventually
from tests.peers.kafka import KafkaCluster

SETTINGS = {
    "log.cleaner.threads": "1",
    "log.cleaner.backoff.ms": "500",
    "log.retention.ms": "-1",
}
SEGMENT_BYTES = 64 << 20
ANSWER_TIMEOUT_S = 60
CLEANING_TIMEOUT_S = 900
QUEUE_RECORDS = 1_000_000
LAST_KEY = b"the last record"

_CLEANED = re.compile(
    r"cleaned log (?P<log>\S+) \(dirty section = \[(?P<low>\d+), (?P<high>\d+)\]\)"
    r".*?processed in (?P<seconds>[\d.,]+) seconds"
    r".*?Start size: [\d.,]+ MB \((?P<before>[\d,]+) messages\)"
    r".*?End size: [\d.,]+ MB \((?P<after>[\d,]+) messages\)",
    re.DOTALL,
)


@dataclass(frozen=True)
class Cleaning:
    """The cleaner's log lines about one cleaning."""

    end_offset: int
    seconds: float
    records_before: int
    records_after: int


@dataclass(frozen=True)
class Kept:
    """The rest of a log: offsets, and a hash of key and value of each."""

    offsets: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.int64]


def cleanings(server_log: str, topic: str) -> list[Cleaning]:
    """Return what a broker's log says of a topic's only partition."""
    return [
        Cleaning(int(m["high"]), _number(m["seconds"]), int(_number(m["before"])),
                 int(_number(m["after"])))
        for m in _CLEANED.finditer(server_log)
        if m["log"].rstrip(".") == f"{topic}-0"
    ]  # fmt: skip


def clean_by_kafka(kafka: KafkaCluster, topic: str, shape: KeyedShape) -> Cleaning:
    """Fill a topic, have it cleaned once, and return what the cleaner said."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 2})
    configs = {
        "cleanup.policy": "delete",
        "segment.bytes": str(SEGMENT_BYTES),
        "min.cleanable.dirty.ratio": "0.01",
    }
    admin.create_topics([NewTopic(topic, 1, 1, config=configs)])[topic].result(ANSWER_TIMEOUT_S)
    _fill(kafka, topic, shape)
    alter(admin, topic, {"segment.ms": "1"})
    _produce_last(kafka, topic)
    alter(admin, topic, {"segment.ms": "604800000", "cleanup.policy": "compact"})
    log_file = kafka.nodes[0].log_file
    found = eventually(
        lambda: cleanings(log_file.read_text(errors="replace"), topic),
        f"{topic} cleaned by Kafka",
        CLEANING_TIMEOUT_S,
        every_s=0.5,
    )
    return found[0]


def kept_by_kafka(kafka: KafkaCluster, topic: str, end_offset: int) -> Kept:
    """Read what is left of a topic below an offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "kept",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 2,
        }
    )
    offsets: list[int] = []
    hashes: list[int] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            for message in consumer.consume(10_000, timeout=ANSWER_TIMEOUT_S):
                offset = message.offset()
                if message.error() is not None or offset is None or offset >= end_offset:
                    return Kept(np.array(offsets, np.int64), np.array(hashes, np.int64))
                offsets.append(offset)
                hashes.append(record_hash(message.key(), message.value()))
    finally:
        consumer.close()


def record_hash(key: object, value: object) -> int:
    """Return the same for the same key and value, within this process."""
    return hash((key, value))


def _fill(kafka: KafkaCluster, topic: str, shape: KeyedShape) -> None:
    failed: list[object] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "queue.buffering.max.messages": QUEUE_RECORDS,
            "linger.ms": 50,
            "batch.size": 1 << 19,
            "enable.idempotence": True,  # nothing twice, and in order: offsets must be the same
            "log_level": 2,
        }
    )
    for chunk in chunks(shape):
        for key, value, stamp in chunk.pairs():
            while True:
                try:
                    producer.produce(
                        topic, value, key, partition=0, timestamp=stamp, on_delivery=delivered
                    )
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(0)
    left = producer.flush(2 * ANSWER_TIMEOUT_S)
    assert not left, f"{left} records were not sent in time"
    assert not failed, f"{len(failed)} records failed, the first with {failed[0]}"


def _produce_last(kafka: KafkaCluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 2})
    producer.produce(topic, b"", LAST_KEY, partition=0)
    assert not producer.flush(ANSWER_TIMEOUT_S)


def _number(text: str) -> float:
    return float(text.replace(",", ""))
