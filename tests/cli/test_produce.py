from __future__ import annotations

import pytest

from sparklog.cluster.log import Log
from sparklog.cluster.metadata.records import ConfigRecord
from sparklog.protocol.partitioner.partitioner import partition_for_key
from tests.cli.conftest import Cli
from tests.harness.newer_metadata import spelled, stored

PRINT_ALL = (
    "--property", "print.key=true", "--property", "print.headers=true",
    "--property", "print.partition=true", "--property", "print.offset=true",
)  # fmt: skip


def consumed(cli: Cli, *argv: str) -> list[str]:
    return cli.ok("consume", "--topic", "t", "--from-beginning", "--timeout-ms", "0", *argv).lines


def test_each_line_becomes_a_record_in_order(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t")
    produced = cli.ok("produce", "--topic", "t", stdin=b"one\ntwo\r\n\nthree")
    assert produced.text == ""
    assert consumed(cli) == ["one", "two", "", "three"]


def test_keys_headers_and_nulls_are_read_from_the_line(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t")
    cli.ok(
        "produce", "--topic", "t", "--reader-property", "parse.key=true",
        "--reader-property", "parse.headers=true", "--reader-property", "null.marker=NULL",
        stdin=b"h:1,h:NULL\tk\tv\nNULL\tNULL\tNULL\n",
    )  # fmt: skip
    assert consumed(cli, *PRINT_ALL) == [
        "Partition:0\tOffset:0\th:1,h:null\tk\tv",
        "Partition:0\tOffset:1\tNO_HEADERS\tnull\tnull",
    ]


def test_bytes_that_are_no_text_pass_through(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t")
    cli.ok("produce", "--topic", "t", stdin=b"\xff\x00\xfe\n")
    outcome = cli.ok("consume", "--topic", "t", "--from-beginning", "--max-messages", "1")
    assert outcome.output == b"\xff\x00\xfe\n"


def test_a_key_goes_where_every_kafka_client_sends_it(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t", "--partitions", "7")
    keys = [f"key-{n}" for n in range(100)]
    lines = "".join(f"{key}:v\n" for key in keys).encode()
    cli.ok(
        "produce", "--topic", "t", "--property", "parse.key=true",
        "--property", "key.separator=:", stdin=lines,
    )  # fmt: skip
    found = consumed(cli, "--property", "print.key=true", "--property", "print.partition=true")
    assert sorted(found) == sorted(
        f"Partition:{partition_for_key(key.encode(), 7)}\t{key}\tv" for key in keys
    )


def test_compiled_partitioner_agrees_for_many_keys(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t", "--partitions", "5")
    keys = [f"key-{n}" for n in range(5000)]
    lines = "".join(f"{key}\tv\n" for key in keys).encode()
    reports = cli.ok(
        "produce", "--topic", "t", "--property", "parse.key=true", "--json", stdin=lines
    ).documents
    expected = [0] * 5
    for key in keys:
        expected[partition_for_key(key.encode(), 5)] += 1
    counts = [0] * 5
    for report in reports:
        counts[report["partition"]] += report["count"]
    assert counts == expected


def test_values_of_a_newer_version_are_in_nobodys_way(file_cli: Cli, log: Log) -> None:
    file_cli.ok("topics", "--create", "--topic", "t")
    stored(log, spelled(ConfigRecord("t", "compression.type", "brotli")))
    file_cli.ok("produce", "--topic", "t", stdin=b"x\n")
    assert consumed(file_cli) == ["x"]
    alter = ("configs", "--alter", "--entity-type", "topics", "--entity-name", "t")
    file_cli.ok(*alter, "--delete-config", "compression.type")
    assert log.topic("t").configs == {}


def test_records_without_a_key_stay_together(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t", "--partitions", "9")
    reports = cli.ok("produce", "--topic", "t", "--json", stdin=b"x\n" * 50).documents
    assert [(r["topic"], r["baseOffset"], r["count"]) for r in reports] == [("t", 0, 50)]


def test_batch_size_and_sync_decide_how_much_is_appended_at_once(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t")
    lines = b"x" * 100 + b"\n"
    by_size = cli.ok("produce", "--topic", "t", "--batch-size", "500", "--json", stdin=lines * 10)
    assert [r["count"] for r in by_size.documents] == [5, 5]
    one_by_one = cli.ok("produce", "--topic", "t", "--sync", "--json", stdin=lines * 3)
    assert [r["count"] for r in one_by_one.documents] == [1, 1, 1]
    setting = ("--producer-property", "batch.size=200")
    by_setting = cli.ok("produce", "--topic", "t", *setting, "--json", stdin=lines * 4)
    assert [r["count"] for r in by_setting.documents] == [2, 2]


@pytest.mark.parametrize(
    ("options", "stored"),
    [
        ([], "lz4"),
        (["--compression-codec", "zstd"], "zstd"),
        (["--compression-codec", "none"], "none"),
        (["--compression-codec"], "zstd"),
        (["--producer-property", "compression.type=snappy"], "lz4"),
    ],
)
def test_requested_codec_is_the_stored_one(
    file_cli: Cli, log: Log, options: list[str], stored: str
) -> None:
    file_cli.ok("topics", "--create", "--topic", "t")
    file_cli.ok("produce", "--topic", "t", *options, stdin=b"x\n")
    (tail,) = log.partition("t", 0).view().tail
    assert tail.segment.codec == stored


def test_a_topic_that_insists_on_a_codec_gets_it(file_cli: Cli, log: Log) -> None:
    file_cli.ok("topics", "--create", "--topic", "t", "--config", "compression.type=zstd")
    file_cli.ok("produce", "--topic", "t", "--compression-codec", "lz4", stdin=b"x\n")
    (tail,) = log.partition("t", 0).view().tail
    assert tail.segment.codec == "zstd"


def test_lines_before_one_that_cannot_be_read_are_appended(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t")
    error = cli.fails(
        "produce", "--topic", "t", "--property", "parse.key=true", stdin=b"a\t1\nb\t2\nbad\nc\t3\n"
    )
    assert "no key separator found on line number 3" in error
    assert consumed(cli) == ["1", "2"]


def test_a_record_over_the_topics_limit_is_refused(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t", "--config", "max.message.bytes=1000")
    error = cli.fails("produce", "--topic", "t", stdin=b"x" * 2000 + b"\n")
    assert "max.message.bytes=1000" in error
    assert consumed(cli) == []


def test_an_unknown_topic_is_named(cli: Cli) -> None:
    assert "topic=nope" in cli.fails("produce", "--topic", "nope", stdin=b"x\n")


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        ([], "--topic"),
        (["--topic", "t", "--property", "parse.keys=true"], "did you mean parse.key?"),
        (["--topic", "t", "--property", "parse.key"], "key=value"),
        (
            ["--topic", "t", "--property", "parse.key=true", "--reader-property", "a=b"],
            "say the same",
        ),
        (["--topic", "t", "--compression-codec", "brotli"], "invalid choice"),
        (["--topic", "t", "--producer-property", "compression.type=brotli"], "compression.type"),
        (["--topic", "t", "--producer-property", "bach.size=1"], "did you mean batch.size?"),
        (["--topic", "t", "--producer-property", "linger.ms=soon"], "whole number"),
        (["--topic", "t", "--producer-property", "acks=2"], "acks"),
        (["--topic", "t", "--batch-size", "0"], "at least 1"),
    ],
)
def test_a_call_that_makes_no_sense_is_a_usage_error(
    file_cli: Cli, argv: list[str], problem: str
) -> None:
    assert problem in file_cli.misused("produce", *argv)
