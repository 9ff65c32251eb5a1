"""The import graph of our modules, lazy imports included and type-checking ones left out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from tests.tidy.tree import ROOT, Source, python_sources


def module_of(path: str) -> str:
    """Return a file's dotted name: `sparklog/log/view.py` is `sparklog.log.view`."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def package_of(module: str) -> str:
    """Return the package a module is in; a package's own file is in that package."""
    own_file = (ROOT / module.replace(".", "/")).is_dir()
    return module if own_file else module.rpartition(".")[0]


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes but those under `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from _nodes(node)


def imported_by(source: Source, modules: frozenset[str]) -> set[str]:
    """Return which of `modules` a file imports."""
    found = set()
    for node in _nodes(source.syntax()):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                found.add(full if full in modules else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & modules


@cache
def imports_between_modules() -> dict[str, set[str]]:
    """Return for each of our modules those of ours that it imports."""
    sources = {module_of(source.path): source for source in python_sources("sparklog")}
    names = frozenset(sources)
    return {module: imported_by(source, names) for module, source in sources.items()}
