"""Rows of records as they arrive, through the death of a leader."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from sparklog.cli.console.arrival_printer import opened_source
from sparklog.cli.main import parser_of
from sparklog.cluster.log import Log, open_log
from sparklog.core.errors import InvalidRequest
from sparklog.sql.arrivals import ArrivalQuery
from sparklog.sql.topics import RootTopics
from sparklog.testing.cluster import SparklogCluster
from tests.cli.conftest import Cli
from tests.harness.log_records import batch

LATENCY_MAX_S = 2.0
"""Far above the 0.1 s that are the aim: other processes of the suite use the same processors."""


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("select count(*) from orders", "operators=UNGROUPED_AGGREGATE"),
        ("select offset from orders order by offset", "operators=ORDER_BY"),
        ("select offset from orders limit 3", "operators=STREAMING_LIMIT"),
        ("select a.offset from orders a join orders b using (offset)", "operators=HASH_JOIN"),
        ("select 1", "a SELECT from one topic"),
        ("explain select offset from orders", "a SELECT from one topic"),
        ("select nope from orders", "near='nope'"),
    ],
)
def test_queries_that_need_other_records_are_refused(log: Log, statement: str, reason: str) -> None:
    log.create_topic("orders")
    with RootTopics(log) as topics, pytest.raises(InvalidRequest, match=reason):
        ArrivalQuery(topics, statement)


def test_rows_of_a_root_are_printed_from_the_beginning(file_cli: Cli, log: Log) -> None:
    log.create_topic("orders", 2)
    for number in range(4):
        row = json.dumps({"n": number, "who": "ann" if number % 2 else "bob"}).encode()
        log.partition("orders", number % 2).append([batch([row])])
    statement = "select n, partition from json.orders where who = 'ann'"
    found = file_cli.ok(
        "sql", statement, "--follow", "--from-beginning", "--max-rows", "2", "--json"
    )
    assert found.documents == [{"n": 1, "partition": 1}, {"n": 3, "partition": 1}]
    file_cli.misused("sql", statement, "--follow", "--to-topic", "x")
    file_cli.misused("sql", statement, "--from-beginning")


def test_each_record_arrives_once_through_a_leaders_death(tmp_path: Path) -> None:
    _, parser = parser_of("sql")
    with SparklogCluster(brokers=3, root=str(tmp_path / "root")) as cluster:
        cluster.topic("orders", partitions=1, replication_factor=3)
        statement = "select offset, text(value) as v from orders where offset % 2 = 0"
        args = parser.parse_args([statement, "--follow", "--root", cluster.root])
        with (
            open_log(cluster.root) as log,
            RootTopics(log) as topics,
            ArrivalQuery(topics, statement) as query,
            opened_source(args, topics, query) as source,
        ):
            found: list[tuple[int, str]] = []

            def follow(rows: int) -> float:
                began = time.monotonic()
                while len(found) < rows and time.monotonic() - began < 60:
                    for arrived in source.ready(None):
                        for some in query.answer(arrived.topic_partition, arrived.batch):
                            found.extend((r["offset"], r["v"]) for r in some.to_pylist())
                    source.wait(0.05)
                return time.monotonic() - began

            cluster.produce("orders", [b"0", b"1"])
            follow(1)
            cluster.produce("orders", [b"2", b"3"])
            assert follow(2) < LATENCY_MAX_S
            cluster.kill(cluster.leader("orders"))
            cluster.produce("orders", [b"%d" % number for number in range(4, 20)])
            follow(10)
            source.wait(1.0)
            follow(10)
            assert found == [(number, str(number)) for number in range(0, 20, 2)]
