"""Prose keeps the language rules of CONTRIBUTING.md. A list of debts may only shrink."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

import pytest

from tests.tidy.language import violations_of, violations_of_page, violations_of_source
from tests.tidy.tree import ROOT, tracked_files

DEBT = ROOT / "tests" / "tidy" / "language_debt.txt"
"""A line per file: its violations and its path. A number may be lowered, never raised."""


def known_debt() -> dict[str, int]:
    """Return the number of violations that each file may have."""
    lines = (line.split() for line in DEBT.read_text(encoding="utf-8").splitlines())
    return {path: int(count) for count, path in lines}


def above_debt(found: Mapping[str, int], known: Mapping[str, int]) -> list[str]:
    """Return the files with more violations than listed, and entries that are too high."""
    worse = [
        f"{path}: {count} violations; run python -m tests.tidy.language {path}"
        for path, count in found.items()
        if count > known.get(path, 0)
    ]
    stale = [
        f"{path}: lower its entry to {found.get(path, 0)}"
        for path, count in known.items()
        if found.get(path, 0) < count
    ]
    return worse + stale


@pytest.mark.parametrize(
    ("prose", "rule"),
    [
        ("Who asks for a coordinator is answered.", "opening"),
        ("A producer is told of the error.", "word 'told'"),
        (" ".join(["word"] * 26) + ".", "26 words"),
    ],
)
def test_violation_is_found_in_docstring_and_page(prose: str, rule: str) -> None:
    source = f'"""Summary.\n\n{prose}\n"""\n'
    assert [found.rule for found in violations_of_source(source)] == [rule]
    assert [found.rule for found in violations_of_page(f"# Title\n\n{prose}\n")] == [rule]


@pytest.mark.parametrize(
    "prose",
    [
        "The broker rejects the batch.",
        "What does it cost?",
        " ".join(["word"] * 25) + ".",
        "The name `whoever told` is code.",
        "```\nwhoever is told\n```",
    ],
)
def test_plain_prose_is_left_alone(prose: str) -> None:
    assert list(violations_of_page(prose)) == []


def test_comment_is_read_as_prose() -> None:
    (found,) = violations_of_source("x = 1  # whoever comes first\n")
    assert (found.line, found.rule) == (1, "word 'whoever'")


def test_prose_has_no_violation_above_the_listed_debt() -> None:
    found = {
        name: len(violations_of(ROOT / name))
        for name in tracked_files()
        if PurePosixPath(name).suffix in {".py", ".md"}
    }
    assert above_debt(found, known_debt()) == []


def test_debt_may_only_shrink() -> None:
    assert above_debt({"a": 3, "b": 1}, {"a": 2, "b": 2}) == [
        "a: 3 violations; run python -m tests.tidy.language a",
        "b: lower its entry to 1",
    ]
