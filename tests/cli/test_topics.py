from __future__ import annotations

import pytest

from tests.cli.conftest import Cli


def test_a_created_topic_is_described_as_kafka_topics_does(cli: Cli) -> None:
    created = cli.ok(
        "topics", "--create", "--topic", "flights", "--partitions", "2",
        "--replication-factor", "1", "--config", "retention.ms=1000",
        "--config", "cleanup.policy=compact,delete",
    )  # fmt: skip
    assert created.text == "Created topic flights.\n"

    head, *partitions = cli.ok("topics", "--describe", "--topic", "flights").lines
    name, topic_id, *rest = head.split("\t")
    assert name == "Topic: flights"
    assert len(topic_id.removeprefix("TopicId: ")) == 22
    assert rest == [
        "PartitionCount: 2",
        "ReplicationFactor: 1",
        "Configs: retention.ms=1000,cleanup.policy=compact,delete",
    ]
    assert partitions == [
        f"\tTopic: flights\tPartition: {n}\tLeader: none\tReplicas: \tIsr: "
        "\tElr: N/A\tLastKnownElr: N/A"
        for n in (0, 1)
    ]


def test_json_equals_the_text(cli: Cli) -> None:
    (created,) = cli.ok("topics", "--create", "--topic", "t", "--json").documents
    assert created["created"] is True
    (described,) = cli.ok("topics", "--describe", "--json").documents
    assert described == {
        "topic": "t",
        "topicId": created["topicId"],
        "partitionCount": 1,
        "replicationFactor": 1,
        "configs": {},
        "partitions": [{"partition": 0, "leader": None, "replicas": [], "isr": []}],
    }
    (listed,) = cli.ok("topics", "--list", "--json").documents
    assert listed == {"topic": "t", "topicId": created["topicId"], "partitionCount": 1}
    assert cli.ok("topics", "--delete", "--topic", "t", "--json").documents == [
        {"topic": "t", "deleted": True}
    ]


def test_an_empty_root_lists_nothing(cli: Cli) -> None:
    assert cli.ok("topics", "--list").text == ""
    assert cli.ok("topics", "--describe").text == ""


def test_creating_a_topic_twice_fails_unless_if_not_exists(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t", "--partitions", "2")
    assert "topic=t" in cli.fails("topics", "--create", "--topic", "t")
    again = cli.ok("topics", "--create", "--topic", "t", "--if-not-exists")
    assert again.text == ""
    assert len(cli.ok("topics", "--describe", "--topic", "t").lines) == 3


def test_patterns_list_describe_and_delete_topics(cli: Cli) -> None:
    for name in ("flights", "planes", "weather"):
        cli.ok("topics", "--create", "--topic", name)
    assert cli.ok("topics", "--list").lines == ["flights", "planes", "weather"]
    assert cli.ok("topics", "--list", "--topic", ".*s,w.*r").lines == [
        "flights", "planes", "weather",
    ]  # fmt: skip
    assert cli.ok("topics", "--describe", "--topic", "p.*").text.startswith("Topic: planes\t")
    cli.ok("topics", "--delete", "--topic", "(flights|weather)")
    assert cli.ok("topics", "--list").lines == ["planes"]


def test_a_name_that_exists_never_means_another_topic_too(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "a.b")
    cli.ok("topics", "--create", "--topic", "a-b")
    cli.ok("topics", "--delete", "--topic", "a.b")
    assert cli.ok("topics", "--list").lines == ["a-b"]


def test_a_topic_is_found_by_its_id(cli: Cli) -> None:
    (created,) = cli.ok("topics", "--create", "--topic", "t", "--json").documents
    found = cli.ok("topics", "--describe", "--topic-id", created["topicId"])
    assert found.text.startswith("Topic: t\t")
    assert "no topic matches" in cli.fails("topics", "--describe", "--topic-id", "x" * 22)


def test_partitions_are_added_and_never_taken_away(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t", "--partitions", "2")
    assert cli.ok("topics", "--alter", "--topic", "t", "--partitions", "5").text == ""
    assert len(cli.ok("topics", "--describe", "--topic", "t").lines) == 6
    error = cli.fails("topics", "--alter", "--topic", "t", "--partitions", "3")
    assert "can only grow" in error


def test_settings_are_set_and_reset(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t")
    altered = cli.ok("topics", "--alter", "--topic", "t", "--config", "segment.ms=5000")
    assert altered.text == "Updated config for topic t.\n"
    overridden = cli.ok("topics", "--describe", "--topics-with-overrides")
    assert overridden.lines[0].endswith("Configs: segment.ms=5000")
    assert len(overridden.lines) == 1
    cli.ok("topics", "--alter", "--topic", "t", "--delete-config", "segment.ms")
    assert cli.ok("topics", "--describe", "--topics-with-overrides").text == ""


def test_a_misspelt_setting_is_refused_with_the_closest_name(cli: Cli) -> None:
    error = cli.fails("topics", "--create", "--topic", "t", "--config", "retentoin.ms=1")
    assert "did you mean retention.ms?" in error
    assert cli.ok("topics", "--list").text == ""


def test_an_unknown_topic_fails_unless_if_exists(cli: Cli) -> None:
    for action in ("--describe", "--delete"):
        assert "topic=nope" in cli.fails("topics", action, "--topic", "nope")
        assert cli.ok("topics", action, "--topic", "nope", "--if-exists").text == ""


@pytest.mark.parametrize("name", ["..", "a b", "ä", "x" * 250])
def test_an_illegal_topic_name_is_refused(cli: Cli, name: str) -> None:
    assert "topic" in cli.fails("topics", "--create", "--topic", name)


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--list", "--create"], "not allowed with argument"),
        ([], "one of the arguments"),
        (["--create"], "--create needs --topic"),
        (["--create", "--topic", "t", "--partitions", "0"], "must be at least 1"),
        (["--create", "--topic", "t", "--config", "x"], "key=value"),
        (["--describe", "--partitions", "1"], "--partitions does not go with --describe"),
        (["--delete", "--topic", "t", "--if-not-exists"], "--if-not-exists does not go with"),
        (["--alter", "--topic", "t"], "--alter needs"),
        (["--list", "--topic", "("], "not a regular expression"),
    ],
)
def test_a_call_that_makes_no_sense_is_a_usage_error(
    file_cli: Cli, argv: list[str], problem: str
) -> None:
    assert problem in file_cli.misused("topics", *argv)
