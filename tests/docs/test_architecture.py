"""Functions that ARCHITECTURE.md names are where it says."""

from __future__ import annotations

import ast
import re
from pathlib import Path

PROJECT = Path(__file__).parents[2]
FUNCTION = re.compile(r"`([a-z_0-9/]+\.py):([A-Za-z_]+)`")


def test_each_function_that_the_page_names_is_there() -> None:
    page = (PROJECT / "sparklog/docs/ARCHITECTURE.md").read_text(encoding="utf-8")
    named = FUNCTION.findall(page)
    assert len(named) > 30
    defined = {file: _functions(PROJECT / "sparklog" / file) for file, _ in named}
    assert [(file, name) for file, name in named if name not in defined[file]] == []


def _functions(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}
