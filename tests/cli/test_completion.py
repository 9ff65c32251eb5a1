from __future__ import annotations

import subprocess

import pytest

from tests.cli.conftest import Cli


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_its_options_are_in_the_script(file_cli: Cli, shell: str) -> None:
    script = file_cli.ok("completion", shell).text
    for word in ("topics", "dump-log", "delete-records", "consume"):
        assert word in script
    for option in ("from-beginning", "print-data-log", "offset-json-file", "json"):
        assert option in script
    assert "sparklog topics --list" in script


def complete(script: str, *words: str) -> list[str]:
    """Ask bash what it would offer for the last of `words`."""
    line = " ".join(f"'{word}'" for word in words)
    asked = (
        f"sparklog() {{ echo flights; echo planes; }}\n{script}\nCOMP_WORDS=({line})\n"
        f"COMP_CWORD={len(words) - 1}\n_sparklog\n"
        '[ ${#COMPREPLY[@]} -eq 0 ] || printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-u", "-c", asked], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_options_topics_and_choices(file_cli: Cli) -> None:
    script = file_cli.ok("completion", "bash").text
    assert complete(script, "sparklog", "con") == ["configs", "consume", "console", "conf"]
    assert complete(script, "sparklog", "consume", "--from") == ["--from-beginning"]
    assert complete(script, "sparklog", "consume", "--topic", "pl") == ["planes"]
    assert complete(script, "sparklog", "completion", "") == ["--help", "bash", "fish", "zsh"]
    assert "zstd" in complete(script, "sparklog", "produce", "--compression-codec", "")
    assert complete(script, "sparklog", "get-offsets", "--nope") == []


def test_an_unknown_shell_is_a_usage_error(file_cli: Cli) -> None:
    assert "invalid choice" in file_cli.misused("completion", "tcsh")
