from __future__ import annotations

import pytest

from sparklog.cluster.log import Log
from sparklog.cluster.metadata.records import PartitionRecord, Record, RegisterBrokerRecord
from tests.cli.conftest import Cli


@pytest.fixture
def filled(cli: Cli) -> Cli:
    for topic, lines in (("t", b"a\nb\nc\n"), ("u", b"x\n")):
        cli.ok("topics", "--create", "--topic", topic)
        cli.ok("produce", "--topic", topic, stdin=lines)
    return cli


def test_a_snapshot_is_made_listed_read_and_dropped(filled: Cli) -> None:
    (made,) = filled.ok("snapshots", "--create", "before", "--json").documents
    assert (made["name"], made["topics"], made["records"]) == ("before", ["t", "u"], 4)
    filled.ok("topics", "--delete", "--topic", "t")
    filled.ok("topics", "--create", "--topic", "t")
    filled.ok("produce", "--topic", "t", stdin=b"new\n")
    only = filled.ok("snapshots", "--create", "after", "--topic", "t").text
    assert only.startswith("Created snapshot after\tCreated: ")
    assert "\tTopics: t\tPartitions: 1\tRecords: 1\t" in only
    names = [line.split("\t")[0] for line in filled.ok("snapshots", "--list").lines]
    assert names == ["after", "before"]
    described = filled.ok("snapshots", "--describe", "before", "--json").documents
    assert [(d["topic"], d["logStartOffset"], d["endOffset"]) for d in described] == [
        ("t", 0, 3),
        ("u", 0, 1),
    ]
    consume = ("consume", "--topic", "t", "--snapshot")
    assert filled.ok(*consume, "before").lines == ["a", "b", "c"]
    assert filled.ok(*consume, "before", "--max-messages", "2").lines == ["a", "b"]
    assert filled.ok(*consume, "before", "--partition", "0", "--offset", "2").lines == ["c"]
    assert filled.ok(*consume, "after").lines == ["new"]
    every = ("consume", "--include", "[tu]", "--snapshot", "before")
    assert sorted(filled.ok(*every).lines) == ["a", "b", "c", "x"]
    assert "does not have it" in filled.fails("consume", "--topic", "no", "--snapshot", "before")
    assert filled.ok("snapshots", "--drop", "before").lines == ["Dropped snapshot before."]
    assert "no such snapshot" in filled.fails(*consume, "before")
    assert "no such snapshot" in filled.fails("snapshots", "--drop", "before")


def test_wrong_call_is_reported(filled: Cli) -> None:
    filled.ok("snapshots", "--create", "s")
    assert "exists already" in filled.fails("snapshots", "--create", "s")
    assert "no such topic" in filled.fails("snapshots", "--create", "n", "--topic", "nosuch")
    assert "--topic does not go with --list, but with --create" in filled.misused(
        "snapshots", "--list", "--topic", "t"
    )
    assert filled.misused("snapshots")


def test_snapshot_of_a_log_without_topics_is_rejected(cli: Cli) -> None:
    assert "no topic" in cli.fails("snapshots", "--create", "s")


def test_silent_leaders_are_reported_and_flushed_records_are_kept(file_cli: Cli, log: Log) -> None:
    topic = log.create_topic("t")
    file_cli.ok("produce", "--topic", "t", stdin=b"a\n")
    # As a broker that leads and is gone would leave it.
    leading: list[Record] = [
        RegisterBrokerRecord(1, "1" * 32, "127.0.0.1", 1, None),
        PartitionRecord(topic.topic_id, 0, (1,), (1,), 1, 1, 1),
    ]
    log._decide(lambda image: [] if image.brokers else leading)
    failed = file_cli.fails("snapshots", "--create", "s")
    assert "--flushed-only" in failed
    file_cli.ok("snapshots", "--create", "s", "--flushed-only")
    assert file_cli.ok("consume", "--topic", "t", "--snapshot", "s").lines == ["a"]
