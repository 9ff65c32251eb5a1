"""The page about SQL: its statements and commands run as written."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparklog import Log, open_log
from sparklog.cli.main import main, parser_of
from sparklog.cluster.named_snapshots import create_snapshot
from sparklog.registry import decisions
from sparklog.registry.model.schema import read_content
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.schema_log import RootSchemaLog
from tests.harness.log_records import batch

PAGE = Path(__file__).resolve().parents[2] / "sparklog" / "docs" / "SQL.md"
TEXT = PAGE.read_text(encoding="utf-8")
STATEMENTS: list[str] = re.findall(
    r"`((?:SELECT|EXPLAIN SELECT|DESCRIBE json|SHOW TABLES)\b[^`…]*)`", TEXT
)
PROTO = 'syntax = "proto3"; package shop; message Order { int64 id = 1; }'
AVRO = """{"type": "record", "name": "Order", "fields":
    [{"name": "id", "type": "long"}, {"name": "who", "type": "string"}]}"""
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if line.startswith("sparklog ")
]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    root = tmp_path_factory.mktemp("page").as_uri()
    with open_log(root) as opened:
        for topic in ("t", "u", "orders"):
            opened.create_topic(topic)
            fields = [{"id": n, "name": f"n{n}", "amount": n * 1.5, "ts": n} for n in range(4)]
            values = [json.dumps(one).encode() for one in fields]
            rows = batch(values, keys=[b"ann"] * 4, headers=[[("h", b"x")]] * 4)
            opened.partition(topic, 0).append([rows])
        create_snapshot(opened, "name", ["orders"])
        yield opened


def test_statements_of_the_page_run(log: Log) -> None:
    assert len(STATEMENTS) > 20
    for statement in STATEMENTS:
        assert log.sql(statement).num_columns, statement


def test_commands_of_the_page_run(
    log: Log, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log.create_topic("shouted")
    registry = SchemaRegistry(RootSchemaLog(log))
    text = '{"type":"object","properties":{"id":{"type":"integer"},"amount":{"type":"number"}}}'
    candidate = registry.candidate(
        "orders-value", read_content({"schema": text, "schemaType": "JSON"})
    )
    registry.change(lambda state, parsed: decisions.register(state, candidate, parsed))
    monkeypatch.setenv("SPARKLOG_ROOT", log.store.url)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.proto").write_text(PROTO)
    (tmp_path / "orders.avsc").write_text(AVRO)
    assert len(COMMANDS) > 8
    for command in COMMANDS:
        words = shlex.split(command)[1:]
        if "--serve" in words or "--schema-registry" in words:  # they need a server, or are one
            parser_of(words[0])[1].parse_args(words[1:])
            continue
        if "--follow" in words:
            words += ["--from-beginning", "--max-rows", "1"]
        if any("registry.orders" in word or "bare.orders" in word for word in words):
            words += ["--decode-errors", "null"]
        assert main(words) == 0, command


def test_the_python_example_of_the_page_runs(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"^```py\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    found: dict[str, Any] = {}
    exec(example.replace('"/data/log"', repr(log.store.url)), found)
    assert found["table"].to_pylist() == [{"partition": 0, "count_star()": 4}]
    assert json.loads(found["value"])["id"] == 3
