"""Groups and transactions on the command line against a real Kafka, beside Kafka's own tools."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest

from sparklog.client.admin import Admin
from tests.cli.conftest import Cli
from tests.peers.kafka import KafkaCluster
from tests.peers.kafka_tools import KafkaTools

GROUPS = "consumer.group.ConsumerGroupCommand"
TRANSACTIONS = "TransactionsCommand"
READ_S = 150.0
TOPIC = "t"


@pytest.fixture
def cli(kafka_cli: Cli) -> Cli:
    return kafka_cli


@pytest.fixture(scope="module")
def filled(kafka: KafkaCluster) -> None:
    """30 records in three partitions."""
    producer = ck.Producer({"bootstrap.servers": kafka.bootstrap})
    with Admin(kafka.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=3)
    for number in range(30):
        producer.produce(TOPIC, b"x", partition=number % 3)
    assert producer.flush(READ_S) == 0


def tool(kafka: KafkaCluster, name: str, *arguments: str) -> list[str]:
    """Return the lines that one of Kafka's own tools prints."""
    return KafkaTools(kafka.bootstrap)(name, *arguments)


def reader(kafka: KafkaCluster, group: str, protocol: str, instance: str = "") -> ck.Consumer:
    """Return a member of a group that has read and committed five records."""
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = ck.Consumer(settings | ({"group.instance.id": instance} if instance else {}))
    consumer.subscribe([TOPIC])
    read, deadline_s = 0, time.monotonic() + READ_S
    while read < 5:
        assert time.monotonic() < deadline_s, "the group was handed no records"
        message = consumer.poll(0.5)
        read += message is not None and message.error() is None
    consumer.commit(asynchronous=False)
    return consumer


@pytest.fixture(scope="module")
def members(kafka: KafkaCluster, filled: None) -> Iterator[None]:
    """One reader in each of three groups: classic, static, and of the newer protocol."""
    readers = [
        reader(kafka, "classic", "classic"),
        reader(kafka, "static", "classic", "instance-1"),
        reader(kafka, "modern", "consumer"),
    ]
    yield
    for consumer in readers:
        consumer.close()


@pytest.mark.parametrize(
    "view", [(), ("--verbose",), ("--members", "--verbose"), ("--state", "--verbose")]
)
def test_groups_are_described_as_kafka_consumer_groups_does(
    kafka: KafkaCluster, cli: Cli, members: None, view: tuple[str, ...]
) -> None:
    ours = cli.ok("groups", "--describe", "--all-groups", *view).lines
    theirs = tool(kafka, GROUPS, "--describe", "--all-groups", *view)
    assert ours == theirs


def test_groups_are_listed_as_kafka_consumer_groups_does(
    kafka: KafkaCluster, cli: Cli, members: None
) -> None:
    theirs = tool(kafka, GROUPS, "--list", "--state", "--type")
    assert cli.ok("groups", "--list", "--state", "--type").lines == [theirs[0], *sorted(theirs[1:])]
    assert cli.ok("groups", "--list").lines == ["classic", "modern", "static"]
    assert cli.ok("groups", "--list", "--type", "consumer").lines[1:] == [
        f"{'modern':<25} {'Consumer':<20}"
    ]
    assert cli.ok("groups", "--list", "--state", "empty").lines == [f"{'GROUP':<25} {'STATE':<20}"]


def test_lag_is_shown_in_records_and_in_time(cli: Cli, members: None) -> None:
    found = cli.ok("groups", "--describe", "--group", "classic", "--lag-time", "--json").documents
    assert [row["partition"] for row in found] == [0, 1, 2]
    behind = [row for row in found if row["lag"]]
    assert behind
    assert all(0 < row["lagMs"] < 600_000 for row in behind)
    assert all(row["lagMs"] == 0 for row in found if row["lag"] == 0)
    head = cli.ok("groups", "--describe", "--group", "classic", "--lag-time").lines[1]
    assert re.search(r"LAG +LAG-TIME +CONSUMER-ID", head)


def test_a_group_with_members_is_not_touched(cli: Cli, members: None) -> None:
    to_start = ("--all-topics", "--to-earliest", "--execute")
    refused = cli("groups", "--reset-offsets", "--group", "classic", *to_start)
    assert refused.code == 1
    assert "is inactive, but the current state is Stable" in refused.errors
    deleted = cli("groups", "--delete", "--group", "modern", "--group", "nope")
    assert deleted.code == 1
    assert "NON_EMPTY_GROUP" in deleted.errors
    assert "GROUP_ID_NOT_FOUND" in deleted.errors
    offsets = cli("groups", "--delete-offsets", "--group", "classic", "--topic", "t:1")
    assert offsets.code == 1
    assert "GROUP_SUBSCRIBED_TO_TOPIC" in offsets.text
    assert "does not exist" in cli("groups", "--describe", "--group", "nope").errors


