"""Transactions of unmodified clients: librdkafka, aiokafka, kafka-python; and a broker killed."""

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
from aiokafka.errors import ProducerFenced  # type: ignore[import-untyped]
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.harness.broker_processes import BrokerProcesses
from tests.interop.brokers import Brokers

rd: Any = confluent_kafka.admin
"""librdkafka's admin API, which ships no types."""
DEADLINE_S = 120.0
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers(f"memory://{uuid4()}", count=2, settings=SETTINGS) as cluster:
        yield cluster


def made(bootstrap: str, partitions: int = 2) -> str:
    """Make a topic."""
    name = f"t-{uuid4().hex[:8]}"
    admin = rd.AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([rd.NewTopic(name, partitions, 2)]).values():
        future.result(DEADLINE_S)
    return name


@pytest.fixture
def topic(brokers: Brokers) -> str:
    return made(brokers.bootstrap)


def transactional(bootstrap: str, name: str, **settings: Any) -> Any:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "linger.ms": 0,
            **{k.replace("_", "."): v for k, v in settings.items()},
        }
    )
    producer.init_transactions(DEADLINE_S)
    return producer


def read(
    bootstrap: str, topic: str, partitions: int = 2, isolation: str = "read_committed"
) -> list[str]:
    """Return the values of a topic up to its end, in the order of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"g-{uuid4().hex}",
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    values: list[str] = []
    ended: set[int] = set()
    deadline = time.monotonic() + DEADLINE_S
    while len(ended) < partitions:
        assert time.monotonic() < deadline, (values, ended)
        message = consumer.poll(0.2)
        if message is None:
            continue
        failed = message.error()
        if failed is None:
            value = message.value()
            assert isinstance(value, bytes)
            values.append(value.decode())
        elif failed.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            ended.add(message.partition() or 0)
        else:
            raise KafkaException(failed)
    consumer.close()
    return values


def write(producer: Any, topic: str, *values: str, partitions: int = 2) -> None:
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
    assert producer.flush(DEADLINE_S) == 0


def test_librdkafka_commits_and_aborts(brokers: Brokers, topic: str) -> None:
    producer = transactional(brokers.bootstrap, f"tx-{uuid4()}")
    for number in range(6):
        producer.begin_transaction()
        write(producer, topic, f"{number}-a", f"{number}-b", f"{number}-c")
        if number % 2:
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)
    committed = [f"{n}-{c}" for n in (0, 2, 4) for c in "abc"]
    assert sorted(read(brokers.bootstrap, topic)) == committed
    assert len(read(brokers.bootstrap, topic, isolation="read_uncommitted")) == 18


def test_librdkafka_is_fenced_by_a_second_producer(brokers: Brokers, topic: str) -> None:
    name = f"tx-{uuid4()}"
    first = transactional(brokers.bootstrap, name)
    first.begin_transaction()
    write(first, topic, "first")
    second = transactional(brokers.bootstrap, name)
    with pytest.raises(KafkaException) as failed:
        first.commit_transaction(DEADLINE_S)
    error = failed.value.args[0]
    assert error.fatal()
    assert error.code() == confluent_kafka.KafkaError._FENCED
    second.begin_transaction()
    write(second, topic, "second")
    second.commit_transaction(DEADLINE_S)
    assert read(brokers.bootstrap, topic) == ["second"]


def test_librdkafka_moves_records_and_offsets_together(brokers: Brokers) -> None:
    source, target = made(brokers.bootstrap), made(brokers.bootstrap)
    plain = Producer({"bootstrap.servers": brokers.bootstrap})
    write(plain, source, *map(str, range(20)))
    group = f"g-{uuid4()}"
    consumer = Consumer(
        {
            "bootstrap.servers": brokers.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([source])
    producer = transactional(brokers.bootstrap, f"tx-{uuid4()}")
    moved = 0
    attempt = 0
    deadline = time.monotonic() + DEADLINE_S
    while moved < 20:
        assert time.monotonic() < deadline
        messages = consumer.consume(5, 0.5)
        if not messages:
            continue
        attempt += 1
        before = consumer.committed(consumer.assignment(), DEADLINE_S)
        producer.begin_transaction()
        write(producer, target, *((m.value() or b"").decode() for m in messages))
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()),
            consumer.consumer_group_metadata(),
            DEADLINE_S,
        )
        if attempt % 2:
            producer.abort_transaction(DEADLINE_S)
            assert consumer.committed(consumer.assignment(), DEADLINE_S) == before
            for where in before:
                consumer.seek(
                    where if where.offset >= 0 else TopicPartition(source, where.partition, 0)
                )
        else:
            producer.commit_transaction(DEADLINE_S)
            moved += len(messages)
    consumer.close()
    assert sorted(map(int, read(brokers.bootstrap, target))) == list(range(20))


def test_aiokafka_commits_aborts_and_is_fenced(brokers: Brokers, topic: str) -> None:
    name = f"tx-{uuid4()}"

    async def story() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=brokers.bootstrap, transactional_id=name
        )
        await producer.start()
        try:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"kept", partition=0)
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"dropped", partition=0)
            await producer.abort_transaction()
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"replaced", partition=0)
            second = aiokafka.AIOKafkaProducer(
                bootstrap_servers=brokers.bootstrap, transactional_id=name
            )
            await second.start()
            with pytest.raises(ProducerFenced):
                await producer.commit_transaction()
            async with second.transaction():
                await second.send_and_wait(topic, b"second", partition=0)
            await second.stop()
        finally:
            await producer.stop()

    asyncio.run(asyncio.wait_for(story(), DEADLINE_S))
    assert read(brokers.bootstrap, topic) == ["kept", "second"]


def test_kafka_python_commits_and_aborts(brokers: Brokers, topic: str) -> None:
    program = Path(__file__).with_name("kafka_python_transactions.py")
    done = subprocess.run(
        [sys.executable, str(program), brokers.bootstrap, topic],
        capture_output=True,
        text=True,
        timeout=4 * DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"committed": ["kept", "again"]}
    assert read(brokers.bootstrap, topic) == ["kept", "again"]


def test_a_transaction_is_finished_after_its_coordinator_was_killed(tmp_path: Path) -> None:
    with BrokerProcesses((tmp_path / "log").as_uri(), tmp_path, SETTINGS) as brokers:
        topic = made(brokers.bootstrap, 3)
        name = f"tx-{uuid4()}"
        producer = transactional(brokers.bootstrap, name, transaction_timeout_ms=60_000)
        admin = rd.AdminClient({"bootstrap.servers": brokers.bootstrap})
        for number in range(3):
            producer.begin_transaction()
            write(producer, topic, *(f"{number}-{p}-before" for p in range(3)), partitions=3)
            if number == 1:
                leaders = admin.list_topics(timeout=DEADLINE_S).topics["__transaction_state"]
                brokers.kill(next(iter(leaders.partitions.values())).leader)
            write(producer, topic, *(f"{number}-{p}-after" for p in range(3)), partitions=3)
            if number == 2:
                producer.abort_transaction(DEADLINE_S)
            else:
                producer.commit_transaction(DEADLINE_S)
        wanted = sorted(
            f"{n}-{p}-{when}" for n in (0, 1) for p in range(3) for when in ("before", "after")
        )
        assert sorted(read(brokers.bootstrap, topic, 3)) == wanted
