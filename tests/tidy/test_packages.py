"""Packages form a directed acyclic graph: no two packages import each other, even indirectly."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

import pytest

from tests.tidy.imports import imports_between_modules, package_of


def package_graph(modules: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return for each package the other packages that its modules import."""
    graph: dict[str, set[str]] = {}
    for module, imported in modules.items():
        package = package_of(module)
        others = {package_of(name) for name in imported} - {package}
        graph.setdefault(package, set()).update(others)
    return graph


def cycle_of(graph: Mapping[str, set[str]]) -> list[str]:
    """Return the packages of one cycle, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def test_packages_have_no_cycle() -> None:
    graph = package_graph(imports_between_modules())
    graph.pop("sparklog")  # the list of public names, which lower packages never import
    assert len(graph) > 40
    assert cycle_of(graph) == []


def test_modules_have_no_cycle() -> None:
    assert cycle_of(imports_between_modules()) == []


@pytest.mark.parametrize(
    ("modules", "cycle"),
    [
        ({"sparklog.a.x": {"sparklog.b.y"}, "sparklog.b.z": {"sparklog.a.w"}}, True),
        ({"sparklog.a.x": {"sparklog.b.y"}, "sparklog.b.y": {"sparklog.c.z"}}, False),
    ],
)
def test_cycle_is_found_through_different_modules(
    modules: dict[str, set[str]], cycle: bool
) -> None:
    assert bool(cycle_of(package_graph(modules))) is cycle
