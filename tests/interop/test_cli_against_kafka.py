"""The command line over the wire against a real Kafka, beside Kafka's own tools."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Cli
from tests.harness.waiting import eventually
from tests.peers.kafka import KafkaCluster
from tests.peers.kafka_tools import KafkaTools


@pytest.fixture
def cli(kafka_cli: Cli) -> Cli:
    return kafka_cli


def tool(kafka: KafkaCluster, name: str, *arguments: str) -> list[str]:
    """Return the lines that one of Kafka's own tools prints."""
    return KafkaTools(kafka.bootstrap)(name, *arguments)


def without_elr(lines: list[str]) -> list[str]:
    """Drop what only Kafka knows of: replicas that could be elected although not in sync."""
    return [re.sub(r"\tElr: .*", "", line).rstrip() for line in lines]


def test_topics_are_described_as_kafka_topics_does(kafka: KafkaCluster, cli: Cli) -> None:
    created = cli.ok(
        "topics", "--create", "--topic", "described", "--replica-assignment", "1:2,2:3,3:1",
        "--config", "retention.ms=3600000",
    )  # fmt: skip
    assert created.text == "Created topic described.\n"
    ours = cli.ok("topics", "--describe", "--topic", "described").lines
    theirs = tool(kafka, "TopicCommand", "--describe", "--topic", "described")
    # Kafka lists a setting of the broker among the topic's.
    theirs[0] = re.sub(r"min\.insync\.replicas=\d+,?", "", theirs[0]).rstrip(",")
    assert without_elr(ours) == without_elr(theirs)
    assert "described" in cli.ok("topics", "--list").lines


def test_records_come_back_with_offsets_as_kafkas_tools_see_them(
    kafka: KafkaCluster, cli: Cli
) -> None:
    cli.ok(
        "topics", "--create", "--topic", "kept", "--partitions", "2", "--replication-factor", "2"
    )
    lines = "".join(f"h:{n}\tkey2\t{n}\n" for n in range(1000)).encode()
    reports = cli.ok(
        "produce", "--topic", "kept", "--property", "parse.key=true", "--property",
        "parse.headers=true", "--compression-codec", "zstd", "--json", stdin=lines,
    ).documents  # fmt: skip
    assert {report["partition"] for report in reports} == {1}
    assert sum(report["count"] for report in reports) == 1000

    outcome = cli.ok("consume", "--topic", "kept", "--from-beginning", "--timeout-ms", "0")
    assert outcome.lines == [str(n) for n in range(1000)]
    assert outcome.errors == "Processed a total of 1000 messages\n"
    at = ("consume", "--topic", "kept", "--partition", "1", "--offset")
    fields = [word for f in ("partition", "offset", "headers", "key")
              for word in ("--property", f"print.{f}=true")]  # fmt: skip
    last = cli.ok(*at, "999", *fields, "--max-messages", "1").lines
    assert last == ["Partition:1\tOffset:999\th:999\tkey2\t999"]
    assert "log_end_offset=1000" in cli.fails(*at, "1001", "--timeout-ms", "0")
    assert cli.ok(*at, "latest", "--timeout-ms", "0").text == ""

    ours = cli.ok("get-offsets", "--topic", "kept").lines
    assert ours == ["kept:0:0", "kept:1:1000"]
    assert ours == tool(kafka, "GetOffsetShell", "--topic", "kept")

    offsets = b'{"partitions": [{"topic": "kept", "partition": 1, "offset": 4}], "version": 1}'
    deleted = cli.ok("delete-records", "--offset-json-file", "-", stdin=offsets)
    assert deleted.lines[-1] == "partition: kept-1\tlow_watermark: 4"
    assert cli.ok("get-offsets", "--topic", "kept", "--time", "earliest").lines == [
        "kept:0:0",
        "kept:1:4",
    ]


def test_a_group_goes_on_where_it_was(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "grouped", "--partitions", "1")
    cli.ok("produce", "--topic", "grouped", stdin=b"a\nb\nc\n")
    group = ("consume", "--topic", "grouped", "--group", "g", "--from-beginning")
    assert cli.ok(*group, "--max-messages", "2", "--timeout-ms", "20000").lines == ["a", "b"]
    assert cli.ok(*group, "--max-messages", "1", "--timeout-ms", "20000").lines == ["c"]
    cli.ok("groups", "--delete", "--group", "g")
    assert "g" not in cli.ok("groups", "--list").lines


