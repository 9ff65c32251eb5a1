"""Names of tests state a subject and an effect, briefly: `test_<subject>_<does>_<when>`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

import pytest

from tests.tidy.tree import Source, python_sources

RIDDLES = re.compile(
    r"^test_(it|where|how|when|which|whether|whose)_"
    r"|_(nobody|somebody|anybody|everybody|who|whom|what|whatever|whoever|told|tells?|hears?|heard)"
    r"(_|$)"
)
"""Words that stand in a name for the subject or for the effect."""
LENGTH_MAX = 65
"""Characters of a name, at most."""


def riddles(sources: Iterable[Source]) -> list[str]:
    """Return the tests whose names hide their subject or their effect, or are too long."""
    return [
        f"{source.path}:{node.lineno}: {node.name}"
        for source in sources
        for node in ast.walk(source.syntax())
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if node.name.startswith("test_")
        if RIDDLES.search(node.name) or len(node.name) > LENGTH_MAX
    ]


def test_names_of_tests_state_subject_and_effect() -> None:
    assert riddles(python_sources("tests")) == []


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("test_who_gives_up_is_told", True),
        ("test_it_is_refused", True),
        ("test_broker_tells_an_error", True),
        ("test_cancelled_caller_does_not_stop_the_thread", False),
        ("test_claim_whose_put_was_repeated_is_ours", False),
        ("what_a_helper_returns", False),
        ("test_" + "a" * 60, False),
        ("test_" + "a" * 61, True),
    ],
)
def test_riddle_and_long_name_are_found_in_tests_alone(name: str, found: bool) -> None:
    assert bool(riddles([Source("tests/test_a.py", f"def {name}() -> None: ...\n")])) is found
