"""Users on the command line, of a root that no broker serves."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from sparklog.cluster.log import open_log
from sparklog.security.sasl.credentials import ScramMechanism
from tests.cli.conftest import Cli
from tests.cli.test_process import COMMAND, DEADLINE_S

PASSWORD = "correct-horse"
BOTH = "SCRAM-SHA-256=iterations=4096, SCRAM-SHA-512=iterations=4096"


def add(cli: Cli, name: str, *options: str, password: str = PASSWORD) -> str:
    given = ("--password-stdin", *options)
    return cli.ok("users", "--add", name, *given, stdin=f"{password}\n".encode()).text


def proves(root: str, name: str, password: str) -> list[bool]:
    """Return whether a password is right, for each mechanism of a user."""
    with open_log(root) as log:
        credentials = log.refresh().scram_credentials[name]
    return [credentials[one].proves(one, password) for one in sorted(credentials)]


def test_user_is_added_changed_described_and_removed(file_cli: Cli) -> None:
    assert add(file_cli, "alice") == "Added user alice.\n"
    assert proves(file_cli.root, "alice", PASSWORD) == [True, True]
    assert add(file_cli, "alice", password="other") == "Changed the password of user alice.\n"
    assert proves(file_cli.root, "alice", PASSWORD) == [False, False]
    assert proves(file_cli.root, "alice", "other") == [True, True]
    add(file_cli, "bob")
    assert file_cli.ok("users", "--list").lines == ["alice", "bob"]
    described = file_cli.ok("users", "--describe", "bob").text
    assert described == f"SCRAM credential configs for user-principal 'bob' are {BOTH}\n"
    assert file_cli.ok("users", "--remove", "alice").text == "Removed user alice.\n"
    assert file_cli.ok("users", "--list").lines == ["bob"]


def test_one_mechanism_is_set_and_removed_alone(cli: Cli) -> None:
    add(cli, "alice")
    options = ("--mechanism", "SCRAM-SHA-256", "--iterations", "8192", "--password-stdin", "--json")
    changed = cli.ok("users", "--add", "alice", *options, stdin=b"new")
    assert "SCRAM-SHA-512 keeps its own password" in changed.errors
    assert changed.documents == [
        {
            "user": "alice",
            "credentials": [
                {"mechanism": "SCRAM-SHA-256", "iterations": 8192},
                {"mechanism": "SCRAM-SHA-512", "iterations": 4096},
            ],
        }
    ]
    removed = cli.ok("users", "--remove", "alice", "--mechanism", "SCRAM-SHA-512").text
    assert removed == "Removed credentials of user alice; left: SCRAM-SHA-256.\n"
    again = cli.fails("users", "--remove", "alice", "--mechanism", "SCRAM-SHA-512")
    assert "no such credential" in again
    assert cli.ok("users", "--list", "--json").documents == [
        {"user": "alice", "credentials": [{"mechanism": "SCRAM-SHA-256", "iterations": 8192}]}
    ]


def test_unknown_users_are_named(cli: Cli) -> None:
    assert "user='nope'" in cli.fails("users", "--describe", "nope")
    assert "user='nope'" in cli.fails("users", "--remove", "nope")


def test_password_file_has_one_line(file_cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(f"{PASSWORD}\r\n".encode())
    file_cli.ok("users", "--add", "alice", "--password-file", str(file))
    assert proves(file_cli.root, "alice", PASSWORD) == [True, True]
    file.write_bytes(b"user=alice\npassword=hidden\n")
    error = file_cli.fails("users", "--add", "bob", "--password-file", str(file))
    assert "one line" in error
    assert "hidden" not in error
    assert file_cli.ok("users", "--list").lines == ["alice"]


@pytest.mark.parametrize(
    ("password", "why"),
    [(b"", "1 to 4096 bytes"), (b"\xff", "UTF-8"), (b"x" * 5000, "4096"), (b"a\nb", "one line")],
)
def test_unusable_passwords_are_rejected_and_not_shown(cli: Cli, password: bytes, why: str) -> None:
    error = cli.fails("users", "--add", "alice", "--password-stdin", stdin=password)
    assert why in error
    assert not password or password.decode("latin-1") not in error
    assert cli.ok("users", "--list").lines == []


def test_unusable_names_and_iterations_are_rejected(cli: Cli) -> None:
    for name in ("", "x" * 256, "a\x1b"):
        error = cli.fails("users", "--add", name, "--password-stdin", stdin=b"pw")
        assert "printable" in error
        assert "\x1b" not in error
    for number in ("4095", "16385"):
        given = ("--iterations", number, "--password-stdin")
        assert number in cli.fails("users", "--add", "a", *given, stdin=b"pw")
    assert cli.ok("users", "--list").lines == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--list", "--password-stdin"), "does not go with --list"),
        (("--remove", "a", "--iterations", "4096"), "does not go with --remove"),
        (("--add", "a", "--password-stdin", "--password-file", "f"), "give one"),
        (("--add", "a"), "no terminal"),
        (("--add", "a", "--password", "secret"), "unrecognized arguments"),
        (("--list", "--remove", "a"), "not allowed with"),
        ((), "one of the arguments"),
    ],
)
def test_contradicting_options_of_users_are_misuse(
    cli: Cli, words: tuple[str, ...], why: str
) -> None:
    assert why in cli.misused("users", *words)


def test_prompt_shows_no_password(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, "users", "--root", root, "--add", "alice"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        shown = b""
        for prompt in (b"password of 'alice': ", b"the same again: "):
            while not shown.endswith(prompt):
                shown += os.read(ours, 100)
            os.write(ours, f"{PASSWORD}\n".encode())
        while b"Added user alice." not in shown:
            shown += os.read(ours, 100)
        assert process.wait(DEADLINE_S) == 0
        os.close(ours)
    assert PASSWORD.encode() not in shown
    assert proves(root, "alice", PASSWORD) == [True, True]


def test_no_object_of_the_bucket_contains_the_password(file_cli: Cli) -> None:
    outcome = file_cli.ok("users", "--add", "alice", "--password-stdin", stdin=b"correct-horse")
    assert PASSWORD not in outcome.text + outcome.errors
    files = [file for file in Path(file_cli.root).rglob("*") if file.is_file()]
    assert files
    assert not any(PASSWORD.encode() in file.read_bytes() for file in files)
    with open_log(file_cli.root) as log:
        image = log.refresh()
        assert log.users() == {"alice": dict.fromkeys(ScramMechanism, 4096)}
        stored_key = image.scram_credentials["alice"][ScramMechanism.SHA_256].stored_key
        assert repr(stored_key)[2:-1] not in repr(image) + repr(image.scram_credentials)
    dumped = file_cli.ok("dump-log", "--topic", "__cluster_metadata", "--print-data-log")
    assert PASSWORD not in dumped.text
