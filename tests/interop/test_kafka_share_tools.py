"""Kafka's tool for share groups administrates ours, and `sparklog groups` prints the same."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import confluent_kafka
import pytest

from sparklog.client.admin import Admin
from tests.cli.conftest import Cli
from tests.harness.share_member import ShareMember
from tests.interop.brokers import Brokers
from tests.peers.kafka_tools import KafkaTools

SHARES = "consumer.group.ShareGroupCommand"
RECORDS = 10


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers(f"memory://{uuid4()}", count=2) as cluster:
        yield cluster


@pytest.fixture
def cli(
    brokers: Brokers,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> Cli:
    return Cli("", monkeypatch, capsysbinary, brokers.bootstrap)


def filled(lines: list[str]) -> list[list[str]]:
    """Return the words of the lines that are not blank."""
    return [line.split() for line in lines if line.strip()]


def test_kafkas_tool_for_share_groups_agrees_with_ours(brokers: Brokers, cli: Cli) -> None:
    tool = KafkaTools(brokers.bootstrap)
    topic, group = f"t-{uuid4().hex[:8]}", f"share-{uuid4().hex[:8]}"
    with Admin(brokers.bootstrap) as admin:
        admin.create_topic(topic, partitions=2)
    producer = confluent_kafka.Producer({"bootstrap.servers": brokers.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, f"value {number}", partition=1)
    assert producer.flush(30) == 0
    member = ShareMember(brokers.bootstrap, group)
    member.join(topic)
    of_group = ("--describe", "--group", group)

    assert group in tool(SHARES, "--list")
    for words in (
        (),
        ("--members",),
        ("--members", "--verbose"),
        ("--state",),
        ("--state", "--verbose"),
    ):
        member.beat(member.epoch)
        ours = cli.ok("groups", *of_group, *words).lines
        assert filled(ours) == filled(tool(SHARES, *of_group, *words)), words
    member.beat(-1)

    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest")
    planned = cli.ok("groups", *reset, "--dry-run").lines
    assert sorted(filled(tool(SHARES, *reset, "--execute"))) == sorted(filled(planned))
    for words in ((), ("--verbose",)):
        ours = cli.ok("groups", *of_group, *words).lines
        assert filled(ours) == filled(tool(SHARES, *of_group, *words)), words
    last = cli.ok("groups", *of_group, "--verbose").lines[-1]
    assert last.split()[2:] == ["1", "-", "0", str(RECORDS)]

    deleted = tool(SHARES, "--delete-offsets", "--group", group, "--topic", topic)
    assert [topic, "Successful"] in filled(deleted)
    gone = cli("groups", "--delete-offsets", "--group", group, "--topic", topic)
    assert "There is no offset information to delete" in gone.text
    deleted = tool(SHARES, "--delete", "--group", group)
    assert deleted == [f"Deletion of requested share groups ('{group}') was successful."]
    assert group not in cli.ok("groups", "--list").lines
