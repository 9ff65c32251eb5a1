from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from sparklog.cluster.log import Log
from sparklog.core.topic_names import JOBS_TOPIC
from tests.cli.conftest import Cli


def append(log: Log, topic: str, partition: int, stamps_ms: list[int]) -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"x"] * len(stamps_ms), pa.binary()),
            "timestamp": pa.array(
                [datetime.fromtimestamp(s / 1000, UTC) for s in stamps_ms],
                pa.timestamp("ms", tz="UTC"),
            ),
        }
    )
    log.partition(topic, partition).append([rows])


@pytest.fixture
def filled(file_cli: Cli, log: Log) -> Cli:
    for topic, partitions in (("t", 11), ("u", 1), ("__consumer_offsets", 1)):
        log.create_topic(topic, partitions, by_cluster=topic.startswith("__"))
    append(log, "t", 0, [1000, 3000, 2000])
    append(log, "t", 2, [500])
    return file_cli


def test_log_ends_of_all_partitions_are_the_default(filled: Cli, log: Log) -> None:
    lines = filled.ok("get-offsets").lines
    assert len(lines) == 13
    assert lines[0] == "__consumer_offsets:0:0"
    assert lines[1:5] == ["t:0:3", "t:1:0", "t:2:1", "t:3:0"]
    assert lines[-2:] == ["t:10:0", "u:0:0"]
    log.create_topic(JOBS_TOPIC, by_cluster=True)
    assert len(filled.ok("get-offsets", "--exclude-internal-topics").lines) == 12


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("-1", ["t:0:3", "t:2:1"]),
        ("latest", ["t:0:3", "t:2:1"]),
        ("-2", ["t:0:1", "t:2:0"]),
        ("earliest", ["t:0:1", "t:2:0"]),
        ("-3", ["t:0:1", "t:2:0"]),
        ("max-timestamp", ["t:0:1", "t:2:0"]),
        ("600", ["t:0:1"]),
        ("2500", ["t:0:1"]),
        ("9999", []),
    ],
)
def test_a_time_is_looked_up_as_kafkas_tool_does(
    filled: Cli, log: Log, time: str, expected: list[str]
) -> None:
    log.partition("t", 0).delete_records(1)
    found = filled.ok("get-offsets", "--topic", "t", "--partitions", "0,2", "--time", time)
    assert found.lines == expected


def test_json_has_minus_one_where_text_is_empty(filled: Cli) -> None:
    argv = ("get-offsets", "--topic", "t", "--partitions", "0,2", "--time", "600", "--json")
    assert filled.ok(*argv).documents == [
        {"topic": "t", "partition": 0, "offset": 0, "timestamp": 1000},
        {"topic": "t", "partition": 2, "offset": -1, "timestamp": -1},
    ]


@pytest.mark.parametrize(
    ("patterns", "partitions"),
    [
        ("t:1", ["t:1"]),
        ("t:0-2", ["t:0", "t:1"]),
        ("t:9-", ["t:9", "t:10"]),
        ("t:-2", ["t:0", "t:1"]),
        ("u,t:3", ["t:3", "u:0"]),
        (":0", ["__consumer_offsets:0", "t:0", "u:0"]),
        ("[tu]:0", ["t:0", "u:0"]),
    ],
)
def test_topic_partition_patterns_choose(filled: Cli, patterns: str, partitions: list[str]) -> None:
    found = filled.ok("get-offsets", "--topic-partitions", patterns).lines
    assert [line.rpartition(":")[0] for line in found] == partitions


def test_pattern_without_a_match_is_an_error(filled: Cli) -> None:
    assert "wanted=nope" in filled.fails("get-offsets", "--topic", "nope")
    assert "wanted=t 99" in filled.fails("get-offsets", "--topic", "t", "--partitions", "99")
    assert "wanted=u:5" in filled.fails("get-offsets", "--topic-partitions", "u:5")


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--time", "tomorrow"], "malformed time"),
        (["--time", "-4"], "malformed time"),
        (["--partitions", "a"], "--partitions takes numbers"),
        (["--topic-partitions", "t:a"], "not a topic and partition pattern"),
        (["--topic-partitions", "t", "--topic", "t"], "cannot be used with"),
    ],
)
def test_a_call_that_makes_no_sense_is_a_usage_error(
    filled: Cli, argv: list[str], problem: str
) -> None:
    assert problem in filled.misused("get-offsets", *argv)
