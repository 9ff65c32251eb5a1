"""Unmodified clients against real brokers: produce, read, administrate."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import aiokafka  # type: ignore[import-untyped]
import confluent_kafka
import confluent_kafka.admin
import pytest
from aiokafka.admin import AIOKafkaAdminClient  # type: ignore[import-untyped]
from aiokafka.admin import NewTopic as AioNewTopic
from confluent_kafka import TopicPartition

from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers

rd: Any = confluent_kafka.admin
"""librdkafka's admin API, which ships no types."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 200
DEADLINE_S = 100.0


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers(f"memory://{uuid4()}", count=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(brokers: Brokers) -> Any:
    return rd.AdminClient({"bootstrap.servers": brokers.bootstrap})


@pytest.fixture
def topic(admin: Any) -> str:
    name = f"t-{uuid4().hex[:8]}"
    done(admin.create_topics([rd.NewTopic(name, 2, 2)]))
    return name


def done(futures: dict[Any, Any]) -> list[Any]:
    """Return the results of an admin call, or raise its first error."""
    return [future.result(DEADLINE_S) for future in futures.values()]


def read_all(
    brokers: Brokers, topic: str, count: int, partitions: int = 2
) -> list[tuple[Any, ...]]:
    """Return (partition, offset, key, value) of `count` records, read by librdkafka."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": brokers.bootstrap,
            "group.id": "unused",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    found: list[tuple[Any, ...]] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(count, 0.5):
            assert message.error() is None, message.error()
            found.append((message.partition(), message.offset(), message.key(), message.value()))
    consumer.close()
    return found


def test_records_without_a_key_do_not_take_the_blame_of_the_others(
    brokers: Brokers, admin: Any
) -> None:
    """A compacted topic refuses a batch for some records; a producer learns which."""
    name = f"t-{uuid4().hex[:8]}"
    done(admin.create_topics([rd.NewTopic(name, 1, 1, config={"cleanup.policy": "compact"})]))
    told: dict[int, str] = {}
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": brokers.bootstrap, "linger.ms": 200, "compression.type": "zstd"}
    )

    def delivered(error: Any, message: Any) -> None:
        told[int(message.value())] = error.name()

    for number in range(10):
        key = None if number % 3 == 0 else b"key"
        producer.produce(name, b"%d" % number, key=key, on_delivery=delivered)
    assert producer.flush(DEADLINE_S) == 0
    guilty = {number for number, error in told.items() if error == "INVALID_RECORD"}
    innocent = {n for n, error in told.items() if error == "_INVALID_DIFFERENT_RECORD"}
    assert (guilty, innocent) == ({0, 3, 6, 9}, {1, 2, 4, 5, 7, 8})


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [True, False])
def test_librdkafka_produces_with_every_codec(
    brokers: Brokers, topic: str, codec: str, idempotent: bool
) -> None:
    failed: list[Any] = []
    offsets: dict[bytes, tuple[int, int]] = {}

    def delivered(error: Any, message: Any) -> None:
        failed.append(error) if error else offsets.update(
            {message.value(): (message.partition(), message.offset())}
        )

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": brokers.bootstrap,
            "compression.type": codec,
            "enable.idempotence": idempotent,
            "linger.ms": 5,
        }
    )
    for number in range(RECORDS):
        producer.produce(
            topic, f"value {number}", key="k", partition=number % 2, on_delivery=delivered
        )
    assert producer.flush(DEADLINE_S) == 0
    assert failed == []
    assert len(offsets) == RECORDS
    found = read_all(brokers, topic, RECORDS)
    assert {value: (p, o) for p, o, _, value in found} == offsets
    for partition in range(2):
        values = [v for p, _, _, v in found if p == partition]
        expected = [f"value {n}".encode() for n in range(RECORDS) if n % 2 == partition]
        assert values == expected


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_librdkafka_produces_with_every_acks(brokers: Brokers, topic: str, acks: str) -> None:
    # Without acknowledgements the producer gets no error from a leader that does not lead yet.
    first = confluent_kafka.Producer({"bootstrap.servers": brokers.bootstrap})
    first.produce(topic, "0", partition=0)
    assert first.flush(DEADLINE_S) == 0
    producer = confluent_kafka.Producer({"bootstrap.servers": brokers.bootstrap, "acks": acks})
    for number in range(1, RECORDS):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(DEADLINE_S) == 0
    found = read_all(brokers, topic, RECORDS)
    assert [value for *_, value in found] == [str(n).encode() for n in range(RECORDS)]


def test_librdkafka_idempotent_producer_survives_a_recreated_topic(
    brokers: Brokers, admin: Any, topic: str
) -> None:
    """It counts on from where it was: Kafka takes that as well."""
    settings = {"bootstrap.servers": brokers.bootstrap, "enable.idempotence": True}
    producer = confluent_kafka.Producer(settings)
    told: list[Any] = []

    def send(value: str) -> None:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: told.append(error))
        assert producer.flush(DEADLINE_S) == 0

    for n in range(5):
        send(f"old {n}")
    done(admin.delete_topics([topic]))

    done(admin.create_topics([rd.NewTopic(topic, 2, 2)]))
    for n in range(5):
        send(f"new {n}")
    assert told == [None] * 10
    values = [value for *_, value in read_all(brokers, topic, 5, partitions=1)]
    assert values == [f"new {n}".encode() for n in range(5)]


def test_librdkafka_reads_the_first_record_of_a_topic_at_offset_0(
    brokers: Brokers, topic: str
) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": brokers.bootstrap, "group.id": "unused"}
    )
    place = TopicPartition(topic, 0)
    assert consumer.get_watermark_offsets(place, DEADLINE_S) == (0, 0)
    offsets: list[Any] = []
    for _ in range(2):
        producer = confluent_kafka.Producer({"bootstrap.servers": brokers.bootstrap})
        producer.produce(
            topic, b"x", partition=0, on_delivery=lambda _, m: offsets.append(m.offset())
        )
        assert producer.flush(DEADLINE_S) == 0
    assert offsets == [0, 1]
    assert consumer.get_watermark_offsets(place, DEADLINE_S) == (0, 2)
    consumer.close()


def test_librdkafka_finds_offsets_and_times(brokers: Brokers, admin: Any, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": brokers.bootstrap})
    now_ms = int(time.time() * 1000)
    for number in range(10):
        producer.produce(topic, str(number), partition=0, timestamp=now_ms + number * 1000)
    assert producer.flush(DEADLINE_S) == 0
    partition = TopicPartition(topic, 0)

    def offset(spec: Any) -> int:
        (result,) = done(admin.list_offsets({partition: spec}))
        return int(result.offset)

    first = offset(rd.OffsetSpec.earliest())
    assert offset(rd.OffsetSpec.latest()) - offset(rd.OffsetSpec.for_timestamp(now_ms)) == 10
    assert offset(rd.OffsetSpec.for_timestamp(now_ms + 4500)) == offset(rd.OffsetSpec.latest()) - 5
    assert offset(rd.OffsetSpec.max_timestamp()) == offset(rd.OffsetSpec.latest()) - 1
    until = TopicPartition(topic, 0, offset(rd.OffsetSpec.latest()) - 3)
    (deleted,) = done(admin.delete_records([until]))
    assert deleted.low_watermark == offset(rd.OffsetSpec.earliest()) == until.offset > first


def test_librdkafka_administrates(brokers: Brokers, admin: Any, topic: str) -> None:
    done(admin.create_partitions([rd.NewPartitions(topic, 3)]))
    resource = rd.ConfigResource(
        rd.ResourceType.TOPIC,
        topic,
        incremental_configs=[
            rd.ConfigEntry("retention.ms", "1234", incremental_operation=rd.AlterConfigOpType.SET)
        ],
    )
    done(admin.incremental_alter_configs([resource]))
    (configs,) = done(admin.describe_configs([rd.ConfigResource(rd.ResourceType.TOPIC, topic)]))
    assert configs["retention.ms"].value == "1234"
    assert not configs["retention.ms"].is_default
    (broker,) = done(admin.describe_configs([rd.ConfigResource(rd.ResourceType.BROKER, "1")]))
    assert broker["node.id"].value == "1"

    (described,) = done(admin.describe_topics(confluent_kafka.TopicCollection([topic])))
    assert [p.id for p in described.partitions] == [0, 1, 2]
    assert all(len(p.replicas) == 2 for p in described.partitions)
    cluster = admin.describe_cluster().result(DEADLINE_S)
    assert sorted(n.id for n in cluster.nodes) == [1, 2]
    assert cluster.cluster_id

    with pytest.raises(confluent_kafka.KafkaException) as refused:
        done(admin.create_topics([rd.NewTopic(topic, 1)]))
    assert refused.value.args[0].code() == confluent_kafka.KafkaError.TOPIC_ALREADY_EXISTS
    done(admin.delete_topics([topic]))

    def listed() -> bool:
        return topic in admin.list_topics(timeout=DEADLINE_S).topics

    eventually(lambda: not listed(), "a deleted topic is no longer listed", DEADLINE_S)


def test_kafka_python_produces_reads_and_administrates(brokers: Brokers) -> None:
    client = Path(__file__).with_name("kafka_python_client.py")
    answer = subprocess.run(
        [sys.executable, str(client), brokers.bootstrap, f"pure-{uuid4().hex[:8]}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=3 * DEADLINE_S,
    )
    assert answer.returncode == 0, answer.stderr
    seen = json.loads(answer.stdout)
    codecs = (None, "gzip")
    assert seen["values"] == [f"{codec} {n}" for codec in codecs for n in range(RECORDS)]
    offsets = [offset for written in seen["offsets"] for offset in written]
    assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))
    assert (seen["listed"], seen["listed_after"]) == (True, False)


def test_aiokafka_produces_and_reads(brokers: Brokers) -> None:
    name = f"aio-{uuid4().hex[:8]}"

    async def story() -> list[bytes]:
        admin = AIOKafkaAdminClient(bootstrap_servers=brokers.bootstrap)
        await admin.start()
        await admin.create_topics([AioNewTopic(name, 1, 1)])
        await admin.close()
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=brokers.bootstrap, enable_idempotence=True, compression_type="gzip"
        )
        await producer.start()
        try:
            sent = [await producer.send(name, str(n).encode()) for n in range(RECORDS)]
            await asyncio.gather(*sent)
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=brokers.bootstrap, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition(name, 0)])
            return [(await anext(consumer)).value for _ in range(RECORDS)]
        finally:
            await consumer.stop()

    assert asyncio.run(asyncio.wait_for(story(), 2 * DEADLINE_S)) == [
        str(n).encode() for n in range(RECORDS)
    ]


def test_a_topic_is_made_by_writing_to_it(brokers: Brokers) -> None:
    name = f"auto-{uuid4().hex[:8]}"
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": brokers.bootstrap, "allow.auto.create.topics": True}
    )
    producer.produce(name, b"first")
    assert producer.flush(DEADLINE_S) == 0
    assert [v for *_, v in read_all(brokers, name, 1, partitions=1)] == [b"first"]
