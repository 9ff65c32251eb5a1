"""jobs/consume.py: records of topics arrive where the words of a call say, as what they say."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from sparklog.cluster.log import Log
from sparklog.core.errors import InvalidConfig, InvalidRequest, UnknownTopicOrPartition
from sparklog.spark.jobs.consume import consume, parse_consume
from sparklog.spark.jobs.progress import JobProgress, ProgressReport

RECORDS = 10
MINUTE_MS = 60_000

Consume = Callable[..., ProgressReport]
MakeLog = Callable[..., Log]


@pytest.fixture
def run(spark: SparkSession, log_root: str) -> Consume:
    """Consume in this session: `run("--topic", "t", …)`."""

    def session(conf: Mapping[str, str]) -> SparkSession:
        return spark

    def call(*words: str) -> ProgressReport:
        job = parse_consume(["--root", log_root, *words])
        return consume(job, session, JobProgress(io.StringIO()))

    return call


@pytest.fixture
def minutes(make_log: MakeLog) -> Log:
    """Topic `t` of two partitions: in each a record a minute, keys and JSON values."""
    log = make_log(t=2)
    for partition in range(2):
        _append(log, partition, range(RECORDS))
    return log


def _append(log: Log, partition: int, numbers: range) -> None:
    values = [json.dumps({"n": n, "p": partition}).encode() for n in numbers]
    stamps = pa.array([n * MINUTE_MS for n in numbers], pa.timestamp("ms", tz="UTC"))
    keys = [f"k{n}".encode() for n in numbers]
    batch = pa.record_batch({"timestamp": stamps, "key": keys, "value": values})
    log.partition("t", partition).append([batch])


def _printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_console_gets_a_json_line_per_record(
    run: Consume, minutes: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    report = run("--topic", "t", "--where", "partition = 1")
    lines = _printed(capsys)
    assert report.rows == len(lines) == RECORDS
    assert lines[3]["key"] == "k3"
    assert json.loads(str(lines[3]["value"])) == {"n": 3, "p": 1}
    assert lines[3]["offset"] == 3


@pytest.mark.parametrize(
    ("words", "offsets"),
    [
        (["--from-offset", "8"], [8, 8, 9, 9]),
        (["--from-offset", "0:9,1:8"], [8, 9, 9]),
        (["--from-offset", "1:9", "--to-offset", "0:1"], [0, 9]),
        (["--to-offset", "1"], [0, 0]),
        (["--from-offset", '{"t":{"0":9,"1":10}}'], [9]),
        (["--from-time", "1970-01-01T00:08:00Z"], [8, 8, 9, 9]),
        (["--from-time", "1970-01-01T00:07:00.001Z", "--to-time", "540000"], [8, 8]),
        (["--from-time", "2013-07-01T00:00:00Z"], []),
        (["--limit", "1", "--from-offset", "9"], [9]),
    ],
)
def test_requested_records_alone_are_read(
    run: Consume,
    minutes: Log,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    offsets: list[int],
) -> None:
    run("--topic", "t", "--columns", "offset", *words)
    assert sorted(int(str(line["offset"])) for line in _printed(capsys)) == offsets


def test_a_deep_json_value_becomes_null_and_ends_no_executor(
    run: Consume, make_log: MakeLog, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = b'{"n": ' * 600 + b"1" + b"}" * 600
    records = pa.record_batch({"value": [deep, b'{"n": {"n": 2}}']})
    make_log(t=1).partition("t", 0).append([records])
    words = ("--value-as", "json", "--value-schema", "n STRUCT<n INT>", "--select", "value.n.n")
    run("--topic", "t", *words)
    assert [line.get("n") for line in _printed(capsys)] == [None, 2]


def test_json_values_become_columns_of_parquet(run: Consume, minutes: Log, tmp_path: Path) -> None:
    output = tmp_path / "out"
    report = run(
        *("--topic", "t", "--to", "parquet", "--output", str(output)),
        *("--value-as", "json", "--value-schema", "n INT, p INT"),
        *("--select", "value.*, key", "--where", "value.n >= 8"),
    )
    rows = parquet.read_table(output).sort_by([("n", "ascending"), ("p", "ascending")])
    assert report.rows == 4
    assert rows.to_pylist() == [
        {"n": n, "p": p, "key": f"k{n}"} for n in (8, 9) for p in (0, 1)
    ]  # fmt: skip


def test_bytes_may_stay_bytes_and_headers_may_be_had(
    run: Consume, make_log: MakeLog, tmp_path: Path
) -> None:
    headers = pa.array(
        [[{"key": "h", "value": b"\x01"}]],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    batch = pa.record_batch({"value": [b"\xff\x00"], "headers": headers})
    make_log(t=1).partition("t", 0).append([batch])
    run("--topic", "t", "--value-as", "binary", "--headers",
        "--to", "parquet", "--output", str(tmp_path / "out"))  # fmt: skip
    (row,) = parquet.read_table(tmp_path / "out").to_pylist()
    assert row["value"] == b"\xff\x00"
    assert row["headers"] == [{"key": "h", "value": b"\x01"}]


def test_a_stream_goes_on_where_it_was(run: Consume, minutes: Log, tmp_path: Path) -> None:
    words = ("--topic", "t", "--from-offset", "earliest", "--available-now",
             "--max-per-batch", "8", "--checkpoint", str(tmp_path / "checkpoint"),
             "--to", "parquet", "--output", str(tmp_path / "out"))  # fmt: skip
    first = run(*words)
    _append(minutes, 0, range(RECORDS, RECORDS + 3))
    second = run(*words)
    assert (first.rows, second.rows) == (20, 3)
    assert first.details["batches"] == 3
    rows = parquet.read_table(tmp_path / "out", columns=["partition", "offset"])
    places = sorted((row["partition"], row["offset"]) for row in rows.to_pylist())
    assert places == [(0, n) for n in range(13)] + [(1, n) for n in range(10)]


def test_a_pattern_takes_all_topics_that_match(
    run: Consume, make_log: MakeLog, capsys: pytest.CaptureFixture[str]
) -> None:
    log = make_log(aa=1, ab=1, b=1)
    for topic in ("aa", "ab", "b"):
        log.partition(topic, 0).append([pa.record_batch({"value": [b"x"]})])
    run("--topic-pattern", "a.", "--columns", "topic")
    assert {line["topic"] for line in _printed(capsys)} == {"aa", "ab"}


def test_impossible_topics_places_and_columns_are_refused(run: Consume, minutes: Log) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="topic=u"):
        run("--topic", "u")
    with pytest.raises(UnknownTopicOrPartition, match="partition=2 partitions=2"):
        run("--topic", "t", "--from-offset", "2:0")
    with pytest.raises(InvalidRequest, match="need --topic"):
        run("--topic-pattern", "t", "--from-offset", "5")
    with pytest.raises(InvalidConfig, match="column=nosuch"):
        run("--topic", "t", "--columns", "nosuch")


def test_session_without_delta_gets_the_remedy(
    spark: SparkSession,
    log_root: str,
    minutes: Log,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The session here has Delta: another format that Spark does not find stands for it.
    monkeypatch.setattr("sparklog.spark.jobs.consume.DELTA", "nosuchformat")
    words = ["--root", log_root, "--topic", "t", "--to", "delta", "--output", str(tmp_path / "out")]
    job = replace(parse_consume(words), sink="nosuchformat")
    with pytest.raises(InvalidRequest, match="spark-submit --packages"):
        consume(job, lambda conf: spark, JobProgress(io.StringIO()))
