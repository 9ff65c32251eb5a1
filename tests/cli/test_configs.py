from __future__ import annotations

import pytest

from tests.cli.conftest import Cli


def test_settings_are_altered_and_described_as_by_kafka_configs(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t", "--config", "segment.ms=5000")
    altered = cli.ok(
        "configs", "--alter", "--entity-type", "topics", "--entity-name", "t",
        "--add-config", "retention.ms=1000,cleanup.policy=[compact,delete]",
        "--delete-config", "segment.ms",
    )  # fmt: skip
    assert altered.text == "Completed updating config for topic t.\n"
    described = cli.ok("configs", "--describe", "--entity-type", "topics", "--entity-name", "t")
    title, retention, cleanup = described.lines
    assert title == "Dynamic configs for topic t are:"
    assert retention == (
        "  retention.ms=1000 sensitive=false synonyms="
        "{DYNAMIC_TOPIC_CONFIG:retention.ms=1000, DEFAULT_CONFIG:retention.ms=604800000}"
    )
    assert cleanup == (
        "  cleanup.policy=compact,delete sensitive=false synonyms="
        "{DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
        "DEFAULT_CONFIG:cleanup.policy=delete}"
    )


def test_describe_all_shows_defaults_too(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t", "--config", "retention.ms=1000")
    (described,) = cli.ok("configs", "--describe", "--topic", "t", "--all", "--json").documents
    found = {entry["name"]: entry for entry in described["configs"]}
    assert found["retention.ms"]["value"] == "1000"
    assert found["retention.ms"]["source"] == "DYNAMIC_TOPIC_CONFIG"
    assert found["max.message.bytes"]["value"] == "1048588"
    assert found["max.message.bytes"]["source"] == "DEFAULT_CONFIG"
    assert cli.ok("configs", "--describe", "--topic", "t", "--all").lines[0] == (
        "All configs for topic t are:"
    )


def test_describe_without_a_name_shows_every_topic(cli: Cli) -> None:
    for name in ("b", "a"):
        cli.ok("topics", "--create", "--topic", name)
    assert cli.ok("configs", "--describe", "--entity-type", "topics").lines == [
        "Dynamic configs for topic a are:",
        "Dynamic configs for topic b are:",
    ]


def test_bad_names_values_and_topics_are_refused(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t")
    alter = ("configs", "--alter", "--topic", "t")
    assert "did you mean" in cli.fails(*alter, "--add-config", "retention.mss=1")
    assert "retention.ms" in cli.fails(*alter, "--add-config", "retention.ms=soon")
    assert "did you mean" in cli.fails(*alter, "--delete-config", "segment.bites")
    unknown = cli.fails("configs", "--alter", "--topic", "x", "--add-config", "retention.ms=1")
    assert "topic=x" in unknown
    assert "topic=x" in cli.fails("configs", "--describe", "--topic", "x")


@pytest.mark.parametrize(
    "argv",
    [
        ["--describe"],
        ["--describe", "--topic", "t", "--add-config", "a=b"],
        ["--describe", "--topic", "t", "--entity-name", "t"],
        ["--alter", "--topic", "t"],
        ["--alter", "--topic", "t", "--all", "--add-config", "a=b"],
        ["--alter", "--entity-type", "topics", "--add-config", "a=b"],
        ["--alter", "--topic", "t", "--add-config", "a"],
        ["--describe", "--entity-type", "brokers"],
    ],
)
def test_a_call_that_makes_no_sense_is_a_usage_error(file_cli: Cli, argv: list[str]) -> None:
    file_cli.misused("configs", *argv)


def test_defaults_of_all_topics_are_set_and_shown_in_topics(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t")
    default = ("--entity-type", "brokers", "--entity-default")
    altered = cli.ok("configs", "--alter", *default, "--add-config", "log.retention.ms=1000")
    assert altered.text == "Completed updating default config for brokers in the cluster.\n"
    assert cli.ok("configs", "--describe", *default).lines == [
        "Dynamic default configs for brokers in the cluster are:",
        (
            "  log.retention.ms=1000 sensitive=false synonyms="
            "{DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=1000, "
            "DEFAULT_CONFIG:log.retention.ms=604800000}"
        ),
    ]
    (described,) = cli.ok("configs", "--describe", "--topic", "t", "--all", "--json").documents
    found = {entry["name"]: entry for entry in described["configs"]}
    assert found["retention.ms"] == {
        "name": "retention.ms",
        "value": "1000",
        "source": "DYNAMIC_DEFAULT_BROKER_CONFIG",
    }
    assert len(cli.ok("configs", "--describe", "--topic", "t").lines) == 1
    alter = ("configs", "--alter", *default)
    assert "log.retention.ms" in cli.fails(*alter, "--add-config", "log.retention.hours=1")
    cli.ok(*alter, "--delete-config", "log.retention.ms")
    assert len(cli.ok("configs", "--describe", *default).lines) == 1
    wrong = cli.misused("configs", "--describe", *default, "--entity-name", "1")
    assert "--entity-default" in wrong


@pytest.mark.parametrize(
    "words", [("--group", "g"), ("--broker", "1"), ("--entity-type", "groups")]
)
def test_settings_of_brokers_and_groups_need_brokers(cli: Cli, words: tuple[str, ...]) -> None:
    assert "--bootstrap-server" in cli.misused("configs", "--describe", *words)
