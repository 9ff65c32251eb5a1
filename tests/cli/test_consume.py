from __future__ import annotations

import pyarrow as pa
import pytest

from sparklog.cluster.log import Log, open_log
from sparklog.registry import decisions
from sparklog.registry.model.schema import read_content
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.schema_log import RootSchemaLog
from tests.cli.conftest import Cli
from tests.harness.wire_batches import put_unreadable

FROM_START = ("consume", "--topic", "t", "--from-beginning", "--timeout-ms", "0")


@pytest.fixture
def filled(cli: Cli) -> Cli:
    """A topic of two partitions; partition 1 holds the values 0 to 9 under one key."""
    cli.ok("topics", "--create", "--topic", "t", "--partitions", "2")
    lines = "".join(f"h:{n}\tkey2\t{n}\n" for n in range(10)).encode()
    reports = cli.ok(
        "produce", "--topic", "t", "--property", "parse.key=true", "--property",
        "parse.headers=true", "--json", stdin=lines,
    ).documents  # fmt: skip
    assert [r["partition"] for r in reports] == [1]
    return cli


def test_unreadable_batch_is_reported_or_skipped(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t")
    with open_log(cli.root) as log:
        put_unreadable(log.store, log.partition("t", 0).layout)
    failed = cli(*FROM_START)
    assert failed.code != 0
    assert "topic=t partition=0 base_offset=0 end_offset=2" in failed.errors
    assert cli.ok(*FROM_START, "--skip-unreadable").lines == ["good"]


def test_values_alone_are_printed_by_default(filled: Cli) -> None:
    outcome = filled.ok(*FROM_START)
    assert outcome.lines == [str(n) for n in range(10)]
    assert outcome.errors == "Processed a total of 10 messages\n"


def test_framed_values_are_printed_by_their_schemas(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t")
    record = '{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}'
    with open_log(cli.root) as log:
        registry = SchemaRegistry(RootSchemaLog(log))
        made = registry.candidate("t-value", read_content({"schema": record}))
        registry.change(lambda state, parsed: decisions.register(state, made, parsed))
        values = [b"\0\0\0\0\1\x54", None, b"\0\0\0\0\2\x54", b"bare"]
        log.partition("t", 0).append([pa.record_batch({"value": pa.array(values, pa.binary())})])
    printed = cli.ok(*FROM_START, "--value-format", "schema")
    assert printed.lines == ['{"a":42}', "null", "null", "null"]
    assert "t-0 offset=2: the value does not decode: no schema is registered: 2" in printed.errors
    assert printed.errors.endswith("did not decode: 2\n")
    documents = cli.ok(*FROM_START, "--value-format", "schema", "--json").documents
    assert [one["value"] for one in documents] == ['{"a":42}', None, None, None]


def test_every_field_has_its_place_and_its_words(filled: Cli) -> None:
    fields = ("timestamp", "partition", "offset", "headers", "key", "value")
    options = [word for f in fields for word in ("--property", f"print.{f}=true")]
    first = filled.ok(*FROM_START, *options, "--max-messages", "1").lines[0].split("\t")
    kind, stamp = first[0].split(":")
    assert kind == "CreateTime"
    assert int(stamp) > 1_600_000_000_000
    assert first[1:] == ["Partition:1", "Offset:0", "h:0", "key2", "0"]


def test_separators_and_the_null_literal_can_be_chosen(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t")
    cli.ok(
        "produce", "--topic", "t", "--property", "parse.headers=true", "--property",
        "null.marker=N", stdin=b"a:1,b:N\tN\n",
    )  # fmt: skip
    outcome = cli.ok(
        *FROM_START, "--formatter-property", "print.key=true", "--formatter-property",
        "print.headers=true", "--formatter-property", "key.separator=|", "--formatter-property",
        "headers.separator=;", "--formatter-property", "line.separator=<>",
        "--formatter-property", "null.literal=nil",
    )  # fmt: skip
    assert outcome.text == "a:1;b:nil|nil|nil<>"


def test_line_ends_after_the_last_printed_field(filled: Cli) -> None:
    options = ("--property", "print.value=false", "--property", "print.offset=true")
    assert filled.ok(*FROM_START, *options, "--max-messages", "2").text == "Offset:0\nOffset:1\n"
    nothing = filled.ok(*FROM_START, "--property", "print.value=false")
    assert nothing.text == ""
    assert "total of 10" in nothing.errors


def test_log_append_time_is_named_as_such(cli: Cli) -> None:
    config = ("--config", "message.timestamp.type=LogAppendTime")
    cli.ok("topics", "--create", "--topic", "t", *config)
    cli.ok("produce", "--topic", "t", stdin=b"x\n")
    assert cli.ok(*FROM_START, "--property", "print.timestamp=true").text.startswith(
        "LogAppendTime:"
    )


def test_json_has_every_field_and_keeps_bytes_that_are_no_text(cli: Cli) -> None:
    cli.ok("topics", "--create", "--topic", "t")
    cli.ok("produce", "--topic", "t", "--property", "parse.key=true", stdin=b"k\t\xff\n")
    (document,) = cli.ok(*FROM_START, "--json").documents
    assert document.pop("timestamp") > 1_600_000_000_000
    assert document == {
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "timestampType": "CreateTime",
        "headers": [],
        "key": "k",
        "value": {"base64": "/w=="},
    }


def test_partition_and_offset_choose_where_to_start(filled: Cli) -> None:
    at = ("consume", "--topic", "t", "--timeout-ms", "0", "--partition", "1", "--offset")
    assert filled.ok(*at, "7").lines == ["7", "8", "9"]
    assert filled.ok(*at, "10").lines == []
    assert filled.ok(*at, "earliest", "--max-messages", "3").lines == ["0", "1", "2"]
    assert filled.ok(*at, "latest").lines == []
    empty = ("consume", "--topic", "t", "--timeout-ms", "0", "--partition", "0")
    assert filled.ok(*empty, "--from-beginning").lines == []


def test_old_records_are_printed_only_from_beginning(filled: Cli) -> None:
    assert filled.ok("consume", "--topic", "t", "--timeout-ms", "0").lines == []


def test_include_reads_every_topic_that_matches(filled: Cli) -> None:
    filled.ok("topics", "--create", "--topic", "t2")
    filled.ok("produce", "--topic", "t2", stdin=b"other\n")
    include = ("consume", "--include", "t.*", "--from-beginning", "--timeout-ms", "0")
    assert "other" in filled.ok(*include).lines
    assert len(filled.ok(*include).lines) == 11
    assert "no topic matches" in filled.fails("consume", "--include", "x.*", "--timeout-ms", "0")


def test_offset_outside_the_log_is_an_error_with_the_valid_range(filled: Cli) -> None:
    at = ("consume", "--topic", "t", "--timeout-ms", "0", "--partition", "1", "--offset")
    error = filled.fails(*at, "11")
    assert "offset=11 log_start_offset=0 log_end_offset=10" in error
    offsets = b'{"partitions": [{"topic": "t", "partition": 1, "offset": 4}], "version": 1}'
    filled.ok("delete-records", "--offset-json-file", "-", stdin=offsets)
    assert "log_start_offset=4" in filled.fails(*at, "3")
    assert filled.ok(*FROM_START).lines == ["4", "5", "6", "7", "8", "9"]


def test_unknown_topics_and_partitions_are_named(filled: Cli) -> None:
    assert "topic=nope" in filled.fails("consume", "--topic", "nope", "--timeout-ms", "0")
    error = filled.fails("consume", "--topic", "t", "--partition", "2", "--timeout-ms", "0")
    assert "partition=2 partitions=2" in error


def test_a_damaged_segment_is_named_and_none_of_it_printed(file_cli: Cli, log: Log) -> None:
    file_cli.ok("topics", "--create", "--topic", "t")
    file_cli.ok("produce", "--topic", "t", stdin=b"good\n")
    file_cli.ok("produce", "--topic", "t", stdin=b"damaged-value\n" * 5)
    layout = log.partition("t", 0).layout
    key = layout.key(layout.chain_name(1))
    data = bytearray(log.store.get(key))
    (tail,) = log.partition("t", 0).view().tail[1:]
    stored = tail.segment.batches[0].stored
    data[stored.position + stored.meta.length + stored.columns[-1].start + 9] ^= 1
    log.store.put(key, bytes(data))

    outcome = file_cli(*FROM_START)
    assert outcome.code == 1
    assert f"object={key}" in outcome.errors
    assert outcome.lines == ["good"]


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        ([], "--topic"),
        (["--topic", "t", "--include", "x"], "not allowed with"),
        (["--topic", "t", "--offset", "1"], "--offset needs --partition"),
        (["--include", "t", "--partition", "1"], "--partition needs --topic"),
        (["--topic", "t", "--partition", "0", "--offset", "soon"], "earliest, latest"),
        (["--topic", "t", "--partition", "0", "--offset", "-3"], "earliest, latest"),
        (["--topic", "t", "--partition", "0", "--offset", "1", "--from-beginning"], "contradict"),
        (["--topic", "t", "--max-messages", "-1"], "whole number"),
        (["--topic", "t", "--property", "print.kye=true"], "did you mean print.key?"),
        (["--topic", "t", "--property", "a=b", "--formatter-property", "a=b"], "the same"),
    ],
)
def test_a_call_that_makes_no_sense_is_a_usage_error(
    file_cli: Cli, argv: list[str], problem: str
) -> None:
    assert problem in file_cli.misused("consume", *argv)
