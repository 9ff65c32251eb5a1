"""Topics, settings and moves of replicas over --bootstrap-server, against sparklog's brokers."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest

from tests.cli.conftest import Cli
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers

CREATE_PLACED = ("topics", "--create", "--topic", "x", "--replica-assignment", "1")


@pytest.fixture
def cli(wire_cli: Cli) -> Cli:
    return wire_cli


@pytest.fixture
def name() -> str:
    return f"t-{uuid4().hex[:8]}"


def test_brokers_are_listed_with_their_addresses(brokers: Brokers, cli: Cli) -> None:
    documents = cli.ok("brokers", "--json").documents
    assert [d["broker"] for d in documents] == [1, 2, 3]
    addresses = {f"{d['host']}:{d['port']}" for d in documents}
    assert addresses == set(brokers.bootstrap.split(","))
    assert sum(d["controller"] for d in documents) == 1
    line = cli.ok("brokers").lines[0]
    assert line.startswith("Broker: 1\tHost: 127.0.0.1\tPort: ")
    assert line.split("\t")[3] == "Rack: null"
    assert cli.ok("brokers", "--root", brokers.root).text == cli.ok("brokers").text


def test_levels_of_features_are_shown_and_do_not_fall(cli: Cli) -> None:
    described = {d["feature"]: d for d in cli.ok("features", "--describe", "--json").documents}
    assert described["sparklog.version"] == {
        "feature": "sparklog.version",
        "supported_min": 1,
        "supported_max": 2,
        "finalized": 2,  # a new cluster begins at the newest level
    }
    assert {"group.version", "share.version", "transaction.version"} < set(described)
    levels = "SupportedMinVersion: 1\tSupportedMaxVersion: 2\tFinalizedVersionLevel: 2"
    assert cli.ok("features", "--describe").lines[1:3] == [
        f"Feature: share.version\t{levels}",
        f"Feature: sparklog.version\t{levels}",
    ]
    again = cli.ok("features", "--upgrade", "sparklog.version=2")
    assert again.text == "sparklog.version was upgraded to 2.\n"
    assert "never falls" in cli.fails("features", "--upgrade", "sparklog.version=1")
    assert "does not know" in cli.fails("features", "--upgrade", "sparklog.version=3")
    assert "NAME=LEVEL" in cli.misused("features", "--upgrade", "sparklog.version")


def test_an_assignment_places_replicas_and_is_described(cli: Cli, name: str) -> None:
    created = cli.ok(
        "topics", "--create", "--topic", name, "--replica-assignment", "1:2,2:3,3:1",
        "--config", "retention.ms=1000",
    )  # fmt: skip
    assert created.text == f"Created topic {name}.\n"
    head, *partitions = cli.ok("topics", "--describe", "--topic", name).lines
    assert head.split("\t")[2:] == [
        "PartitionCount: 3", "ReplicationFactor: 2", "Configs: retention.ms=1000",
    ]  # fmt: skip
    assert partitions == [
        f"\tTopic: {name}\tPartition: {n}\tLeader: {a}\tReplicas: {a},{b}\tIsr: {a},{b}"
        "\tElr: N/A\tLastKnownElr: N/A"
        for n, (a, b) in enumerate([(1, 2), (2, 3), (3, 1)])
    ]


def test_the_same_topic_is_described_alike_from_the_root(
    brokers: Brokers, cli: Cli, name: str
) -> None:
    cli.ok("topics", "--create", "--topic", name, "--partitions", "2", "--replication-factor", "3")
    describe = ("topics", "--describe", "--topic", name)
    over_wire = cli.ok(*describe, "--json").documents
    assert over_wire == cli.ok(*describe, "--json", "--root", brokers.root).documents
    assert cli.ok(*describe).text == cli.ok(*describe, "--root", brokers.root).text
    assert over_wire[0]["replicationFactor"] == 3
    (listed,) = cli.ok("topics", "--list", "--topic", name, "--json").documents
    assert listed == {"topic": name, "topicId": over_wire[0]["topicId"], "partitionCount": 2}


def test_topics_grow_are_altered_and_deleted(cli: Cli, name: str) -> None:
    cli.ok("topics", "--create", "--topic", name)
    cli.ok("topics", "--alter", "--topic", name, "--partitions", "2", "--replica-assignment", "1,3")
    assert "Partition: 1\tLeader: 3\t" in cli.ok("topics", "--describe", "--topic", name).text
    assert "can only grow" in cli.fails("topics", "--alter", "--topic", name, "--partitions", "1")
    cli.ok("topics", "--alter", "--topic", name, "--config", "segment.ms=5000")
    assert "Configs: segment.ms=5000" in cli.ok("topics", "--describe", "--topic", name).text
    cli.ok("topics", "--delete", "--topic", name)
    assert name not in cli.ok("topics", "--list").lines
    assert f"topic={name}" in cli.fails("topics", "--delete", "--topic", name)


def test_error_of_a_broker_is_one_line_with_kafkas_name(cli: Cli, name: str) -> None:
    cli.ok("topics", "--create", "--topic", name)
    assert "error=TOPIC_ALREADY_EXISTS" in cli.fails("topics", "--create", "--topic", name)
    assert cli.ok("topics", "--create", "--topic", name, "--if-not-exists").text == ""
    too_many = cli.fails("topics", "--create", "--topic", "many", "--replication-factor", "9")
    assert "error=INVALID_REPLICATION_FACTOR" in too_many
    wrong = cli.fails("configs", "--alter", "--topic", name, "--add-config", "retentoin.ms=1")
    assert "did you mean retention.ms?" in wrong


def test_settings_of_topics_are_shown_with_where_they_come_from(cli: Cli, name: str) -> None:
    cli.ok("topics", "--create", "--topic", name)
    altered = cli.ok("configs", "--alter", "--topic", name, "--add-config", "retention.ms=1000")
    assert altered.text == f"Completed updating config for topic {name}.\n"
    title, line = cli.ok("configs", "--describe", "--topic", name).lines
    assert title == f"Dynamic configs for topic {name} are:"
    assert line == (
        "  retention.ms=1000 sensitive=false synonyms="
        "{DYNAMIC_TOPIC_CONFIG:retention.ms=1000, DEFAULT_CONFIG:retention.ms=604800000}"
    )
    everything = cli.ok("configs", "--describe", "--topic", name, "--all", "--json").documents
    values = {c["name"]: c["value"] for c in everything[0]["configs"]}
    assert values["cleanup.policy"] == "delete"


def test_defaults_of_all_topics_are_set_over_the_wire(cli: Cli, name: str) -> None:
    cli.ok("topics", "--create", "--topic", name)
    default = ("--entity-type", "brokers", "--entity-default")
    cli.ok("configs", "--alter", *default, "--add-config", "log.roll.jitter.ms=7")
    assert "  log.roll.jitter.ms=7 " in cli.ok("configs", "--describe", *default).text
    shown = cli.ok("configs", "--describe", "--topic", name, "--all").text
    assert "{DYNAMIC_DEFAULT_BROKER_CONFIG:log.roll.jitter.ms=7, " in shown
    cli.ok("configs", "--alter", *default, "--delete-config", "log.roll.jitter.ms")
    assert "log.roll.jitter.ms" not in cli.ok("configs", "--describe", *default).text


def test_settings_of_a_broker_are_its_own(cli: Cli) -> None:
    shown = cli.ok("configs", "--describe", "--broker", "2", "--all").text
    assert "  node.id=2 " in shown
    assert "no such broker" in cli.fails("configs", "--describe", "--broker", "9")


def test_settings_of_a_group_are_set_shown_and_unset(cli: Cli, name: str) -> None:
    setting = "consumer.session.timeout.ms"
    altered = cli.ok("configs", "--alter", "--group", name, "--add-config", f"{setting}=50000")
    assert altered.text == f"Completed updating config for group {name}.\n"
    (title, line) = cli.ok("configs", "--describe", "--group", name).lines
    assert title == f"Dynamic configs for group {name} are:"
    assert line.startswith(f"  {setting}=50000 sensitive=false synonyms={{DYNAMIC_GROUP_CONFIG:")
    assert f"  {setting}=50000 " in cli.ok("configs", "--describe", "--entity-type", "groups").text
    by_type = ("--entity-type", "groups", "--entity-name", name)
    cli.ok("configs", "--alter", *by_type, "--delete-config", setting)
    assert title not in cli.ok("configs", "--describe", "--entity-type", "groups").lines
    assert "group.consumer" in cli.fails(
        "configs", "--alter", *by_type, "--add-config", f"{setting}=1"
    )


def test_filters_show_the_partitions_they_are_named_for(cli: Cli, name: str) -> None:
    cli.ok(
        "topics", "--create", "--topic", name, "--replication-factor", "2", "--config",
        "min.insync.replicas=2",
    )  # fmt: skip
    describe = ("topics", "--describe", "--topic", name)
    at_min = cli.ok(*describe, "--at-min-isr-partitions").lines
    assert [line.split("\t")[1:3] for line in at_min] == [[f"Topic: {name}", "Partition: 0"]]
    for condition in ("under-replicated", "unavailable", "under-min-isr"):
        assert cli.ok(*describe, f"--{condition}-partitions").text == ""
    cli.ok("configs", "--alter", "--topic", name, "--add-config", "min.insync.replicas=3")
    assert len(cli.ok(*describe, "--under-min-isr-partitions").lines) == 1
    assert len(cli.ok(*describe, "--under-min-isr-partitions", "--json").documents) == 1


def test_a_move_is_generated_executed_and_verified(cli: Cli, name: str, tmp_path: Path) -> None:
    cli.ok("topics", "--create", "--topic", name, "--replica-assignment", "1,1")
    cli.ok("produce", "--topic", name, stdin=b"a\nb\nc\n")
    topics = json.dumps({"version": 1, "topics": [{"topic": name}]}).encode()
    generated = cli.ok(
        "reassign-partitions", "--generate", "--topics-to-move-json-file", "-",
        "--broker-list", "2,3", stdin=topics,
    ).lines  # fmt: skip
    assert generated[0] == "Current partition replica assignment"
    assert {r for p in json.loads(generated[-1])["partitions"] for r in p["replicas"]} == {2, 3}
    file = tmp_path / "move.json"
    file.write_text(generated[-1])
    move = ("reassign-partitions", "--reassignment-json-file", str(file))
    not_yet = cli(*move, "--verify")
    assert not_yet.code == 1
    assert "replica set is 1 rather than" in not_yet.text
    started = cli.ok(*move, "--execute").lines
    assert started[-1] == (f"Successfully started partition reassignments for {name}-0,{name}-1")
    eventually(lambda: cli(*move, "--verify").code == 0, "the move is complete")
    assert cli.ok(*move, "--verify").lines == [
        "Status of partition reassignment:",
        f"Reassignment of partition {name}-0 is completed.",
        f"Reassignment of partition {name}-1 is completed.",
    ]
    assert cli.ok("reassign-partitions", "--list").text == "No partition reassignments found.\n"
    assert "None of the specified" in cli.ok(*move, "--cancel").text
    records = cli.ok("consume", "--topic", name, "--from-beginning", "--timeout-ms", "0").lines
    assert sorted(records) == ["a", "b", "c"]


def test_a_move_to_a_broker_that_is_not_there_is_refused(cli: Cli, name: str) -> None:
    cli.ok("topics", "--create", "--topic", name, "--replica-assignment", "1")
    wanted = {"version": 1, "partitions": [{"topic": name, "partition": 0, "replicas": [7]}]}
    execute = ("reassign-partitions", "--execute", "--reassignment-json-file", "-")
    assert "brokers=7" in cli.fails(*execute, stdin=json.dumps(wanted).encode())
    wanted["partitions"][0]["partition"] = 5  # type: ignore[index]
    wanted["partitions"][0]["replicas"] = [1]  # type: ignore[index]
    assert f"partition={name}-5" in cli.fails(*execute, stdin=json.dumps(wanted).encode())


def test_elections_report_the_result_of_each_partition(cli: Cli, name: str) -> None:
    cli.ok("topics", "--create", "--topic", name, "--replica-assignment", "2:1")
    elect = ("leader-election", "--election-type", "preferred")
    one = (*elect, "--topic", name, "--partition", "0")
    assert cli.ok(*one).text == f"Valid replica already elected for partitions {name}-0\n"
    (document,) = cli.ok(*one, "--json").documents
    assert document == {"topic": name, "partition": 0, "elected": False}
    file = json.dumps({"partitions": [{"topic": "nope", "partition": 3}]}).encode()
    failed = cli(*elect, "--path-to-json-file", "-", stdin=file)
    assert failed.code == 1
    assert "partition: nope-3" in failed.text
    assert "error=UNKNOWN_TOPIC_OR_PARTITION" in failed.text


def test_log_dirs_are_one_json_document_as_kafka_prints_it(cli: Cli, name: str) -> None:
    cli.ok("topics", "--create", "--topic", name, "--replica-assignment", "1:3")

    def held() -> dict[int, list[str]]:
        described = cli.ok("log-dirs", "--describe", "--topic-list", name).lines
        assert described[1] == "Received log directory information from brokers 1,2,3"
        return {
            b["broker"]: [p["partition"] for d in b["logDirs"] for p in d["partitions"]]
            for b in json.loads(described[2])["brokers"]
        }

    expected = {1: [f"{name}-0"], 2: [], 3: [f"{name}-0"]}
    eventually(lambda: held() == expected, "brokers have heard of the topic")
    assert "brokers=8" in cli.fails("log-dirs", "--describe", "--broker-list", "1,8")


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        ([*CREATE_PLACED[:-1], "a"], "such as 1:2,2:3"),
        (
            [
                "topics",
                "--create",
                "--topic",
                "x",
                "--replica-assignment",
                "1",
                "--partitions",
                "1",
            ],
            "leave out",
        ),
        (["topics", "--alter", "--topic", "x", "--replica-assignment", "1"], "--alter needs"),
        (["topics", "--list", "--unavailable-partitions"], "does not go with --list"),
        (["configs", "--describe", "--broker", "1", "--topic", "x"], "give one"),
        (["leader-election", "--election-type", "preferred", "--topic", "x"], "--partition"),
        (["reassign-partitions", "--execute"], "needs --reassignment-json-file"),
        (["reassign-partitions", "--list", "--additional"], "does not go with --list"),
        (["log-dirs", "--describe", "--broker-list", "x"], "brokers are numbers"),
    ],
)
def test_a_call_that_makes_no_sense_is_a_usage_error(
    cli: Cli, argv: list[str], problem: str
) -> None:
    assert problem in cli.misused(*argv)


def test_replicas_cannot_be_placed_without_brokers(brokers: Brokers, cli: Cli) -> None:
    assert "--bootstrap-server" in cli.misused(*CREATE_PLACED, "--root", brokers.root)
