"""An interface has two implementations, or it is a class or a callable.

A reader who meets an interface has to look for its implementation; with only one there is nothing
to choose. A class or a module implements a Protocol when it has all its members, inherited ones
included. An interface that only names a callable's keyword arguments is no subject of this rule.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pytest

from tests.tidy.tree import Source, python_sources

REASONS: Mapping[str, str] = {
    "DurableSink": "LeaderPartition is in broker/partition, which imports broker/wal",
    "MetadataAccess": "MetadataLog is in broker/controller, which imports broker/runtime",
    "SimNode": "the other implementation is in tests/sim/toy_broker.py",
}
"""Interfaces with fewer than two classes that implement them, and the reason of each. The list may
only shrink."""


@dataclass
class Interface:
    """A class as far as it matters here: its bases, and the members that it sets itself."""

    bases: tuple[str, ...]
    members: frozenset[str]
    own: bool
    """It is an interface."""

    @property
    def is_callable(self) -> bool:
        """Return whether it names a callable's keyword arguments, as `Callable` cannot."""
        return self.members == {"__call__"}


def _members(node: ast.ClassDef) -> frozenset[str]:
    """Return methods, fields, and attributes that methods set on `self`."""
    found: set[str] = set()
    for child in node.body:
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add(child.name)
        elif isinstance(child, ast.AnnAssign):
            found.add(ast.unparse(child.target))
        elif isinstance(child, ast.Assign):
            found |= {ast.unparse(target) for target in child.targets}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store):
            found |= {inner.attr} if ast.unparse(inner.value) == "self" else set()
    return frozenset(found)


def _functions(module: ast.Module) -> frozenset[str]:
    """Return the functions of a module: a module implements a Protocol as well."""
    return frozenset(n.name for n in module.body if isinstance(n, ast.FunctionDef))


def classes_of(sources: Iterable[Source]) -> dict[str, Interface]:
    """Return all classes by name; names are unique in the project (test_names.py)."""
    found: dict[str, Interface] = {}
    for source in sources:
        for node in ast.walk(source.syntax()):
            if isinstance(node, ast.ClassDef):
                bases = tuple(ast.unparse(base).partition("[")[0] for base in node.bases)
                own = bool({"Protocol", "ABC"} & set(bases))
                found[node.name] = Interface(bases, _members(node), own)
    return found


def _all_members(name: str, classes: Mapping[str, Interface]) -> frozenset[str]:
    """Return the members of a class and of its bases, as far as they are ours."""
    if name not in classes:
        return frozenset()
    bases = (_all_members(base.rpartition(".")[2], classes) for base in classes[name].bases)
    return classes[name].members.union(*bases)


def implementations(sources: Iterable[Source]) -> dict[str, list[str]]:
    """Return for each interface the classes that implement it."""
    sources = list(sources)
    classes = classes_of(sources)
    for source in sources:
        classes.setdefault(source.path, Interface((), _functions(source.syntax()), own=False))
    members = {name: _all_members(name, classes) for name in classes}
    found: dict[str, list[str]] = defaultdict(list)
    for name, interface in classes.items():
        if interface.own and not interface.is_callable:
            found[name] = [
                other
                for other, one in classes.items()
                if not one.own and interface.members <= members[other]
            ]
    return found


def too_few(sources: Iterable[Source], reasons: Mapping[str, str]) -> list[str]:
    """Return unlisted interfaces with fewer than two implementations, and listed ones with two."""
    found = implementations(sources)
    few = {name for name, classes in found.items() if len(classes) < 2}
    new = [f"{name}: use {found[name] or 'a callable'} itself" for name in few - set(reasons)]
    stale = [f"{name}: remove it from the list" for name in set(reasons) - few]
    return sorted(new + stale)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("class A(Protocol):\n  def f(self): ...\nclass B:\n  def f(self): ...", ["A: use ['B']"]),
        (
            "class A(ABC):\n  x: int\nclass B(A):\n  x = 1\nclass C(B): pass",
            [],
        ),
        (
            "class A(Protocol):\n  x: int\nclass B:\n  def g(self): self.x = 1\nclass C:\n  x = 1",
            [],
        ),
        ("class A(Protocol[T]):\n  def f(self): ...", ["A: use a callable"]),
        ("class A(Protocol):\n  def __call__(self, *, name: str): ...", []),
        ("class Listed: pass", ["Listed: remove it"]),
    ],
)
def test_interface_with_one_implementation_is_found(text: str, found: list[str]) -> None:
    reasons = {"Listed": "a reason"} if "Listed" in text else {}
    lines = too_few([Source("x.py", text)], reasons)
    assert [
        line for line, start in zip(lines, found, strict=True) if line.startswith(start)
    ] == lines


def test_interfaces_have_two_implementations_or_a_reason() -> None:
    sources = python_sources("sparklog")
    assert len(implementations(sources)) > 15
    assert too_few(sources, REASONS) == []
