from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from sparklog.cli.main import COMMANDS, main
from tests.cli.conftest import Cli

COMMAND_CALLS = {
    "topics": ["--list"],
    "configs": ["--describe", "--entity-type", "topics"],
    "produce": ["--topic", "t"],
    "consume": ["--topic", "t"],
    "get-offsets": [],
    "delete-records": ["--offset-json-file", "-"],
    "dump-log": ["--topic", "t"],
    "brokers": [],
    "users": ["--list"],
    "acls": ["--list"],
}
BROKER_CALLS = {
    "features": ["--describe"],
    "leader-election": ["--election-type", "preferred", "--all-topic-partitions"],
    "log-dirs": ["--describe"],
    "reassign-partitions": ["--list"],
    "tokens": ["--describe"],
}
"""Calls of commands that only brokers can answer."""
ROOT_ONLY: dict[str, list[str]] = {
    "get": ["t", "key"],
    "find": ["--topic", "t", "--key", "k"],
    "dump-log": ["--topic", "t"],
    "snapshots": ["--list"],
    "iam-policy": ["--principal", "User:a"],
    "doctor": [],
}
"""Calls of commands that only a root can answer."""


def test_the_console_script_is_this_main() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())
    assert project["project"]["scripts"]["sparklog"] == f"{main.__module__}:{main.__name__}"


def test_help_lists_every_command_and_each_has_its_own(cli: Cli) -> None:
    overview = cli.ok("--help").text
    for name in COMMANDS:
        assert f"  {name} " in overview
        assert cli.ok(name, "--help").text.startswith(f"usage: sparklog {name}")


def test_no_command_at_all_shows_the_help_as_an_error(cli: Cli) -> None:
    outcome = cli()
    assert outcome.code == 2
    assert "usage: sparklog COMMAND" in outcome.text


def test_a_misspelt_command_is_answered_with_the_closest(file_cli: Cli) -> None:
    assert "did you mean topics?" in file_cli.misused("topisc")
    assert "choose from" in file_cli.misused("zzz")


def test_the_version_is_the_packages(cli: Cli) -> None:
    assert re.fullmatch(r"sparklog \S.*\n", cli.ok("--version").text)


@pytest.mark.parametrize("command", COMMAND_CALLS)
def test_command_without_a_root_fails_with_one_line(file_cli: Cli, command: str) -> None:
    stdin = b'{"partitions": []}'
    outcome = file_cli(command, *COMMAND_CALLS[command], root="", stdin=stdin)
    assert outcome.code == 2
    (line,) = outcome.errors.splitlines()
    assert "--root" in line
    assert "SPARKLOG_ROOT" in line


@pytest.mark.parametrize("command", [*COMMAND_CALLS, *BROKER_CALLS])
def test_every_command_lists_its_required_options(file_cli: Cli, command: str) -> None:
    text = file_cli.ok(command, "--help").text
    assert ("--root" in text) == (command not in BROKER_CALLS)
    assert ("--bootstrap-server" in text) == (command != "dump-log")
    assert "--json" in text


@pytest.mark.parametrize("command", BROKER_CALLS)
def test_command_for_brokers_fails_with_one_line_without_them(file_cli: Cli, command: str) -> None:
    line = file_cli.misused(command, *BROKER_CALLS[command])
    assert "--bootstrap-server" in line
    assert "SPARKLOG_BOOTSTRAP_SERVER" in line


def test_a_root_and_brokers_together_are_a_usage_error(file_cli: Cli) -> None:
    both = ("--root", file_cli.root, "--bootstrap-server", "127.0.0.1:1")
    assert "two ways to a log" in file_cli.misused("topics", "--list", *both)
    file_cli.bootstrap = "127.0.0.1:1"
    assert "both set" in file_cli.misused("topics", "--list")
    assert file_cli.ok("topics", "--list", "--root", file_cli.root).text == ""


@pytest.mark.parametrize(
    "call",
    [
        ("topics", "--list"),
        ("produce", "--topic", "t"),
        ("consume", "--topic", "t"),
        ("brokers",),
    ],
)
def test_brokers_that_are_not_there_are_one_line(file_cli: Cli, call: tuple[str, ...]) -> None:
    error = file_cli.fails(*call, "--bootstrap-server", "127.0.0.1:1")
    assert "no broker answers" in error
    assert "127.0.0.1:1" in error


def test_an_address_that_is_none_is_named(file_cli: Cli) -> None:
    for address in ("host:port", ":9092", "host:99999", ","):
        assert repr(address) in file_cli.fails("brokers", "--bootstrap-server", address)


def test_the_option_goes_before_the_environment(file_cli: Cli, tmp_path: Path) -> None:
    file_cli.ok("topics", "--create", "--topic", "here")
    other = str(tmp_path / "other")
    nothing = file_cli.ok("topics", "--list", "--root", other)
    assert nothing.text == ""
    assert f"is it the right place? place={other}" in nothing.errors
    assert file_cli.ok("topics", "--list").lines == ["here"]


def test_a_root_of_no_known_kind_is_named(file_cli: Cli) -> None:
    error = file_cli.fails("topics", "--list", "--root", "ftp://host/x")
    assert "ftp://host/x" in error


def test_a_folder_that_cannot_be_had_is_one_line(file_cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "root").write_text("a file where the folder should be")
    assert "a root is a folder" in file_cli.fails("topics", "--create", "--topic", "t")
    below = str(tmp_path / "root" / "log")
    assert "cannot write" in file_cli.fails("topics", "--create", "--topic", "t", "--root", below)


def test_abbreviated_options_are_not_guessed(file_cli: Cli) -> None:
    assert "unrecognized arguments" in file_cli.misused("topics", "--list", "--exclude")


@pytest.mark.parametrize("command", ROOT_ONLY)
@pytest.mark.parametrize("option", [["--bootstrap-server", "a:1"], ["--bootstrap-server=a:1"]])
def test_command_of_a_root_names_it_when_given_brokers(
    cli: Cli, command: str, option: list[str]
) -> None:
    error = cli.misused(command, *option, *ROOT_ONLY[command])
    assert "reads the storage" in error
    assert "give --root URL (or set SPARKLOG_ROOT)" in error
    assert "--bootstrap-server" not in cli.ok(command, "--help").text


@pytest.mark.parametrize("command", [*BROKER_CALLS, "groups", "transactions"])
def test_command_for_brokers_names_them_when_given_a_root(cli: Cli, command: str) -> None:
    error = cli.misused(command, "--root", "log", *BROKER_CALLS.get(command, []))
    assert "give --bootstrap-server HOST:PORT (or set SPARKLOG_BOOTSTRAP_SERVER)" in error
