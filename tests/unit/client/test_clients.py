"""Producer, consumer and admin against a broker."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

import sparklog
from sparklog.client.consumer import Consumer, Record
from sparklog.client.producer import Delivered, Producer
from sparklog.client.values import EARLIEST, LATEST, ConfigResource
from sparklog.core.errors import (
    InvalidConfig,
    InvalidRequest,
    OffsetOutOfRange,
    OutcomeUnknown,
    RecordTooLarge,
    TopicAlreadyExists,
    Unavailable,
    UnknownTopicOrPartition,
)
from sparklog.core.types import TopicPartition
from sparklog.protocol.partitioner.partitioner import partition_for_key
from tests.interop.brokers import Brokers


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with Brokers(f"memory://{uuid4()}") as brokers:
        yield brokers.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"t-{uuid4().hex[:8]}"
    with sparklog.Admin(bootstrap) as admin:
        assert admin.create_topic(name, partitions=3).partitions == 3
    return name


def read(bootstrap: str, topic: str, count: int) -> list[Record]:
    records: list[Record] = []
    with Consumer(bootstrap) as consumer:
        consumer.assign({TopicPartition(topic, n): EARLIEST for n in range(3)})
        while len(records) < count:
            records += consumer.poll()
    return records


def test_record_round_trips_through_a_broker(bootstrap: str, topic: str) -> None:
    with sparklog.Producer(bootstrap) as producer:
        delivered = producer.send(
            topic, b"value", key=b"key", headers=[("h", b"1"), ("h", None)], timestamp_ms=12345
        ).result()
    expected = TopicPartition(topic, partition_for_key(b"key", 3))
    assert delivered.topic_partition == expected
    (record,) = read(bootstrap, topic, 1)
    assert record == Record(
        expected, delivered.offset, 12345, 0, b"key", b"value", (("h", b"1"), ("h", None))
    )


def test_keys_go_to_javas_partitions(bootstrap: str, topic: str) -> None:
    keys = [f"key {n}".encode() for n in range(50)]
    with Producer(bootstrap) as producer:
        sent = [producer.send(topic, None, key=key) for key in keys]
        producer.flush()
    outcomes = [delivery.outcome for delivery in sent]
    assert [o.topic_partition.partition for o in outcomes if isinstance(o, Delivered)] == [
        partition_for_key(key, 3) for key in keys
    ]


def test_producer_waits_for_every_outcome_at_exit(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        sent = [producer.send(topic, b"x", partition=1) for _ in range(100)]
    offsets = [delivery.result().offset for delivery in sent]
    assert offsets == list(range(offsets[0], offsets[0] + 100))


def test_flush_raises_a_failure_that_no_caller_has_read(bootstrap: str, topic: str) -> None:
    producer = Producer(bootstrap)
    delivery = producer.send(topic, b"x", partition=7)
    with pytest.raises(UnknownTopicOrPartition, match=topic):
        producer.flush()
    with pytest.raises(UnknownTopicOrPartition):
        delivery.result()
    producer.flush()
    with pytest.raises(RecordTooLarge):
        producer.send(topic, b"x" * 2_000_000)


def test_producer_drops_unsent_records_after_an_exception(bootstrap: str, topic: str) -> None:
    settings = {"linger.ms": 60_000, "batch.num.messages": 1_000_000}
    producer = Producer(bootstrap, settings)
    delivery = producer.send(topic, b"x")
    producer.__exit__(KeyError, KeyError(), None)
    with pytest.raises(Unavailable, match="PURGE_QUEUE"):
        delivery.result(timeout_s=5)


def test_result_has_a_timeout(topic: str) -> None:
    nobody = Producer("127.0.0.1:1", {"message.timeout.ms": 100_000})
    with pytest.raises(OutcomeUnknown, match="look before"):
        nobody.send(topic, b"x").result(timeout_s=0.2)
    with pytest.raises(OutcomeUnknown, match="left=1"):
        nobody.flush(0.1)


def test_settings_are_checked_and_exclude_the_servers(bootstrap: str) -> None:
    with pytest.raises(InvalidConfig, match=r"no\.such"):
        Producer(bootstrap, {"no.such": 1})
    with pytest.raises(InvalidConfig, match=r"no\.such"):
        Consumer(bootstrap, settings={"no.such": 1})
    with pytest.raises(InvalidConfig, match="argument of its own"):
        Producer(bootstrap, {"bootstrap.servers": "x"})


def test_consumer_starts_at_the_assigned_offset(bootstrap: str, topic: str) -> None:
    tp = TopicPartition(topic, 0)
    with Producer(bootstrap) as producer:
        sent = [producer.send(topic, b"%d" % n, partition=0) for n in range(5)]
    with sparklog.Consumer(bootstrap) as consumer:
        consumer.assign({tp: sent[0].result().offset + 3})
        values: list[bytes | None] = []
        while len(values) < 2:
            values += [record.value for record in consumer.poll()]
        assert values == [b"3", b"4"]
        consumer.assign({tp: LATEST})
        while tp not in consumer.ends_reached:
            assert consumer.poll(timeout_s=0.2) == []
        consumer.assign({tp: 1_000_000})
        with pytest.raises(OffsetOutOfRange):
            _poll_for_ever(consumer)
        with pytest.raises(InvalidRequest, match="group"):
            consumer.subscribe([topic])


def _poll_for_ever(consumer: Consumer) -> None:
    while True:
        consumer.poll()


def test_admin_has_the_methods_of_a_log(bootstrap: str, topic: str) -> None:
    with sparklog.Admin(bootstrap) as admin:
        with pytest.raises(TopicAlreadyExists):
            admin.create_topic(topic)
        admin.alter_configs(topic, {"retention.ms": "1000"})
        assert admin.topic(topic).configs == {"retention.ms": "1000"}
        admin.alter_configs(topic, remove=["retention.ms"])
        assert admin.topics()[topic].configs == {}
        admin.add_partitions(topic, 4)
        assert admin.topic(topic).partitions == 4
        assert topic in admin.topic_names()
        assert admin.cluster_id()
        with pytest.raises(UnknownTopicOrPartition):
            admin.configs(ConfigResource.TOPIC, ["nope"])
        found = admin.offsets({TopicPartition(topic, 9): LATEST, TopicPartition(topic, 0): LATEST})
        assert isinstance(found[TopicPartition(topic, 9)], UnknownTopicOrPartition)
        assert admin.offsets({}) == {}
        admin.delete_topic(topic)
        with pytest.raises(UnknownTopicOrPartition):
            admin.topic(topic)
