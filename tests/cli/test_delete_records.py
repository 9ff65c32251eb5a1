from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparklog.cluster.log import Log
from sparklog.core.topic_names import JOBS_TOPIC
from tests.cli.conftest import Cli


def offsets(*entries: tuple[object, object, object]) -> bytes:
    partitions = [{"topic": t, "partition": p, "offset": o} for t, p, o in entries]
    return json.dumps({"partitions": partitions, "version": 1}).encode()


@pytest.fixture
def filled(cli: Cli) -> Cli:
    cli.ok("topics", "--create", "--topic", "t")
    cli.ok("produce", "--topic", "t", stdin=b"a\nb\nc\n")
    return cli


def test_records_before_the_offset_are_gone(filled: Cli, tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    file.write_bytes(offsets(("t", 0, 2)))
    assert filled.ok("delete-records", "--offset-json-file", str(file)).lines == [
        "Executing records delete operation",
        "Records delete operation completed:",
        "partition: t-0\tlow_watermark: 2",
    ]
    left = filled.ok("consume", "--topic", "t", "--from-beginning", "--timeout-ms", "0")
    assert left.lines == ["c"]
    assert filled.ok("get-offsets", "--topic", "t", "--time", "earliest").lines == ["t:0:2"]


def test_minus_one_means_every_record(filled: Cli) -> None:
    argv = ("delete-records", "--offset-json-file", "-", "--json")
    assert filled.ok(*argv, stdin=offsets(("t", 0, -1))).documents == [
        {"topic": "t", "partition": 0, "lowWatermark": 3}
    ]


def test_a_partition_that_fails_is_named_and_the_others_are_done(filled: Cli) -> None:
    given = offsets(("t", 0, 4), ("t", 7, 0), ("nope", 0, 0))
    argv = ("delete-records", "--offset-json-file", "-")
    outcome = filled(*argv, stdin=given)
    assert outcome.code == 1
    assert outcome.errors == "error: records of 3 of 3 partitions were not deleted\n"
    assert [line.split("\t")[0] for line in outcome.lines[2:]] == [
        "partition: t-0", "partition: t-7", "partition: nope-0",
    ]  # fmt: skip
    assert all("\terror: " in line for line in outcome.lines[2:])
    mixed = filled(*argv, stdin=offsets(("t", 9, 0), ("t", 0, 1)))
    assert mixed.code == 1
    assert mixed.lines[-1] == "partition: t-0\tlow_watermark: 1"


def test_a_compacted_topic_keeps_its_records(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "c", "--config", "cleanup.policy=compact")
    outcome = cli("delete-records", "--offset-json-file", "-", stdin=offsets(("c", 0, -1)))
    assert outcome.code == 1
    assert "only where cleanup.policy has delete" in outcome.lines[-1]


def test_topics_of_the_cluster_are_not_changed_at_a_root(file_cli: Cli, log: Log) -> None:
    log.create_topic(JOBS_TOPIC, by_cluster=True)
    for argv in (
        ("produce", "--topic", JOBS_TOPIC),
        ("topics", "--delete", "--topic", JOBS_TOPIC),
        ("topics", "--alter", "--topic", JOBS_TOPIC, "--partitions", "2"),
        ("topics", "--create", "--topic", "__consumer_offsets"),
    ):
        outcome = file_cli(*argv, stdin=b"x")
        assert outcome.code == 1
        assert "this topic holds the cluster's own state" in outcome.errors
    outcome = file_cli(
        "delete-records", "--offset-json-file", "-", stdin=offsets((JOBS_TOPIC, 0, -1))
    )
    assert outcome.code == 1
    assert "this topic holds the cluster's own state" in outcome.lines[-1]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "must look like"),
        (b"[]", "must look like"),
        (b"\xff\xfe", "not text in UTF-8"),
        (b'{"version": 1}', "must look like"),
        (offsets(("t", "0", 1)), "partition must be a whole number"),
        (offsets(("t", 0, None)), "offset must be a whole number"),
        (offsets((5, 0, 1)), "topic must be a string"),
        (b'{"partitions": [], "version": 2}', "version must be 1"),
        (offsets(("t", 0, 1), ("t", 0, 2)), "more than once. partitions=t-0"),
    ],
)
def test_a_file_in_another_format_deletes_nothing(filled: Cli, text: bytes, problem: str) -> None:
    assert problem in filled.fails("delete-records", "--offset-json-file", "-", stdin=text)
    assert filled.ok("get-offsets", "--time", "earliest").lines == ["t:0:0"]


def test_a_file_that_is_not_there_is_named(filled: Cli) -> None:
    error = filled.fails("delete-records", "--offset-json-file", "/no/such/file")
    assert error == "error: No such file or directory: /no/such/file"