def test_offsets_of_a_group_are_moved_exported_and_forgotten(
    kafka: KafkaCluster, cli: Cli, filled: None, tmp_path: Path
) -> None:
    reader(kafka, "moved", "classic").close()
    move = ("groups", "--reset-offsets", "--group", "moved")

    def planned(*where: str) -> dict[int, int]:
        documents = cli.ok(*move, *where, "--dry-run", "--json").documents
        return {row["partition"]: row["newOffset"] for row in documents}

    assert planned("--topic", TOPIC, "--to-earliest") == {0: 0, 1: 0, 2: 0}
    assert planned("--topic", "t:0,2", "--to-latest") == {0: 10, 2: 10}
    assert planned("--topic", "t:1", "--to-offset", "99") == {1: 10}
    assert planned("--topic", "t:1", "--to-datetime", "2020-01-01T00:00:00.000") == {1: 0}
    assert planned("--topic", "t:1", "--by-duration", "PT0S") == {1: 10}
    assert planned("--topic", "t:1", "--by-duration", "P1D") == {1: 0}
    cli.ok(*move, "--topic", TOPIC, "--to-offset", "4", "--execute")
    assert planned("--all-topics", "--shift-by", "-3") == {0: 1, 1: 1, 2: 1}
    assert planned("--all-topics", "--shift-by", "100") == {0: 10, 1: 10, 2: 10}
    assert planned("--all-topics", "--to-current") == {0: 4, 1: 4, 2: 4}

    shift = ("--all-topics", "--shift-by", "1", "--dry-run")
    theirs = tool(kafka, GROUPS, "--reset-offsets", "--group", "moved", *shift)
    ours = cli.ok(*move, *shift).lines
    assert ours[:2] == theirs[:2]
    assert ours[2:] == sorted(theirs[2:])
    plan = tmp_path / "plan.csv"
    plan.write_text(cli.ok(*move, "--topic", "t:2", "--to-latest", "--export", "--dry-run").text)
    assert plan.read_text() == "t,2,10\n\n"
    assert planned("--from-file", str(plan)) == {2: 10}
    from_file = ("--from-file", str(plan), "--execute")
    assert "moved" in tool(kafka, GROUPS, "--reset-offsets", "--group", "moved", *from_file)[2]
    assert planned("--all-topics", "--to-current") == {0: 4, 1: 4, 2: 10}

    forgotten = cli.ok("groups", "--delete-offsets", "--group", "moved", "--topic", "t:1").lines
    assert forgotten == [
        "Request succeeded for deleting offsets from group moved.",
        "",
        "TOPIC           PARTITION  STATUS         ",
        "t               1          Successful     ",
    ]
    assert planned("--all-topics", "--to-current") == {0: 4, 2: 10}
    assert cli.ok("groups", "--delete", "--group", "moved").text == (
        "Deletion of requested consumer groups ('moved') was successful.\n"
    )
    assert "moved" not in cli.ok("groups", "--list").lines


def test_transactions_are_shown_as_kafka_transactions_does(
    kafka: KafkaCluster, cli: Cli, filled: None
) -> None:
    producer = ck.Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "tx"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(TOPIC, b"open", partition=1)
    assert producer.flush(READ_S) == 0
    where = ("--topic", TOPIC, "--partition", "1")
    assert cli.ok("transactions", "--list").lines == tool(kafka, TRANSACTIONS, "list")
    ours = cli.ok("transactions", "--describe", "--transactional-id", "tx").lines
    theirs = tool(kafka, TRANSACTIONS, "describe", "--transactional-id", "tx")
    without_duration = re.compile(r"\t\d+ *\t(?=t-1)")
    assert [without_duration.sub("", line) for line in ours] == [
        without_duration.sub("", line) for line in theirs
    ]
    producers = cli.ok("transactions", "--describe-producers", *where).lines
    assert producers == tool(kafka, TRANSACTIONS, "describe-producers", *where)

    looked = ("transactions", "--find-hanging", "--topic", TOPIC, "--max-transaction-timeout", "0")
    assert cli.ok(*looked, "--json").documents == []  # its coordinator will end it
    assert len(cli.ok(*looked).lines) == 1
    (state,) = (
        row
        for row in cli.ok("transactions", "--describe-producers", *where, "--json").documents
        if row["currentTransactionStartOffset"] is not None
    )
    start = str(state["currentTransactionStartOffset"])
    cli.ok("transactions", "--abort", *where, "--start-offset", start)
    assert "no open transaction" in cli.fails(
        "transactions", "--abort", *where, "--start-offset", start
    )
    error = cli.fails("transactions", "--describe", "--transactional-id", "nope")
    assert "TRANSACTIONAL_ID_NOT_FOUND" in error


def test_calls_that_contradict_themselves_are_refused(cli: Cli) -> None:
    assert "--group or --all-groups" in cli.misused("groups", "--describe")
    assert "needs one of" in cli.misused("groups", "--reset-offsets", "--group", "g")
    assert "does not go with --list" in cli.misused("groups", "--list", "--execute")
    assert "goes with --reset-offsets" in cli.misused("groups", "--list", "--to-latest")
    assert "takes no value" in cli.misused(
        "groups", "--describe", "--group", "g", "--state", "stable"
    )
    assert "knows no 'sleepy'" in cli.misused("groups", "--list", "--state", "sleepy")
    assert "needs --transactional-id" in cli.misused("transactions", "--describe")
    assert "does not go with --list" in cli.misused("transactions", "--list", "--topic", "t")
    assert "needs --start-offset" in cli.misused(
        "transactions", "--abort", "--topic", "t", "--partition", "0"
    )
