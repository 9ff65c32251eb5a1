"""Names of tests state a subject and an effect: `test_<subject>_<does>_<when>`."""

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


def riddles(sources: Iterable[Source]) -> list[str]:
    """Return the tests whose names hide their subject or their effect."""
    return [
        f"{source.path}:{node.lineno}: {node.name}"
        for source in sources
        for node in ast.walk(source.syntax())
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and RIDDLES.search(node.name)
        if node.name.startswith("test_")
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
    ],
)
def test_riddle_is_found_in_names_of_tests_alone(name: str, found: bool) -> None:
    assert bool(riddles([Source("tests/test_a.py", f"def {name}() -> None: ...\n")])) is found
