"""Each module names the test file that holds it to its docstring; the file reaches the module."""

from __future__ import annotations

from collections.abc import Iterable

from tests.tidy.imports import imported_by, imports_between_modules, package_of
from tests.tidy.tree import ROOT, Source

TABLE = ROOT / "tests" / "tidy" / "tested_by.txt"
"""A line per module: its dotted name and its test file."""


OF_COMMANDS = ("tests/interop/", "tests/spark/", "tests/cli/", "tests/docs/")
"""Tests that start commands, and so import little of what they test."""
PROCESSES = "from tests.harness.broker_processes import"
LOADED_BY_NAME = "sparklog.protocol.messages.newer."
"""`protocol.messages.schemas` imports these by their file's name."""


def listed_tests() -> dict[str, str]:
    """Return the test file of each module."""
    lines = (line.split() for line in TABLE.read_text(encoding="utf-8").splitlines())
    return dict(lines)


def reached(first: Iterable[str], graph: dict[str, set[str]]) -> set[str]:
    """Return all modules that these import, directly or through others."""
    seen: set[str] = set()
    waiting = list(first)
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting += graph.get(module, set())
    return seen


def test_each_module_has_a_test_file_that_reaches_it() -> None:
    graph = imports_between_modules()
    table = listed_tests()
    packages = {module for module in graph if package_of(module) == module}
    assert sorted(graph.keys() - packages) == sorted(table)
    names = frozenset(graph)
    wrong = []
    for module, file in table.items():
        path = ROOT / file
        if not path.is_file():
            wrong.append(f"{module}: no such file: {file}")
            continue
        source = Source(file, path.read_text(encoding="utf-8"))
        harness = _harness_of(source)
        imported = set().union(*(imported_by(part, names) for part in (source, *harness)))
        by_command = file.startswith(OF_COMMANDS) or PROCESSES in source.text
        by_name = module.startswith(LOADED_BY_NAME)
        if not (by_command or by_name or module in reached(imported, graph)):
            wrong.append(f"{module}: {file} does not import it, even indirectly")
    assert wrong == []


def _harness_of(source: Source) -> list[Source]:
    """Return the test helpers that a test file imports."""
    names = frozenset(
        str(path.relative_to(ROOT).with_suffix("")).replace("/", ".")
        for path in (ROOT / "tests").rglob("*.py")
    )
    found: dict[str, Source] = {}
    waiting = [source]
    while waiting:
        for module in imported_by(waiting.pop(), names):
            if module not in found:
                path = ROOT / (module.replace(".", "/") + ".py")
                found[module] = Source(str(path), path.read_text(encoding="utf-8"))
                waiting.append(found[module])
    return list(found.values())
