"""Labels of invariants: `PRODUCE-6` is the sixth invariant of the module `produce`, and no other's.

A label's prefix is the module's name, its package's, or both. So a reader finds the invariant from
any place that mentions it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

import pytest

from tests.tidy.tree import Source, python_sources

DEFINED = re.compile(r"^ *([A-Z]+(?:-[A-Z]+)*)-(\d+): ", re.MULTILINE)
MENTIONED = re.compile(r"(?<![\w-])([A-Z]+(?:-[A-Z]+)*)-(\d+)(?![\w-])")
SHORT = re.compile(r"^ *([A-Z]{1,2}\d{1,2})(?:: |  )", re.MULTILINE)
"""A label without its module."""


def defined(source: Source) -> list[tuple[str, int]]:
    """Return prefix and number of each invariant that a module states, in their order."""
    docstring = ast.get_docstring(source.syntax()) or ""
    return [(prefix, int(number)) for prefix, number in DEFINED.findall(docstring)]


def prefixes_of(path: str) -> set[str]:
    """Return the prefixes that a module's labels may have."""
    parts = PurePosixPath(path).with_suffix("").parts
    module, package = parts[-1], parts[-2]
    names = (module, package, f"{package}-{module}")
    return {name.upper().replace("_", "-") for name in names}


def faults(sources: Sequence[Source]) -> list[str]:
    """Return labels that are short, foreign, taken, or out of order, and mentions of none."""
    found, owners = [], dict[str, str]()
    labels = {source.path: defined(source) for source in sources}
    known = {label for of_module in labels.values() for label in of_module}
    for source in sources:
        docstring = ast.get_docstring(source.syntax()) or ""
        found += [f"{source.path}: {label} lacks a prefix" for label in SHORT.findall(docstring)]
        for at, (prefix, number) in enumerate(labels[source.path], 1):
            label = f"{source.path}: {prefix}-{number}"
            if prefix not in prefixes_of(source.path):
                found.append(f"{label} has the prefix of another module")
            if number != at:
                found.append(f"{label} is number {at}")
            if owners.setdefault(prefix, source.path) != source.path:
                found.append(f"{label} is a label of {owners[prefix]}, too")
    for source in sources:
        for prefix, number in MENTIONED.findall(source.text):
            if prefix in owners and (prefix, int(number)) not in known:
                found.append(f"{source.path}: there is no {prefix}-{number}")
    return found


def test_labels_name_one_invariant_of_their_module() -> None:
    sources = python_sources("sparklog")
    assert sum(len(defined(source)) for source in sources) > 300
    assert faults(sources) == []


def test_mentions_in_tests_name_an_invariant() -> None:
    assert faults(python_sources("sparklog", "tests")) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("P1: Batches wait.", "P1 lacks a prefix"),
        ("FETCH-1: Batches wait.", "prefix of another module"),
        ("PRODUCE-2: Batches wait.", "is number 1"),
        ("PRODUCE-1: Batches wait.\n\nSee PRODUCE-7.", "there is no PRODUCE-7"),
    ],
)
def test_a_wrong_label_is_found(text: str, fault: str) -> None:
    source = Source(
        "sparklog/broker/network/produce.py", f'"""Produce: it appends.\n\n{text}\n"""\n'
    )
    assert fault in faults([source])[0]


def test_a_label_of_two_modules_is_found() -> None:
    text = '"""Produce: it appends.\n\nPRODUCE-1: Batches wait.\n"""\n'
    sources = [Source(f"sparklog/{name}/produce.py", text) for name in ("broker", "client")]
    assert "a label of sparklog/broker/produce.py, too" in faults(sources)[0]
