"""Command lines of the jobs: accepted options, and the messages for wrong calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.spark.jobs.consume import Edge, parse_consume
from sparklog.spark.jobs.produce_arguments import parse_produce
from sparklog.spark.jobs.streaming import StreamPace

PRODUCE = ("--root", "memory://x", "--topic", "t")
CONSUME = ("--root", "memory://x", "--topic", "t")


def test_rows_become_records_as_the_options_say() -> None:
    job = parse_produce(
        [
            *PRODUCE,
            *("--input", "a.csv", "--input", "b.csv.gz", "--option", "nullValue=NA"),
            *("--key", "k", "--headers", "a=upper(x),b='1'", "--timestamp", "at"),
            *("--select", "*, f(a, b) AS c", "--where", "x > 0"),
            *("--create", "--partitions", "3", "--config", "compression.type=zstd", "--json"),
        ]
    )
    assert (job.source, job.paths) == ("csv", ("a.csv", "b.csv.gz"))
    assert job.options == {"nullValue": "NA"}
    assert (job.key, job.value) == ("k", "to_json(struct(*))")
    assert job.headers == (("a", "upper(x)"), ("b", "'1'"))
    assert (job.timestamp, job.where, job.select) == ("at", "x > 0", ("*", "f(a, b) AS c"))
    assert (job.create, job.partitions, job.configs) == (True, 3, {"compression.type": "zstd"})
    assert job.pace is None
    assert job.json


@pytest.mark.parametrize(
    ("name", "source"),
    [("x.csv", "csv"), ("x.TSV", "csv"), ("x.jsonl.gz", "json"), ("d/x.parquet", "parquet"),
     ("x.snappy.parquet", "parquet"), ("x.orc", "orc"), ("x.txt.bz2", "text")],
)  # fmt: skip
def test_the_format_follows_from_the_name(name: str, source: str) -> None:
    assert parse_produce([*PRODUCE, "--input", name]).source == source


def test_given_format_overrides_the_files_name() -> None:
    assert parse_produce([*PRODUCE, "--input", "x.csv", "--format", "text"]).source == "text"


def test_security_of_a_client_file_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\nsasl.password=marked-secret\n")
    words = ["--topic", "t", "--input", "x.csv", "--command-config", str(file)]
    job = parse_produce([*words, "--bootstrap-server", "a:1"])
    assert job.security.given["security.protocol"] == "SASL_SSL"
    assert "marked-secret" not in repr(job)
    with pytest.raises(SystemExit):
        parse_produce(["--root", "memory://x", *words])


def test_a_stream_has_its_pace() -> None:
    words = [*PRODUCE, "--input", "in.csv", "--checkpoint", "c"]
    assert parse_produce([*words, "--stream"]).pace == StreamPace(checkpoint="c")
    assert parse_produce([*words, "--available-now"]).pace == StreamPace(True, None, "c")
    paced = parse_produce([*words, "--stream", "--trigger", "5 seconds"]).pace
    assert paced == StreamPace(False, "5 seconds", "c")


def test_a_path_becomes_absolute_because_tasks_run_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPARKLOG_ROOT", "log")
    words = ["--topic", "t", "--input", "x.csv"]
    assert parse_produce(words).root == str(tmp_path / "log")
    assert parse_produce([*words, "--root", "s3a://bucket/log"]).root == "s3://bucket/log"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--input", "x"], "which format?"),
        (["--input", "x.csv", "--input", "y.json"], "which format?"),
        (["--input", "x.csv", "--partitions", "3"], "add --create"),
        (["--input", "x.csv", "--config", "a=b"], "add --create"),
        (["--input", "x.csv", "--create", "--partitions", "0"], "at least 1"),
        (["--input", "x.csv", "--create", "--config", "retention.mss=1"], "mean retention.ms?"),
        (["--input", "x.csv", "--option", "novalue"], "key=value"),
        (["--input", "x.csv", "--headers", "novalue"], "name=expression"),
        (["--input", "x.csv", "--select", "f(a"], "closing"),
        (["--input", "x.csv", "--stream"], "--checkpoint"),
        (["--input", "x.csv", "--checkpoint", "c"], "add --stream"),
        (["--input", "x.csv", "--available-now", "--trigger", "1 s", "--checkpoint", "c"],
         "without pauses"),
        (["--input", "x.csv", "--input", "y.csv", "--stream", "--checkpoint", "c"], "one --input"),
        (["--input", "x.csv", "--malformed", "m", "--stream", "--checkpoint", "c"], "--malformed"),
        (["--inp", "x.csv"], "unrecognized"),
    ],
)  # fmt: skip
def test_a_wrong_call_to_produce_is_answered_with_code_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        parse_produce([*PRODUCE, *words])
    assert stop.value.code == 2
    assert said in capsys.readouterr().err


def test_jobs_without_a_root_ask_for_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("SPARKLOG_ROOT", raising=False)
    with pytest.raises(SystemExit):
        parse_produce(["--topic", "t", "--input", "x.csv"])
    with pytest.raises(SystemExit):
        parse_consume(["--topic", "t"])
    assert capsys.readouterr().err.count("which log?") == 2


@pytest.mark.parametrize(
    ("words", "edge"),
    [
        ([], Edge()),
        (["--from-offset", "earliest"], Edge(name="earliest")),
        (["--from-offset", "17"], Edge(everywhere=17)),
        (["--from-offset", "0:5,2:-1"], Edge(partitions={0: 5, 2: -1})),
        (["--from-offset", '{"t":{"0":5}}'], Edge(name='{"t":{"0":5}}')),
        (["--from-time", "1372636800000"], Edge(timestamp_ms=1372636800000)),
        (["--from-time", "2013-07-01T00:00:00Z"], Edge(timestamp_ms=1372636800000)),
        (["--from-time", "2013-07-01"], Edge(timestamp_ms=1372636800000)),
        (["--from-time", "2013-07-01T02:00:00+02:00"], Edge(timestamp_ms=1372636800000)),
    ],
)
def test_reading_begins_at_the_offsets_of_the_options(words: list[str], edge: Edge) -> None:
    assert parse_consume([*CONSUME, *words]).start == edge


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--from-offset", "soon"], "an offset is"),
        (["--from-offset", "[1]"], "an offset is"),
        (["--from-time", "soon"], "a time is like"),
        (["--from-offset", "1", "--from-time", "1"], "not allowed with"),
        (["--topic-pattern", "x.*"], "not allowed with"),
        (["--to", "parquet"], "--output"),
        (["--output", "x"], "--output"),
        (["--value-as", "json"], "--value-schema"),
        (["--key-schema", "a INT"], "--key-schema"),
        (["--stream", "--to-offset", "9"], "no end"),
        (["--stream", "--limit", "9"], "--max-per-batch"),
        (["--max-per-batch", "9"], "add --stream"),
        (["--to", "delta", "--output", "x", "--stream"], "--checkpoint"),
    ],
)
def test_a_wrong_call_to_consume_is_answered_with_code_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        parse_consume([*CONSUME, *words])
    assert stop.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("parse", [parse_produce, parse_consume])
def test_help_names_every_group_and_shows_examples(
    parse: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(parse)
    with pytest.raises(SystemExit) as stop:
        parse(["--help"])
    assert stop.value.code == 0
    said = capsys.readouterr().out
    assert "examples:" in said
    assert "--root" in said
