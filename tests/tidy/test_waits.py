"""A test that sleeps says why: it waits for what it can look at with tests/harness/waiting.py."""

from __future__ import annotations

import ast

from tests.tidy.tree import Source, python_sources

SLEEPS = {"time.sleep", "SYSTEM_CLOCK.sleep_s"}
"""Of the machine's clock; virtual time costs none."""


def unexplained(source: Source) -> list[str]:
    """Return the sleeps of a file that have no comment beside or above them."""
    lines = source.text.splitlines()
    calls = (node for node in ast.walk(source.syntax()) if isinstance(node, ast.Call))
    at = [call.lineno for call in calls if ast.unparse(call.func) in SLEEPS]
    return [
        f"{source.path}:{number}"
        for number in at
        if "#" not in lines[number - 1] and not lines[number - 2].lstrip().startswith("#")
    ]


def test_every_sleep_has_a_reason() -> None:
    assert [where for source in python_sources("tests") for where in unexplained(source)] == []


def test_a_sleep_without_a_reason_is_found() -> None:
    for sleep in SLEEPS:
        text = f"{sleep}(1)\n{sleep}(2)  # frost\n# it thaws\n{sleep}(3)\nclock.sleep_s(4)\n"
        assert unexplained(Source("spring.py", text)) == ["spring.py:1"]
