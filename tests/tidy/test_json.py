"""JSON from elsewhere goes through one parser, which bounds it."""

from __future__ import annotations

import ast

from tests.tidy.tree import python_sources

PARSERS = {"load", "loads", "JSONDecoder"}
MAY_PARSE = {
    "sparklog/core/bounded_json.py",
    # Files of the installed botocore, with more values than the parser allows.
    "sparklog/store/s3_connection.py",
    # Splits several documents of one value, and catches what the parser raises.
    "sparklog/spark/materialize/rows.py",
}


def _parsers(tree: ast.Module) -> list[str]:
    named = [
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "json"
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "json":
            named += [alias.name for alias in node.names]
    return [name for name in named if name in PARSERS]


def test_json_is_parsed_by_the_bounded_parser_only() -> None:
    found = {
        source.path: names
        for source in python_sources("sparklog", "jobs")
        if source.path not in MAY_PARSE and (names := _parsers(source.syntax()))
    }
    assert not found, f"use parse_json of sparklog/core/bounded_json.py: {found}"
