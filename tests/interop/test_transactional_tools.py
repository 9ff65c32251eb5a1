"""Kafka's Java clients and its transactions tool against brokers: protocol version 2."""

from __future__ import annotations

import json
from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from tests.interop.brokers import Brokers
from tests.interop.test_transactions import SETTINGS, made, read, transactional, write
from tests.peers.kafka_tools import KafkaTools, run_tool

RECORDS = 300


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers(f"memory://{uuid4()}", count=2, settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tool(brokers: Brokers) -> KafkaTools:
    return KafkaTools(brokers.bootstrap)


def test_the_message_copier_copies_each_record_once(brokers: Brokers, tool: KafkaTools) -> None:
    source, target = made(brokers.bootstrap), made(brokers.bootstrap)
    plain = Producer({"bootstrap.servers": brokers.bootstrap})
    write(plain, source, *map(str, range(RECORDS)), partitions=1)
    name = f"copier-{uuid4()}"
    copied = run_tool(
        "TransactionalMessageCopier",
        *("--broker-list", brokers.bootstrap, "--input-topic", source, "--input-partition", "0"),
        *("--output-topic", target, "--max-messages", str(RECORDS), "--transaction-size", "30"),
        *("--consumer-group", f"g-{uuid4()}", "--transactional-id", name),
        "--enable-random-aborts",
    )
    assert json.loads(copied.splitlines()[-1])["remaining"] == 0
    assert sorted(map(int, read(brokers.bootstrap, target))) == list(range(RECORDS))
    states = transactions(tool, "describe", "--transactional-id", name)
    (state,) = states
    assert state["TransactionalId"] == name
    assert state["TransactionState"].startswith("Complete")
    assert int(state["ProducerEpoch"]) >= RECORDS // 30  # every end raised it


def test_a_hanging_transaction_is_found_and_ended(brokers: Brokers, tool: KafkaTools) -> None:
    topic = made(brokers.bootstrap, 1)
    name = f"hanging-{uuid4()}"
    producer = transactional(brokers.bootstrap, name)
    producer.begin_transaction()
    write(producer, topic, "stuck", partitions=1)
    found = transactions(tool, "list")
    assert name in {one["TransactionalId"] for one in found}
    where = ("--topic", topic, "--partition", "0")
    (one,) = transactions(tool, "describe-producers", *where)
    start = one["CurrentTransactionStartOffset"]
    assert int(start) == 0  # nothing but records takes an offset
    assert read(brokers.bootstrap, topic, 1) == []
    transactions(tool, "abort", *where, "--start-offset", start)
    (one,) = transactions(tool, "describe-producers", *where)
    assert one["CurrentTransactionStartOffset"] == "None"
    other = transactional(brokers.bootstrap, f"other-{uuid4()}")
    other.begin_transaction()
    write(other, topic, "seen", partitions=1)
    other.commit_transaction(30)
    assert read(brokers.bootstrap, topic, 1) == ["seen"]
    producer.abort_transaction(30)


def transactions(tool: KafkaTools, *arguments: str) -> list[dict[str, str]]:
    """Return the rows that Kafka's transactions tool prints."""
    lines = tool("TransactionsCommand", *arguments)
    rows = [[cell.strip() for cell in line.split("\t")] for line in lines if line.strip()]
    return [dict(zip(rows[0], row, strict=False)) for row in rows[1:]] if rows else []
