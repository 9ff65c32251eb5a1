"""Names are found by what they mean: no class name twice, modules are nouns, not participles."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable

from tests.tidy.tree import Source, python_sources

GERUNDS = frozenset(
    {
        "batching",
        "hedging",
        "recovering",
        "retrying",
        "routing",
        "sealing",
        "splitting",
        "staging",
        "streaming",
        "tracking",
        "serving",
        "file_recycling",
        "virtual_loop",
    }
)
"""Gerunds that are the field's own nouns for a mechanism. The list may only shrink."""

PARTICIPLES = re.compile(
    r"(^|_)(led|told|asked|held|taken|followed|known|referred|administered)(_|$)"
)


def repeated_classes(sources: Iterable[Source]) -> list[str]:
    """Return the class names that more than one module defines."""
    places: dict[str, set[str]] = defaultdict(set)
    for source in sources:
        for node in ast.walk(source.syntax()):
            if isinstance(node, ast.ClassDef):
                places[node.name].add(source.path)
    return [f"{name}: {sorted(at)}" for name, at in sorted(places.items()) if len(at) > 1]


def unclear_modules(paths: Iterable[str]) -> list[str]:
    """Return the modules that are named by a participle, or by a gerund that is not listed."""
    found = []
    for path in paths:
        stem = path.rsplit("/", 1)[-1].removesuffix(".py")
        gerund = stem.endswith("ing") and stem not in GERUNDS
        if gerund or PARTICIPLES.search(stem):
            found.append(path)
    return found


def test_class_names_are_unique() -> None:
    assert repeated_classes(python_sources("sparklog")) == []


def test_modules_are_named_by_nouns() -> None:
    paths = [source.path for source in python_sources("sparklog")]
    assert len(paths) > 300
    assert unclear_modules(paths) == []


def test_repeated_class_and_unclear_module_are_found() -> None:
    twice = [Source("a.py", "class Turn: pass"), Source("b.py", "class Turn: pass")]
    assert repeated_classes(twice) == ["Turn: ['a.py', 'b.py']"]
    assert unclear_modules(["x/led_log.py", "x/producing.py", "x/staging.py"]) == [
        "x/led_log.py",
        "x/producing.py",
    ]
