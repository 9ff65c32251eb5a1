"""Tests of the application against brokers in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from billing import BILLS, ORDERS, Billing
from confluent_kafka import KafkaError, Message, Producer

from sparklog.testing import AsyncSparklogCluster, SparklogCluster


@pytest.fixture
def billing(sparklog_cluster: SparklogCluster) -> Iterator[Billing]:
    sparklog_cluster.topic(ORDERS, partitions=1)
    sparklog_cluster.topic(BILLS, partitions=1)
    application = Billing(sparklog_cluster.bootstrap_servers)
    yield application
    application.close()


def values(cluster: SparklogCluster, topic: str, count: int) -> list[bytes | None]:
    return [record.value for record in cluster.consume(topic, count)]


def test_each_order_is_billed(sparklog_cluster: SparklogCluster, billing: Billing) -> None:
    sparklog_cluster.produce(ORDERS, [b"ann:100", b"bob:70", b"ann:5"])
    billing.bill(3)
    assert values(sparklog_cluster, BILLS, 3) == [b"ann:100", b"bob:70", b"ann:105"]


@pytest.mark.sparklog(brokers=3)
def test_no_bill_is_lost_or_repeated_when_a_broker_dies(
    sparklog_cluster: SparklogCluster, billing: Billing
) -> None:
    sparklog_cluster.produce(ORDERS, [b"ann:1"] * 6)
    billing.bill(3)
    sparklog_cluster.kill(sparklog_cluster.leader(BILLS))
    billing.bill(3)
    bills = [b"ann:%d" % sum_ for sum_ in range(1, 7)]
    assert values(sparklog_cluster, BILLS, 6) == bills


def test_bills_wait_for_a_store_that_fails(
    sparklog_cluster: SparklogCluster, billing: Billing
) -> None:
    sparklog_cluster.produce(ORDERS, [b"ann:1"])
    with sparklog_cluster.store.fail("put", prefix="wal/", times=2):
        billing.bill(1)
    assert len(sparklog_cluster.store.injected) == 2
    assert values(sparklog_cluster, BILLS, 1) == [b"ann:1"]


@pytest.mark.sparklog(config={"auto.create.topics.enable": "false"})
def test_marker_sets_the_brokers_configuration(sparklog_cluster: SparklogCluster) -> None:
    producer = Producer(
        {"bootstrap.servers": sparklog_cluster.bootstrap_servers, "message.timeout.ms": 1000}
    )
    errors: list[KafkaError | None] = []

    def note(error: KafkaError | None, message: Message) -> None:
        errors.append(error)

    producer.produce("unknown", b"x", on_delivery=note)
    producer.flush(20)
    assert [error and error.name() for error in errors] == ["_MSG_TIMED_OUT"]


@pytest.mark.sparklog(brokers=2)
def test_coroutines_await_the_cluster(async_sparklog_cluster: AsyncSparklogCluster) -> None:
    async def story() -> list[bytes | None]:
        cluster = async_sparklog_cluster
        await cluster.topic("visits")
        await cluster.kill(await cluster.leader("visits"))
        await cluster.produce("visits", [b"a visit"])
        return [record.value for record in await cluster.consume("visits", 1)]

    assert asyncio.run(story()) == [b"a visit"]
