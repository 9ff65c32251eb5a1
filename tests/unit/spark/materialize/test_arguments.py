"""The words of jobs/materialize.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.core.errors import InvalidRequest
from sparklog.spark.materialize.arguments import interval_s, parse_materialize

NEEDED = ("--root", "s3://b/log", "--topic", "t", "--table", "s3a://b/table/")


def test_materialize_needs_few_options() -> None:
    job = parse_materialize(NEEDED)
    assert (job.root, job.topic, job.table) == ("s3://b/log", "t", "s3a://b/table")
    assert job.rejected == "s3a://b/table_rejected"
    assert (job.format, job.schema, job.mode, job.interval_s) == ("json", None, "append", None)
    assert (job.isolation, job.fail_on_data_loss) == ("read_committed", True)


def test_paths_are_made_absolute_for_tasks_run_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = parse_materialize(["--root", "log", "--topic", "t", "--table", "a/b"])
    assert (job.root, job.table) == (str(tmp_path / "log"), str(tmp_path / "a" / "b"))


def test_an_avro_schema_is_read_from_its_file(tmp_path: Path) -> None:
    schema = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "long"}]}'
    (tmp_path / "s.avsc").write_text(schema)
    words = ("--format", "avro", "--avro-schema", str(tmp_path / "s.avsc"))
    assert parse_materialize([*NEEDED, *words]).schema == schema


@pytest.mark.parametrize("text", ["", "5", '"string"', '{"type": "enum"}', '{"type": "record"}'])
def test_an_avro_schema_that_is_no_record_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.avsc").write_text(text)
    with pytest.raises(SystemExit):
        parse_materialize([*NEEDED, "--format", "avro", "--avro-schema", str(tmp_path / "s.avsc")])
    assert "must be a record" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--available-now", "--trigger", "1s"), "leave --trigger out"),
        (("--trigger", "soon"), "an interval is like"),
        (("--format", "raw", "--schema", "a INT"), "--schema is for"),
        (("--format", "avro"), "go together"),
        (("--avro-schema", "x"), "go together"),
        (("--format", "avro", "--avro-schema", "no/such"), "cannot be read"),
        (("--mode", "upsert", "--partition-by", "_date"), "is for append"),
        (("--rejected", "s3a://b/table"), "another table"),
        (("--option", "startingOffsets=latest"), "sets this option"),
        (("--option", "kafka.isolation.level=x"), "sets this option"),
        (("--from-offset", "latest", "--partition-by", "a"), "--schema"),
        (("--max-per-batch", "0"), "at least 1"),
        (("--optimize-every", "-1"), "whole number"),
    ],
)
def test_words_that_do_not_fit_are_refused(
    words: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        parse_materialize([*NEEDED, *words])
    assert stop.value.code == 2
    assert complaint in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10 seconds", 10), ("1 second", 1), ("500 ms", 0.5), ("2m", 120), ("1 hour", 3600),
     ("3", 3), ("0.5s", 0.5), ("20 Milliseconds", 0.02)],
)  # fmt: skip
def test_intervals_are_spelt_as_people_and_spark_do(text: str, seconds: float) -> None:
    assert interval_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "ten seconds", "-1 s", "1 day ago", "0 s"])
def test_other_intervals_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        interval_s(text)
