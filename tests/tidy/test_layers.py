"""Imports go one way: jobs -> console -> cli -> spark -> broker, client -> ... -> core.

Packages on one level never import each other. A library that only one package may know is imported
in no other.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import PurePosixPath

import pytest

from tests.tidy.tree import Source, python_sources

LEVELS: tuple[tuple[str, ...], ...] = (
    ("core",),
    ("protocol", "security", "store"),
    ("log",),
    ("coordinator", "cluster"),
    ("registry",),
    ("broker", "client"),
    ("spark",),
    ("sql",),
    ("sparklog",),  # the package's own list of public names
    ("cli",),
    ("console",),  # the command line loads it by name
    ("jobs",),
)
LEVEL_OF = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
NOT_FOR_TESTING = {"cli", "console", "jobs"}
ONLY_IN_SPARK = {"pyspark", "delta", "py4j"}


def room_of(path: str) -> str:
    """Return the package of a file: `sparklog/log/manifest/view.py` is in `log`."""
    parts = PurePosixPath(path).parts
    if parts[0] != "sparklog":
        return parts[0]
    return parts[1] if len(parts) > 2 else "sparklog"


def room_of_module(module: str) -> str:
    """Return the package of a module of ours, or an empty text for a foreign module."""
    parts = module.split(".")
    if parts[0] == "jobs":
        return "jobs"
    if parts[0] != "sparklog":
        return ""
    return parts[1] if len(parts) > 1 else "sparklog"


def imported_modules(source: Source) -> Iterator[tuple[int, str]]:
    """Yield the line and name of every import, those inside functions and by name included."""
    for node in ast.walk(source.syntax()):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "sparklog":
            yield from (
                (node.lineno, f"sparklog.{alias.name}" if alias.name in LEVEL_OF else "sparklog")
                for alias in node.names
            )
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or ""
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            first = node.args[0] if node.args else None
            if called.endswith(("import_module", "__import__")) and isinstance(first, ast.Constant):
                yield node.lineno, str(first.value)


def wrong_import(room: str, module: str) -> str | None:
    """Return why `room` may not import `module`, or None when it may."""
    target, top = room_of_module(module), module.split(".", maxsplit=1)[0]
    if room == "testing":
        return "testing knows no user interface" if target in NOT_FOR_TESTING else None
    if target == "testing":
        return "only tests import testing"
    if top in ONLY_IN_SPARK and room != "spark":
        return "only sparklog/spark imports Spark"
    if room == "core" and target != "core" and top not in sys.stdlib_module_names:
        return "core imports the standard library only"
    if target in ("", room):
        return None
    if LEVEL_OF[target] >= LEVEL_OF[room]:
        return f"{room} must not import {target}"
    return None


def layer_violations(source: Source) -> list[str]:
    """Return every import of a file that goes the wrong way."""
    room = room_of(source.path)
    return [
        f"{source.path}:{line}: {why}: {module}"
        for line, module in imported_modules(source)
        if (why := wrong_import(room, module))
    ]


@pytest.mark.parametrize(
    ("path", "text", "why"),
    [
        ("sparklog/core/x.py", "import numpy", "standard library only"),
        ("sparklog/core/x.py", "from sparklog.store.base import y", "standard library only"),
        ("sparklog/protocol/x.py", "from sparklog.store import base", "must not import store"),
        ("sparklog/store/x.py", "import sparklog.protocol.codes", "must not import protocol"),
        ("sparklog/log/x.py", "def f():\n    import sparklog.cluster", "must not import cluster"),
        ("sparklog/log/x.py", "from sparklog import open_log", "must not import sparklog"),
        ("sparklog/log/x.py", "from sparklog import spark", "must not import spark"),
        ("sparklog/cluster/x.py", "import pyspark.sql", "only sparklog/spark"),
        ("sparklog/cli/x.py", "from delta import DeltaTable", "only sparklog/spark"),
        ("sparklog/cli/x.py", "from sparklog.console import app", "must not import console"),
        ("sparklog/broker/x.py", "import_module('sparklog.client')", "must not import client"),
        ("sparklog/spark/x.py", "from sparklog.testing import z", "only tests"),
        ("sparklog/testing/x.py", "from sparklog.cli import main", "no user interface"),
        ("sparklog/spark/x.py", "from sparklog import open_log", "must not import sparklog"),
        ("sparklog/__init__.py", "from sparklog.cli import main", "must not import cli"),
        ("jobs/x.py", "import pyspark", "only sparklog/spark"),
    ],
)
def test_an_import_the_wrong_way_is_found(path: str, text: str, why: str) -> None:
    found = layer_violations(Source(path, text))
    assert len(found) == 1
    assert why in found[0]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("sparklog/core/x.py", "import json\nfrom sparklog.core.errors import Fenced"),
        ("sparklog/log/x.py", "import pyarrow\nfrom sparklog.store.base import ObjectStore"),
        (
            "sparklog/spark/x.py",
            "import pyspark\nfrom sparklog.log.manifest.view import PartitionView",
        ),
        ("sparklog/cli/x.py", "from sparklog import open_log\nimport sparklog.spark.jobs.jars"),
        ("sparklog/testing/x.py", "from sparklog.spark import source\nimport pyspark"),
        ("jobs/x.py", "from sparklog.spark.jobs.produce import run"),
    ],
)
def test_an_import_the_right_way_is_left_alone(path: str, text: str) -> None:
    assert layer_violations(Source(path, text)) == []


def test_every_package_has_a_level() -> None:
    rooms = {room_of(source.path) for source in python_sources("sparklog", "jobs")}
    assert rooms - {"testing", "decisions"} <= set(LEVEL_OF)


def test_imports_go_one_way() -> None:
    sources = python_sources("sparklog", "jobs")
    assert len(sources) > 20
    assert [line for source in sources for line in layer_violations(source)] == []
