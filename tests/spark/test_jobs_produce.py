"""jobs/produce.py: rows of real files become records of a topic, as the words of a call say."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from sparklog.cluster.log import Log, open_log
from sparklog.core.errors import InvalidPartitions, InvalidRequest, UnknownTopicOrPartition
from sparklog.spark.jobs.produce import produce
from sparklog.spark.jobs.produce_arguments import parse_produce
from sparklog.spark.jobs.progress import JobProgress, ProgressReport

CSV = "id,name,born\n1,ann,2001-02-03T04:05:06Z\n2,bob,NA\n3,NA,2003-01-01T00:00:00Z\n"
BORN_MS = 981_173_106_000

Produce = Callable[..., ProgressReport]


@pytest.fixture
def people(tmp_path: Path) -> str:
    """A CSV file of three rows."""
    path = tmp_path / "people.csv"
    path.write_text(CSV)
    return str(path)


@pytest.fixture
def run(spark: SparkSession, log_root: str) -> Produce:
    """Produce in this session: `run("--topic", "t", …)`."""

    def session(conf: Mapping[str, str]) -> SparkSession:
        return spark

    def call(*words: str) -> ProgressReport:
        job = parse_produce(["--root", log_root, *words])
        return produce(job, session, JobProgress(io.StringIO()))

    return call


def _records(log_root: str, topic: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with open_log(log_root) as log:
        for number in range(log.topic(topic).partitions):
            partition = log.partition(topic, number)
            end = partition.view().end_offset
            for batch in partition.read(0, end, ("timestamp", "key", "value", "headers")):
                found += [{**row, "partition": number} for row in batch.to_pylist()]
    return found


def test_csv_rows_become_json_values_with_key_and_event_time(
    run: Produce, log_root: str, people: str
) -> None:
    report = run(
        *("--topic", "t", "--create", "--partitions", "3", "--input", people),
        *("--option", "nullValue=NA", "--schema", "id INT, name STRING, born STRING"),
        *("--key", "id", "--headers", "name=name,kind='a,b'"),
        *("--timestamp", "coalesce(to_timestamp(born), timestamp_millis(5))"),
    )
    records = {record["key"]: record for record in _records(log_root, "t")}
    assert set(records) == {b"1", b"2", b"3"}
    assert json.loads(records[b"1"]["value"]) == {
        "id": 1, "name": "ann", "born": "2001-02-03T04:05:06Z",
    }  # fmt: skip
    assert json.loads(records[b"3"]["value"]) == {"id": 3, "born": "2003-01-01T00:00:00Z"}
    kind = {"key": "kind", "value": b"a,b"}
    assert records[b"1"]["headers"] == [{"key": "name", "value": b"ann"}, kind]
    assert records[b"3"]["headers"] == [{"key": "name", "value": None}, kind]
    assert records[b"1"]["timestamp"].timestamp() * 1000 == BORN_MS
    assert records[b"2"]["timestamp"].timestamp() * 1000 == 5
    assert report.rows == 3
    assert report.size_bytes == sum(len(r["key"]) + len(r["value"]) for r in records.values())
    assert report.details["created"] is True
    assert sum(one["end_offset"] for one in report.details["partitions"]) == 3


def test_csv_types_are_inferred_unless_a_schema_is_given(
    run: Produce, log_root: str, people: str
) -> None:
    run("--topic", "t", "--create", "--input", people, "--select", "id, typeof(id) AS kind",
        "--where", "name = 'ann'")  # fmt: skip
    (record,) = _records(log_root, "t")
    assert json.loads(record["value"]) == {"id": 1, "kind": "int"}
    assert record["key"] is None
    assert record["headers"] is None


def test_json_lines_and_parquet_are_read_by_their_names(
    run: Produce, log_root: str, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1, "tags": ["x"]}\n{"n": 2}\n')
    table = pa.table({"n": [3], "raw": [b"\x00\xff"], "tags": [["y", "z"]]})
    parquet.write_table(table, tmp_path / "b.parquet")
    run("--topic", "t", "--create", "--input", str(tmp_path / "a.jsonl"), "--value", "tags")
    run("--topic", "t", "--input", str(tmp_path / "b.parquet"), "--value", "raw", "--key", "n")
    records = [(record["key"], record["value"]) for record in _records(log_root, "t")]
    assert sorted(records, key=str) == sorted(
        [(None, b'["x"]'), (None, None), (b"3", b"\x00\xff")], key=str
    )


def test_partition_may_be_given_and_a_number_is_milliseconds(
    run: Produce, log_root: str, tmp_path: Path
) -> None:
    path = tmp_path / "numbers.json"
    path.write_text("".join(f'{{"n": {n}}}\n' for n in range(10)))
    run(
        *("--topic", "t", "--create", "--partitions", "4", "--input", str(path)),
        *("--value", "n", "--partition", "n % 2", "--timestamp", "n"),
    )
    records = _records(log_root, "t")
    assert {(r["value"], r["partition"]) for r in records} == {
        (str(n).encode(), n % 2) for n in range(10)
    }
    assert all(r["timestamp"].timestamp() * 1000 == int(r["value"]) for r in records)


def test_any_source_of_spark_will_do_even_another_topic(
    run: Produce, make_log: Callable[..., Log], log_root: str
) -> None:
    batch = pa.record_batch({"key": [b"k", None], "value": [b"v", b"w"]})
    make_log(a=1).partition("a", 0).append([batch])
    report = run(
        *("--topic", "b", "--create", "--format", "sparklog", "--option", f"path={log_root}"),
        *("--option", "subscribe=a", "--key", "key", "--value", "value"),
        *("--timestamp", "timestamp"),
    )
    assert report.rows == 2
    records = [(record["key"], record["value"]) for record in _records(log_root, "b")]
    assert records == [(b"k", b"v"), (None, b"w")]


def test_a_stream_sends_each_row_once_over_two_runs(
    run: Produce, log_root: str, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    words = ("--topic", "t", "--input", str(folder), "--format", "json", "--schema", "n INT",
             "--option", "maxFilesPerTrigger=1", "--value", "n", "--key", "n % 3",
             "--available-now", "--checkpoint", str(tmp_path / "checkpoint"))  # fmt: skip
    for number in range(3):
        (folder / f"{number}.json").write_text(f'{{"n": {number}}}\n')
    first = run(*words, "--create")
    (folder / "3.json").write_text('{"n": 3}\n')
    second = run(*words)
    assert (first.rows, first.details["batches"]) == (3, 3)
    assert (second.rows, second.details["batches"]) == (1, 1)
    assert first.ended_by is None
    values = sorted(record["value"] for record in _records(log_root, "t"))
    assert values == [b"0", b"1", b"2", b"3"]


def test_empty_input_is_no_error(run: Produce, people: str) -> None:
    report = run("--topic", "t", "--create", "--input", people, "--where", "id > 9")
    assert (report.rows, report.size_bytes) == (0, 0)


def test_an_unknown_topic_is_refused_before_spark_starts(log_root: str, people: str) -> None:
    def never(conf: Mapping[str, str]) -> SparkSession:
        raise AssertionError("Spark was started")

    job = parse_produce(["--root", log_root, "--topic", "t", "--input", people])
    with pytest.raises(UnknownTopicOrPartition, match="--create"):
        produce(job, never, JobProgress(io.StringIO()))


def test_another_number_of_partitions_is_refused(
    make_log: Callable[..., Log], run: Produce, people: str
) -> None:
    make_log(t=2)
    with pytest.raises(InvalidPartitions, match="partitions=2 asked=3"):
        run("--topic", "t", "--create", "--partitions", "3", "--input", people)


def test_unresolvable_column_is_sparks_error(run: Produce, people: str) -> None:
    with pytest.raises(AnalysisException, match="nosuch"):
        run("--topic", "t", "--create", "--input", people, "--key", "nosuch")
    with pytest.raises(AnalysisException, match="PATH_NOT_FOUND"):
        run("--topic", "t", "--input", people + ".gone", "--format", "csv")


def test_invalid_time_is_rejected(run: Produce, people: str) -> None:
    with pytest.raises(InvalidRequest, match="type=boolean"):
        run("--topic", "t", "--create", "--input", people, "--timestamp", "id > 1")


def values(log_root: str) -> list[Any]:
    return [json.loads(record["value"]) for record in _records(log_root, "t")]


@pytest.fixture
def send(run: Produce, log_root: str, tmp_path: Path) -> Callable[..., list[Any]]:
    """Send bytes as a file with a name, and return all values of the topic."""

    def call(name: str, data: bytes, *words: str) -> list[Any]:
        (tmp_path / name).write_bytes(data)
        run("--topic", "t", "--create", "--input", str(tmp_path / name), *words)
        return values(log_root)

    return call


def test_csv_is_read_as_rfc_4180_defines_it(send: Callable[..., list[Any]]) -> None:
    sent = send(
        "a.csv",
        b'\xef\xbb\xbfid,t\r\n1,"two\r\nlines"\r\n2,"say ""hi"", then"\r\n\r\n3,c:\\dir\\\r\n'
        b'4,"c:\\"\r\n5, spaced \r\n6,\r\n',
    )
    assert sorted(sent, key=lambda one: one["id"]) == [
        {"id": 1, "t": "two\nlines"},  # Spark's reader writes line breaks so
        {"id": 2, "t": 'say "hi", then'},
        {"id": 3, "t": "c:\\dir\\"},
        {"id": 4, "t": "c:\\"},
        {"id": 5, "t": " spaced "},
        {"id": 6},
    ]


def test_json_lines_may_be_arrays_and_blank_and_begin_with_a_mark(
    send: Callable[..., list[Any]],
) -> None:
    sent = send("a.json", b'\xef\xbb\xbf{"a": 1, "t": "}{"}\r\n\n  \n[{"a": 2}, {"a": 3}]\n[]\n')
    assert sorted(sent, key=lambda one: one["a"]) == [{"a": 1, "t": "}{"}, {"a": 2}, {"a": 3}]


def test_json_file_of_one_document_is_read_with_the_option(
    send: Callable[..., list[Any]],
) -> None:
    sent = send(
        "a.json", b'\xef\xbb\xbf[\n {"a": 1},\n {"a": 2}\n]\n', "--option", "multiLine=true"
    )
    assert sent == [{"a": 1}, {"a": 2}]


BAD_JSON = (
    b'{"a": 1}\n{"a": 2}{"a": 3}\n{"a": 4} {"a": 5}\n{"a": 6},\n{bad \x1b[31m\n7\n"x"\n'
    b'{"a": "caf\xe9"}\n[{"a": 8}, 9]\n' + b"[" * 3000 + b"]" * 3000 + b"\n" + b'{"a":' * 900 + b"1"
    + b"}" * 900 + b"\n"
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "data", "malformed", "words"),
    [
        ("bad.csv", b"id,t\n1,a\n2\n3,c,more\n", 2, ()),
        ("bad.csv", b"id,t\n1,a\nx,b\n", 1, ("--schema", "id INT, t STRING")),
        (
            "bad.csv",
            b"id,t\n1,a\nx,b\n2,c\n",
            1,
            ("--schema", "id INT, t STRING", "--where", "id=1"),
        ),
        ("bad.csv", b"id,t\n1,caf\xe9\n2,b\n", 1, ()),
        ("bad.json", BAD_JSON, 10, ()),
        ("bad.json", b'{"a": 1}\n{"a": "x"}\n', 1, ("--schema", "a INT")),
        ("bad.json", b"{bad\n", 1, ()),
    ],
)
def test_malformed_lines_are_counted_and_shown_and_nothing_is_sent(
    run: Produce, log_root: str, tmp_path: Path, name: str, data: bytes, malformed: int,
    words: tuple[str, ...],
) -> None:  # fmt: skip
    (tmp_path / name).write_bytes(data)
    call = ("--topic", "t", "--create", "--input", str(tmp_path / name), *words)
    with pytest.raises(InvalidRequest, match=rf"malformed={malformed} ") as caught:
        run(*call)
    assert _records(log_root, "t") == []
    assert str(tmp_path / name) in str(caught.value)
    assert len(str(caught.value)) < 2000
    assert str(caught.value).isprintable()
    aside = str(tmp_path / "aside")
    report = run(*call, "--malformed", aside)
    assert report.details["malformed"] == malformed
    parked = [
        json.loads(line)
        for part in (tmp_path / "aside").glob("*.json")
        for line in part.read_text().splitlines()
    ]
    assert len(parked) == malformed
    assert all(one["reason"] and one["line"] and name in one["file"] for one in parked)
    assert report.rows == len(_records(log_root, "t"))


def test_columns_of_csv_are_those_of_the_header(
    run: Produce, log_root: str, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("b,a\n1,2\n")
    words = ("--topic", "t", "--create", "--input", str(tmp_path / "a.csv"))
    with pytest.raises(Exception, match="CSV header does not conform to the schema"):
        run(*words, "--schema", "a INT, b INT")
    assert _records(log_root, "t") == []
    run(*words, "--schema", "b INT, a INT")
    assert values(log_root) == [{"b": 1, "a": 2}]


def test_text_behind_a_closing_quote_fails_the_job(
    run: Produce, log_root: str, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text('id,t\n1,"a"b\n')
    with pytest.raises(Exception, match="unescaped quote"):
        run("--topic", "t", "--create", "--input", str(tmp_path / "a.csv"))
    assert _records(log_root, "t") == []


@pytest.mark.parametrize("name", ["nothing.csv", "nothing.json", "header.csv"])
def test_a_file_without_rows_sends_nothing(run: Produce, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("id,t\n" if name == "header.csv" else "")
    report = run("--topic", "t", "--create", "--input", str(tmp_path / name), "--key", "id")
    assert report.rows == 0


def test_other_encodings_and_modes_are_those_that_are_named(
    send: Callable[..., list[Any]],
) -> None:
    latin = ("--option", "encoding=ISO-8859-1")
    assert send("a.csv", b"t\ncaf\xe9\n", *latin) == [{"t": "café"}]
    assert send("a.json", b'{"t": "caf\xe9"}\n', *latin)[1:] == [{"t": "café"}]
    assert len(send("b.json", b'{"t": 1}\n{bad\n', "--option", "mode=DROPMALFORMED")) == 3


def test_deep_json_in_another_encoding_is_a_malformed_line(
    send: Callable[..., list[Any]],
) -> None:
    deep = b'{"t": ' + b'{"t": ' * 600 + b"1" + b"}" * 601 + b"\n"
    words = ("--option", "encoding=ISO-8859-1", "--schema", "t STRING")
    with pytest.raises(Exception, match="malformed"):
        send("a.json", b'{"t": "x"}\n' + deep, *words)


def test_a_stream_ends_at_a_malformed_line(run: Produce, log_root: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.json").write_text('{"n": 1}\n{"n": 2}{"n": 3}\n')
    words = ("--topic", "t", "--create", "--input", str(folder), "--format", "json", "--value", "n",
             "--available-now", "--checkpoint", str(tmp_path / "checkpoint"))  # fmt: skip
    with pytest.raises(Exception, match="not one JSON document"):
        run(*words, "--schema", "n INT")
    assert _records(log_root, "t") == []
    with pytest.raises(InvalidRequest, match="needs --schema"):
        run(*words)
