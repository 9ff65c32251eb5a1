"""Kafka's own tools as members and administrators of classic groups."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from uuid import uuid4

import confluent_kafka
import confluent_kafka.admin
import pytest

from tests.interop.brokers import Brokers
from tests.peers.kafka_tools import KafkaTools

GROUPS = "consumer.group.ConsumerGroupCommand"
RECORDS = 10
Tool = Callable[..., list[str]]


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    quick = {"group.initial.rebalance.delay.ms": "100", "offsets.topic.num.partitions": "5"}
    with Brokers(f"memory://{uuid4()}", count=2, settings=quick) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tool(brokers: Brokers) -> Tool:
    """Run a tool; return the lines it prints that are not blank."""
    run = KafkaTools(brokers.bootstrap)
    return lambda *words: [line for line in run(*words) if line.strip()]


def test_kafkas_tools_read_as_a_group_and_administrate_it(brokers: Brokers, tool: Tool) -> None:
    topic, group = f"t-{uuid4().hex[:8]}", f"g-{uuid4().hex[:8]}"
    producer = confluent_kafka.Producer({"bootstrap.servers": brokers.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, f"value {number}", partition=0)
    assert producer.flush(30) == 0

    read = tool(
        "consumer.ConsoleConsumer", "--topic", topic, "--group", group,
        "--from-beginning", "--max-messages", str(RECORDS), "--timeout-ms", "30000",
    )  # fmt: skip
    assert read == [f"value {n}" for n in range(RECORDS)]
    listed = tool(GROUPS, "--list", "--state", "empty")
    assert any(re.match(rf"{group}\s+Empty", line) for line in listed)
    described = tool(GROUPS, "--describe", "--group", group)
    assert any(re.search(rf"{group}\s+{topic}\s+0.*\s{RECORDS}\s", s) for s in described)

    reset = ("--reset-offsets", "--topic", topic, "--to-earliest", "--execute")
    moved = tool(GROUPS, "--group", group, *reset)
    assert any(re.search(rf"{group}\s+{topic}\s+0\s+0", line) for line in moved)
    member = confluent_kafka.Consumer(
        {
            "bootstrap.servers": brokers.bootstrap,
            "group.id": group,
            "client.id": "me",
            "auto.offset.reset": "error",
        }
    )
    member.subscribe([topic])
    message = None
    while message is None:
        message = member.poll(1.0)
    assert message.value() == b"value 0"
    members = tool(GROUPS, "--describe", "--group", group, "--members", "--verbose")
    assert any(re.search(rf"{group}\s+me-\S+\s+/127\.0\.0\.1\s+me\s+1", line) for line in members)
    assert any(f"{topic}:0" in line or f"{topic}(0)" in line for line in members)
    state = tool(GROUPS, "--describe", "--group", group, "--state")
    assert any(re.search(r"range\s+Stable\s+1", line) for line in state)
    member.close()
    deleted = tool(GROUPS, "--delete", "--group", group)
    assert deleted == [f"Deletion of requested consumer groups ('{group}') was successful."]
