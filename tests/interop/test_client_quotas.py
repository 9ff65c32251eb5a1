"""Clients' quotas: Kafka's own tool sets them in the same words as in Kafka, and clients wait."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from uuid import uuid4

import confluent_kafka as ck
import pytest

from sparklog.client.admin import Admin
from sparklog.core.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, entity_of
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers
from tests.peers.kafka import KafkaCluster
from tests.peers.kafka_tools import KafkaTools, ToolFailed

CONFIGS = "ConfigCommand"
ACLS = "AclCommand"
RATE = 200_000
RECORD = b"x" * 10_000
RECORDS = 80
WAIT_S = 120.0


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    # One second's worth may be used at once, so that tests need not wait for ten.
    with Brokers(f"memory://{uuid4()}", settings={"quota.window.num": "2"}) as cluster:
        yield cluster


def test_kafkas_tool_prints_the_same_for_both(brokers: Brokers, kafka: KafkaCluster) -> None:
    def conversation(tool: KafkaTools) -> list[list[str]]:
        rates = "producer_byte_rate=1024,consumer_byte_rate=2048"
        one = ("--entity-type", "clients", "--entity-name", "a")
        default = ("--entity-type", "clients", "--entity-default")
        both = ("--entity-type", "users", "--entity-name", "u", *one)
        return [
            tool(CONFIGS, "--alter", *one, "--add-config", rates),
            tool(CONFIGS, "--alter", *default, "--add-config", "consumer_byte_rate=4096"),
            tool(CONFIGS, "--alter", *both, "--add-config", "producer_byte_rate=512"),
            tool(CONFIGS, "--describe", *one),
            tool(CONFIGS, "--describe", *both),
            tool(CONFIGS, "--describe", "--entity-type", "users"),
            tool(CONFIGS, "--describe", "--entity-type", "users", "--entity-name", "nobody"),
            tool(CONFIGS, "--describe", "--entity-type", "client-metrics"),
            sorted(tool(CONFIGS, "--describe", "--entity-type", "clients")),
            tool(CONFIGS, "--alter", *both, "--delete-config", "producer_byte_rate"),
            tool(CONFIGS, "--alter", *default, "--delete-config", "consumer_byte_rate"),
            tool(CONFIGS, "--alter", *one, "--delete-config", "producer_byte_rate"),
            tool(CONFIGS, "--describe", *one),
        ]

    told = conversation(KafkaTools(brokers.bootstrap))
    assert told == conversation(KafkaTools(kafka.bootstrap))
    assert any("producer_byte_rate=1024.0" in line for line in told[3])
    with Admin(brokers.bootstrap) as ours, Admin(kafka.bootstrap) as theirs:
        left = {entity_of({"client-id": "a"}): {CONSUMER_BYTE_RATE: 2048.0}}
        assert ours.client_quotas() == theirs.client_quotas() == left
        for admin in (ours, theirs):
            admin.alter_client_quotas({"client-id": "a"}, {CONSUMER_BYTE_RATE: None})
        # Each broker describes its own image of the metadata log, here as in Kafka.
        eventually(lambda: not ours.client_quotas() and not theirs.client_quotas(), "no quota")


def test_kafkas_tool_gets_kafkas_error_without_acls(brokers: Brokers, kafka: KafkaCluster) -> None:
    for bootstrap in (brokers.bootstrap, kafka.bootstrap):
        with pytest.raises(ToolFailed, match="SecurityDisabledException"):
            KafkaTools(bootstrap)(ACLS, "--list")
        with pytest.raises(ToolFailed, match="SecurityDisabledException"):
            KafkaTools(bootstrap)(
                ACLS, "--add", "--allow-principal", "User:u", "--operation", "Read", "--topic", "t"
            )


def test_producer_and_consumer_reach_exactly_their_quotas(brokers: Brokers) -> None:
    topic, name = f"t-{uuid4().hex[:8]}", f"c-{uuid4().hex[:8]}"
    throttled: list[float] = []
    client = {
        "bootstrap.servers": brokers.bootstrap,
        "client.id": name,
        "throttle_cb": lambda event: throttled.append(event.throttle_time),
    }
    least_s = (RECORDS * len(RECORD) - RATE) / RATE
    with Admin(brokers.bootstrap) as admin:
        admin.create_topic(topic)
        admin.alter_client_quotas(
            {"client-id": name}, {PRODUCER_BYTE_RATE: RATE, CONSUMER_BYTE_RATE: RATE}
        )
    producer = ck.Producer({**client, "linger.ms": 0, "batch.size": 2 * len(RECORD)})
    began_s = time.monotonic()
    for _ in range(RECORDS):
        producer.produce(topic, RECORD)
    assert producer.flush(WAIT_S) == 0
    # All concurrent requests get an answer at once; the next request waits for their cost.
    producer.produce(topic, RECORD)
    assert producer.flush(WAIT_S) == 0
    assert time.monotonic() - began_s >= least_s * 0.8
    assert throttled

    throttled.clear()
    consumer = ck.Consumer({**client, "group.id": name, "auto.offset.reset": "earliest",
                            "fetch.message.max.bytes": 2 * len(RECORD)})  # fmt: skip
    consumer.assign([ck.TopicPartition(topic, 0, ck.OFFSET_BEGINNING)])
    began_s, read = time.monotonic(), 0
    while read < RECORDS:
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert message.error() is None
        read += 1
    assert time.monotonic() - began_s >= least_s * 0.8
    consumer.poll(0)
    consumer.close()
    assert throttled


def test_javas_producer_waits_as_well(brokers: Brokers) -> None:
    tool, topic, name = (
        KafkaTools(brokers.bootstrap),
        f"t-{uuid4().hex[:8]}",
        f"j-{uuid4().hex[:8]}",
    )
    with Admin(brokers.bootstrap) as admin:
        admin.create_topic(topic)
        admin.alter_client_quotas({"client-id": name}, {PRODUCER_BYTE_RATE: RATE})
    done = tool(
        "ProducerPerformance", "--topic", topic, "--num-records", str(RECORDS),
        "--record-size", str(len(RECORD)), "--throughput", "-1", "--print-metrics",
        "--command-property", f"client.id={name}",
    )  # fmt: skip
    (most_ms,) = [
        float(line.rsplit(":", 1)[1])
        for line in done
        if re.match(r"producer-metrics:produce-throttle-time-max:", line)
    ]
    assert most_ms > 0