def test_settings_of_topics_and_brokers(kafka: KafkaCluster, cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "set", "--partitions", "1")
    cli.ok("configs", "--alter", "--topic", "set", "--add-config", "segment.ms=5000000")
    described = cli.ok("configs", "--describe", "--topic", "set").lines
    assert described[0] == "Dynamic configs for topic set are:"
    assert described[1].startswith("  segment.ms=5000000 sensitive=false synonyms={DYNAMIC_TOPIC")
    broker = ("configs", "--alter", "--broker", "1", "--add-config", "log.cleaner.threads=2")
    assert cli.ok(*broker).text == "Completed updating config for broker 1.\n"
    # A broker of Kafka's takes a change in some time after the controller has promised it.
    eventually(
        lambda: "log.cleaner.threads=2" in cli.ok("configs", "--describe", "--broker", "1").text,
        "the broker has the change",
    )
    error = cli.fails("configs", "--alter", "--topic", "set", "--add-config", "segmnt.ms=1")
    assert "segmnt.ms" in error
    assert "error=INVALID_CONFIG" in error


def test_a_move_is_generated_executed_and_verified(
    kafka: KafkaCluster, cli: Cli, tmp_path: Path
) -> None:
    cli.ok("topics", "--create", "--topic", "moved", "--replica-assignment", "1,1,1")
    topics = b'{"version": 1, "topics": [{"topic": "moved"}]}'
    generated = cli.ok(
        "reassign-partitions", "--generate", "--topics-to-move-json-file", "-",
        "--broker-list", "2,3", stdin=topics,
    ).lines  # fmt: skip
    proposal = json.loads(generated[-1])
    assert {r for p in proposal["partitions"] for r in p["replicas"]} == {2, 3}
    file = tmp_path / "move.json"
    file.write_text(generated[-1])
    move = ("reassign-partitions", "--reassignment-json-file", str(file))
    assert "Successfully started partition reassignments for moved-0,moved-1,moved-2" in (
        cli.ok(*move, "--execute").text
    )
    eventually(lambda: cli(*move, "--verify").code == 0, "the move is complete")
    verified = cli.ok(*move, "--verify").lines
    assert verified[1] == "Reassignment of partition moved-0 is completed."
    theirs = tool(
        kafka, "reassign.ReassignPartitionsCommand", "--verify", "--reassignment-json-file",
        str(file), "--preserve-throttles",
    )  # fmt: skip
    assert verified == [line for line in theirs if line]
    assert cli.ok("reassign-partitions", "--list").text == "No partition reassignments found.\n"
    assert "None of the specified" in cli.ok(*move, "--cancel").text
    dirs = cli.ok("log-dirs", "--describe", "--broker-list", "2,3", "--topic-list", "moved").lines
    found = [d["partitions"] for b in json.loads(dirs[-1])["brokers"] for d in b["logDirs"]]
    assert sorted(p["partition"] for ps in found for p in ps) == ["moved-0", "moved-1", "moved-2"]


def test_the_preferred_leader_leads_again_when_its_broker_is_back(
    kafka: KafkaCluster, cli: Cli
) -> None:
    cli.ok("topics", "--create", "--topic", "elected", "--replica-assignment", "3:1")
    assert len(cli.ok("brokers").lines) == 3
    node = kafka.nodes[2]
    node.stop()
    only = ("--topic", "elected")
    under = ("topics", "--describe", *only, "--under-replicated-partitions")
    (line,) = eventually(lambda: cli.ok(*under).lines, "an under-replicated partition")
    assert line.startswith("\tTopic: elected\tPartition: 0\tLeader: 1")
    assert cli.ok("topics", "--describe", *only, "--under-min-isr-partitions").lines
    assert cli.ok("topics", "--describe", *only, "--unavailable-partitions").text == ""
    assert len(cli.ok("brokers").lines) == 2
    elect = ("leader-election", "--election-type", "preferred", *only, "--partition", "0")
    refused = cli(*elect)
    assert refused.code == 1
    assert "error=PREFERRED_LEADER_NOT_AVAILABLE" in refused.text
    kafka.restart_node(3)
    eventually(lambda: not cli.ok(*under).lines, "all in sync again")
    elected = cli.ok(*elect).text
    assert elected in (
        "Successfully completed leader election (PREFERRED) for partitions elected-0\n",
        "Valid replica already elected for partitions elected-0\n",
    )
    described = ("topics", "--describe", *only)  # by a broker that learns of the election later
    eventually(lambda: "Leader: 3" in cli.ok(*described).text, "the preferred leader leads")


def test_error_of_a_broker_is_one_line_with_kafkas_name(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "there")
    assert "error=TOPIC_ALREADY_EXISTS" in cli.fails("topics", "--create", "--topic", "there")
    assert cli.ok("topics", "--create", "--topic", "there", "--if-not-exists").text == ""
    too_many = cli.fails("topics", "--create", "--topic", "many", "--replication-factor", "9")
    assert "error=INVALID_REPLICATION_FACTOR" in too_many
    assert "topic=nope" in cli.fails("topics", "--delete", "--topic", "nope")
    assert "topic=nope" in cli.fails("produce", "--topic", "nope", stdin=b"x\n")
    assert "topic=nope" in cli.fails("consume", "--topic", "nope", "--timeout-ms", "0")
