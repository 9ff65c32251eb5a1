"""Modules and functions stay small, and nothing is called by a name that means anything."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import PurePosixPath

import pytest

from tests.tidy.tree import Source, python_sources

MODULE_LINES = 500
MODULE_LINES_EVER = 800
FUNCTION_LINES = 70

LONG_MODULES: Mapping[str, int] = {}
"""Modules over 500 lines with their length. Entries may be lowered or removed, never raised."""

LONG_FUNCTIONS: Mapping[str, int] = {}
"""Functions over 70 lines, as `path:name`. Entries may be lowered or removed, never raised."""

EMPTY_NAMES = {"utils", "util", "common", "helpers", "helper", "misc", "tools", "stuff"}
EMPTY_ENDINGS = ("Manager", "Helper", "Util", "Utils")


def too_long(lengths: Mapping[str, int], bound: int, known: Mapping[str, int]) -> list[str]:
    """Return new names over the bound, and known ones that are no longer over it."""
    found = [
        f"{name} has {lines} lines; split it by idea at {known.get(name, bound)}"
        for name, lines in lengths.items()
        if lines > known.get(name, bound)
    ]
    stale = [
        f"{name} is {lengths.get(name, 0)} lines long now: lower its entry, or remove it"
        for name, lines in known.items()
        if lengths.get(name, 0) < lines
    ]
    return found + stale


def function_lengths(source: Source) -> dict[str, int]:
    """Return the lines of every function, without decorators and docstring."""
    lengths = {}
    for node in ast.walk(source.syntax()):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            documented = ast.get_docstring(node, clean=False) is not None
            first = node.body[0]
            prose = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
            lines = (node.end_lineno or 0) - node.lineno + 1 - prose
            lengths[f"{source.path}:{node.name}"] = lines
    return lengths


def empty_names(source: Source) -> list[str]:
    """Return the file name and class names that say nothing about what is inside."""
    found = [source.path] if PurePosixPath(source.path).stem in EMPTY_NAMES else []
    classes = (node for node in ast.walk(source.syntax()) if isinstance(node, ast.ClassDef))
    found += [f"{source.path}: {c.name}" for c in classes if c.name.endswith(EMPTY_ENDINGS)]
    return found


def _everything() -> tuple[Source, ...]:
    return python_sources("sparklog", "jobs", "tests")


def test_a_module_over_its_bound_and_a_stale_exception_are_found() -> None:
    lengths = {"a.py": 501, "b.py": 500, "c.py": 600, "d.py": 540}
    found = too_long(lengths, 500, {"c.py": 590, "d.py": 550, "gone.py": 700})
    assert [line.split()[0] for line in found] == ["a.py", "c.py", "d.py", "gone.py"]


def test_a_long_function_is_measured_without_its_docstring() -> None:
    body = "".join(f"    x{i} = 1\n" for i in range(70))
    source = Source("m.py", f'def f():\n    """One\n\n    two."""\n{body}')
    assert function_lengths(source) == {"m.py:f": 71}
    assert too_long(function_lengths(source), FUNCTION_LINES, {})


@pytest.mark.parametrize(
    "source",
    [Source("sparklog/log/utils.py", ""), Source("a.py", "class StoreManager: pass")],
    ids=["file", "class"],
)
def test_name_without_a_meaning_is_found(source: Source) -> None:
    assert len(empty_names(source)) == 1


def test_modules_are_short() -> None:
    lengths = {source.path: len(source.text.splitlines()) for source in _everything()}
    assert too_long(lengths, MODULE_LINES, LONG_MODULES) == []
    assert max(lengths.values()) <= MODULE_LINES_EVER


def test_functions_are_short() -> None:
    lengths = {k: v for source in _everything() for k, v in function_lengths(source).items()}
    assert too_long(lengths, FUNCTION_LINES, LONG_FUNCTIONS) == []


def test_module_names_describe_their_contents() -> None:
    assert [line for source in _everything() for line in empty_names(source)] == []
