from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from sparklog.cluster.log import Log
from sparklog.sql.key_state import newest_record
from sparklog.sql.topics import RootTopics
from tests.cli.conftest import Cli
from tests.harness.log_records import batch
from tests.harness.processor_time import processor_seconds
from tests.harness.waiting import eventually

STARTED_CPU_S = 4.0
"""Processor time that a process uses only in a query: it starts in less than two seconds of it."""
START_TIMEOUT_S = 60.0


@pytest.fixture
def filled(file_cli: Cli, log: Log) -> Cli:
    log.create_topic("orders", 2, {"sparklog.key.index": "bloom"})
    for turn in range(3):
        for partition in range(2):
            values = [
                json.dumps({"n": turn, "who": f"u{partition}"}).encode(),
                b"\xff\x1b[1m",
                None,
            ]
            rows = batch(values, keys=[b"ann", b"bob", None], headers=[[("h", b"x")], None, None])
            log.partition("orders", partition).append([rows])
    return file_cli


def test_rows_are_printed_as_a_table(filled: Cli) -> None:
    found = filled.ok("sql", "select partition, offset, value from orders where offset < 3")
    assert found.lines[:3] == [
        "partition | offset | value",
        "----------+--------+----------------------",
        '0         | 0      | {"n": 0, "who": "u0"}',
    ]
    assert found.lines[3:5] == ["0         | 1      | \\xff1b5b316d", "0         | 2      | null"]
    assert len(found.lines) == 8
    assert filled.ok("sql", "select 1 as x where false").text == ""


def test_rows_are_printed_as_csv_json_and_parquet(filled: Cli, tmp_path: Path) -> None:
    statement = "select offset, key, value, headers from orders where partition = 0 limit 2"
    rows = list(csv.reader(filled.ok("sql", statement, "--output", "csv").lines))
    assert rows[0] == ["offset", "key", "value", "headers"]
    assert rows[1][3] == '[{"key": "h", "value": "x"}]'
    assert rows[2] == ["1", "bob", "\\xff1b5b316d", ""]
    first, second = filled.ok("sql", statement, "--json").documents
    assert first["headers"] == [{"key": "h", "value": "x"}]
    assert second["value"] == {"base64": "/xtbMW0="}
    assert filled.ok("sql", statement, "--output", "json").documents == [first, second]
    file = tmp_path / "rows.parquet"
    filled.ok("sql", statement, "--output", "parquet", "--file", str(file))
    assert pq.read_table(file).column("key").to_pylist() == [b"ann", b"bob"]


def test_values_have_the_schema_of_a_file(filled: Cli, tmp_path: Path) -> None:
    schema = tmp_path / "order.json"
    schema.write_text('{"type": "object", "properties": {"n": {"type": "integer"}}}')
    words = ("sql", "select max(n) as n from bare.orders where offset = 3")
    given = f"orders={schema}"
    assert filled.ok(*words, "--value-schema", given, "--json").documents == [{"n": 1}]
    assert "--value-schema TOPIC=FILE" in filled.fails(*words)
    filled.misused(*words, "--value-schema", str(schema))


def test_rows_are_appended_to_a_topic(filled: Cli, log: Log) -> None:
    log.create_topic("copies")
    done = filled.ok("sql", "select key, value, headers from orders", "--to-topic", "copies")
    assert done.output == b""
    assert "appended 18 records to copies" in done.errors
    copied = "select key, value, headers from {} order by all"
    copies = filled.ok("sql", copied.format("copies"), "--json").documents
    assert copies == filled.ok("sql", copied.format("orders"), "--json").documents
    log.create_topic("sums")
    statement = "select key, count(*) as n from orders where key is not null group by all"
    filled.ok("sql", statement, "--to-topic", "sums")
    sums = filled.ok("sql", "select key, n from json.sums order by key", "--output", "csv").lines
    assert sums == ["key,n", "ann,6", "bob,6"]


def test_options_limit_a_query(filled: Cli) -> None:
    cut = filled.ok("sql", "select offset from orders", "--max-rows", "4", "--output", "csv")
    assert len(cut.lines) == 5
    assert "there are more rows" in cut.errors
    endless = "select count(*) from range(1000000000000) t(i) where i % 7 = 3"
    assert "time limit" in filled.fails("sql", endless, "--timeout", "1")
    wide = "select count(distinct repeat('a', 99) || i) from range(10000000) t(i)"
    assert "more memory" in filled.fails("sql", wide, "--memory", "64MB")
    lenient = filled.ok("sql", "select n from json.orders", "--decode-errors", "null", "--json")
    assert [row["n"] for row in lenient.documents][:3] == [0, None, None]
    assert "could not convert" in filled.fails("sql", "select n from json.orders")


def test_explain_shows_the_segments(filled: Cli) -> None:
    shown = filled.ok("sql", "explain select value from orders where partition = 1").text
    assert "scan of orders:" in shown
    assert "3 to read of 6" in shown


def test_wrong_statement_is_reported_in_one_line(filled: Cli) -> None:
    assert "near='nope'" in filled.fails("sql", "select nope from orders")
    assert "did you mean orders?" in filled.fails("sql", "from Orders")
    assert "only read" in filled.fails("sql", "delete from orders")


@pytest.mark.parametrize(
    "words",
    [
        ["--output", "parquet"],
        ["--output", "csv", "--file", "x"],
        ["--output", "csv", "--json"],
        ["--to-topic", "x", "--json"],
        ["--memory", "much"],
    ],
)
def test_options_that_contradict_each_other_are_refused(filled: Cli, words: list[str]) -> None:
    filled.misused("sql", "select 1", *words)


def test_an_interrupt_stops_a_query_at_once(filled: Cli) -> None:
    endless = "select count(*) from range(1000000000000) t(i) where i % 7 = 3"
    program = "from sparklog.cli.main import main; raise SystemExit(main())"
    command = [sys.executable, "-c", program, "sql", endless]
    environment = {**os.environ, "SPARKLOG_ROOT": filled.root}
    with subprocess.Popen(command, env=environment) as running:
        try:
            eventually(
                lambda: processor_seconds(running.pid) > STARTED_CPU_S,
                "the query runs", START_TIMEOUT_S,
            )  # fmt: skip
            running.send_signal(signal.SIGINT)
            assert running.wait(timeout=20) == 130
        finally:
            running.kill()


def test_newest_value_of_a_key_is_printed(filled: Cli, log: Log) -> None:
    found = filled.ok("get", "orders", "ann", "--partition", "0")
    assert json.loads(found.text) == {"n": 2, "who": "u0"}
    (document,) = filled.ok("get", "orders", "ann", "--partition", "1", "--json").documents
    assert (document["partition"], document["offset"], document["key"]) == (1, 6, "ann")
    absent = filled("get", "orders", "nope")
    assert (absent.code, absent.output) == (1, b"")
    assert "where Kafka's producers put it; --partition N looks elsewhere" in absent.errors
    absent = filled("get", "orders", "nope", "--partition", "1")
    assert "no record has the key in partition 1. topic=orders" in absent.errors
    log.partition("orders", 0).append([batch([None], keys=[b"ann"])])
    deleted = filled("get", "orders", "ann", "--partition", "0")
    assert (deleted.code, deleted.output) == (1, b"")
    assert "tombstone" in deleted.errors
    assert "no such topic" in filled.fails("get", "nope", "ann")
    assert "no such partition" in filled.fails("get", "orders", "ann", "--partition", "7")


def test_records_without_the_key_are_not_found(log: Log) -> None:
    log.create_topic("empty")
    with RootTopics(log) as topics:
        assert newest_record(topics, "empty", b"x") is None
