"""Job materialize.py: a Delta table has every record of its topic once, under all faults."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from sparklog.client.producer import Producer
from sparklog.cluster.log import Log
from sparklog.core.errors import Fenced, InvalidRequest, OffsetOutOfRange
from sparklog.protocol.records.columns import RECORDS_SCHEMA
from sparklog.registry import decisions
from sparklog.registry.model.schema import SubjectVersion, read_content
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.schema_log import RootSchemaLog
from sparklog.spark.jobs.job import TERMINATED
from sparklog.spark.jobs.progress import JobProgress, ProgressReport
from sparklog.spark.materialize.arguments import parse_materialize
from sparklog.spark.materialize.commit import TableCommit
from sparklog.spark.materialize.job import materialize
from sparklog.spark.materialize.tables import DeltaTables
from sparklog.spark.table_view import table_view
from tests.harness.referring_values import referring_values
from tests.harness.registry_server import served_registry
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers

Run = Callable[..., ProgressReport]
MakeLog = Callable[..., Log]


@pytest.fixture
def table(tmp_path: Path) -> str:
    """The folder of a table that does not exist yet."""
    return str(tmp_path / "table")


@pytest.fixture
def run(spark: SparkSession, log_root: str, table: str) -> Run:
    """Materialise topic `t` into the table: `run("--mode", "upsert", …)`."""

    def session(conf: Mapping[str, str]) -> SparkSession:
        return spark

    def call(*words: str) -> ProgressReport:
        argv = ["--root", log_root, "--topic", "t", "--table", table, *words]
        return materialize(parse_materialize(argv), session, JobProgress(io.StringIO()))

    return call


def append(log: Log, partition: int, *values: bytes | None, key: bytes | None = b"k") -> None:
    """Append records with these values."""
    batch = pa.record_batch(
        {"key": pa.array([key] * len(values), pa.binary()), "value": pa.array(values, pa.binary())}
    )
    log.partition("t", partition).append([batch])


def rows(spark: SparkSession, path: str) -> list[dict[str, Any]]:
    """Return a table's rows by place, without the columns that every row has."""
    found: DataFrame = spark.read.format("delta").load(path)
    places = {"_partition", "_offset"} & set(found.columns) or {"partition", "offset"}
    listed = [
        row.asDict(recursive=True) for row in found.orderBy(*sorted(places, reverse=True)).collect()
    ]
    return [
        {name: value for name, value in row.items() if name not in ("_timestamp", "_headers")}
        for row in listed
    ]


def as_json(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def test_new_job_continues_with_new_fields_and_parked_bad_rows(
    run: Run, spark: SparkSession, make_log: MakeLog, table: str
) -> None:
    log = make_log(t=2)
    append(log, 0, as_json(n=1, _offset="mine"), b"{bad", None)
    append(log, 1, as_json(n=2))
    first = run()
    append(log, 1, as_json(n=3, deep={"x": [1.5]}), as_json(n="three"))
    second = run()
    third = run()
    assert (first.rows, second.rows, third.rows) == (3, 1, 0)
    assert (first.details["rejected"], second.details["rejected"]) == (1, 1)
    assert second.details["partitions"] == [
        {"partition": 0, "from": 3, "until": 3},
        {"partition": 1, "from": 1, "until": 3},
    ]
    nothing = {"n": None, "__offset": None, "deep": None}
    kept = [{k: v for k, v in row.items() if k != "_key"} for row in rows(spark, table)]
    assert kept == [
        {**nothing, "_partition": 0, "_offset": 0, "n": 1, "__offset": "mine"},
        {**nothing, "_partition": 0, "_offset": 2},
        {**nothing, "_partition": 1, "_offset": 0, "n": 2},
        {**nothing, "_partition": 1, "_offset": 1, "n": 3, "deep": {"x": [1.5]}},
    ]
    parked = rows(spark, table + "_rejected")
    assert [(r["topic"], r["partition"], r["offset"], r["value"], r["reason"]) for r in parked] == [
        ("t", 0, 1, b"{bad", "the value is not a JSON object"),
        ("t", 1, 2, as_json(n="three"), "a field does not fit its column: n bigint"),
    ]


def test_raw_values_stay_bytes_in_the_requested_commits(
    run: Run, spark: SparkSession, make_log: MakeLog, table: str
) -> None:
    log = make_log(t=1)
    append(log, 0, b"\xff", b"b", b"c")
    assert run("--format", "raw", "--max-per-batch", "2").details["batches"] == 2
    assert [(r["_offset"], r["_key"], r["value"]) for r in rows(spark, table)] == [
        (0, b"k", b"\xff"),
        (1, b"k", b"b"),
        (2, b"k", b"c"),
    ]


def test_recreated_topic_and_gap_are_rejected_unless_permitted(
    run: Run, spark: SparkSession, make_log: MakeLog, table: str
) -> None:
    log = make_log(t=1)
    append(log, 0, b"a", b"b")
    run("--format", "raw")
    append(log, 0, b"c", b"d", b"e")
    log.partition("t", 0).delete_records(3)
    with pytest.raises(OffsetOutOfRange, match=r"table_end=2 log_start=3"):
        run("--format", "raw")
    run("--format", "raw", "--fail-on-data-loss", "false")
    log.delete_topic("t")
    log.create_topic("t", partitions=1)
    append(log, 0, b"new")
    with pytest.raises(OffsetOutOfRange, match="created again"):
        run("--format", "raw")
    run("--format", "raw", "--fail-on-data-loss", "false")
    found = [(row["_offset"], row["value"]) for row in rows(spark, table)]
    assert sorted(found) == [(0, b"a"), (0, b"new"), (1, b"b"), (3, b"d"), (4, b"e")]


def test_second_job_with_the_same_batch_has_no_effect(
    run: Run, log_root: str, spark: SparkSession, make_log: MakeLog, table: str
) -> None:
    append(make_log(t=1), 0, b"a", b"b")

    class Overtaken(DeltaTables):
        def append(
            self, rows: DataFrame, commit: TableCommit, properties: Mapping[str, str]
        ) -> None:
            run("--format", "raw")
            super().append(rows, commit, properties)

    argv = ["--root", log_root, "--topic", "t", "--table", table, "--format", "raw"]
    with pytest.raises(Fenced, match="another job"):
        materialize(
            parse_materialize(argv), lambda conf: spark, JobProgress(io.StringIO()), Overtaken
        )
    assert [row["_offset"] for row in rows(spark, table)] == [0, 1]


def test_view_of_table_and_tail_has_each_record_once(
    run: Run, spark: SparkSession, make_log: MakeLog, log_root: str, table: str
) -> None:
    log = make_log(t=2)
    append(log, 0, *(as_json(n=n) for n in range(5)))
    run()
    append(log, 1, *(as_json(n=n) for n in range(5, 8)), b"{bad")
    view = table_view(spark, table, log_root, name="t_now")
    append(log, 0, as_json(n=8, more="x"))
    run()  # moves the table past what the view has joined
    wanted = [(0, n, n) for n in range(5)] + [(1, n, 5 + n) for n in range(3)]
    found = spark.sql("SELECT _partition, _offset, n FROM t_now ORDER BY 1, 2").collect()
    assert [tuple(row) for row in found] == wanted
    assert view.count() == len(wanted)
    append(log, 0, as_json(n=9, more=None))
    again = table_view(spark, table, log_root, name="t_now")
    assert again.columns[-2:] == ["n", "more"]
    assert again.orderBy("n").select("n", "more").collect()[-2:] == [(8, "x"), (9, None)]


def test_upserts_keep_the_newest_row_of_a_key_and_a_view_does_too(
    run: Run, spark: SparkSession, make_log: MakeLog, log_root: str, table: str
) -> None:
    log = make_log(t=1)
    for key, value in ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"), (None, b"5")):
        append(log, 0, value, key=key)
    words = ("--format", "raw", "--mode", "upsert")
    assert run(*words).details["rejected"] == 1
    append(log, 0, None, key=b"b")
    append(log, 0, b"6", key=b"c")
    view = table_view(spark, table, log_root)
    assert {(row["_key"], row["value"]) for row in view.collect()} == {(b"a", b"3"), (b"c", b"6")}
    run(*words)
    assert {(r["_key"], r["value"]) for r in rows(spark, table)} == {(b"a", b"3"), (b"c", b"6")}


def test_any_name_is_a_column_of_its_own_when_rows_are_upserted(
    run: Run, spark: SparkSession, make_log: MakeLog, log_root: str, table: str
) -> None:
    """No name reaches another column: not by a backtick, a dot, or the name of a mark of ours."""
    names = ["a", "a`.b", "a.b", "`", "s.`a`", "__sparklog_dead", "__sparklog_rank", "_key` = 1"]
    names += ["__sparklog_corrupt", "__sparklog_fields", "__sparklog_bad"]
    log = make_log(t=1)
    append(log, 0, as_json(**dict(zip(names, range(11), strict=True))))
    words = ("--mode", "upsert", "--no-headers")
    run(*words)
    run(*words)
    newer = dict(zip(names, range(100, 111), strict=True))
    append(log, 0, as_json(**newer))
    view = table_view(spark, table, log_root).collect()
    assert [{name: row[name] for name in names} for row in view] == [newer]
    run(*words)
    assert [{name: row[name] for name in names} for row in rows(spark, table)] == [newer]


def test_no_value_stops_a_table_when_no_row_can_be_made_of_it(
    run: Run, spark: SparkSession, make_log: MakeLog, table: str
) -> None:
    log = make_log(t=1)
    deep = b'{"a":' * 600 + b"1" + b"}" * 600
    append(log, 0, as_json(n=1), deep, b'{"n":2}{"n":3}', as_json(**{"": 1}))
    far = pa.array([2**63 - 1], pa.timestamp("ms", tz="UTC"))
    log.partition("t", 0).append([pa.record_batch({"value": [as_json(n=4)], "timestamp": far})])
    append(log, 0, as_json(n=5))
    run()
    assert [row["n"] for row in rows(spark, table)] == [1, 5]
    parked = [(row["offset"], row["reason"]) for row in rows(spark, table + "_rejected")]
    assert parked == [
        (1, "the value is nested too deep"),
        (2, "the value is not one JSON document"),
        (3, "a field has an empty name"),
        (4, "the timestamp is outside the range of Spark"),
    ]


def test_avro_records_become_columns_and_other_bytes_are_parked(
    run: Run, spark: SparkSession, make_log: MakeLog, table: str, tmp_path: Path
) -> None:
    optional = [{"name": name, "type": ["null", "string"]} for name in ("a", "b")]
    schema = {"type": "record", "name": "r", "fields": optional}
    (tmp_path / "s.avsc").write_text(json.dumps(schema))
    values = (b"\x02\x02x\x02\x02y", b"\x00\x00", b"\xff", b"", None)
    append(make_log(t=1), 0, *values)
    report = run("--format", "avro", "--avro-schema", str(tmp_path / "s.avsc"))
    assert report.details["rejected"] == 2
    found = [(row["_offset"], row["a"], row["b"]) for row in rows(spark, table)]
    assert found == [(0, "x", "y"), (1, None, None), (4, None, None)]
    parked = [(row["offset"], row["reason"]) for row in rows(spark, table + "_rejected")]
    assert parked == [(n, "the value does not fit the Avro schema") for n in (2, 3)]


def test_versions_of_a_schema_fill_one_table(
    run: Run, spark: SparkSession, make_log: MakeLog, table: str
) -> None:
    log = make_log(t=1)
    registry = SchemaRegistry(RootSchemaLog(log))

    def register(subject: str, *fields: tuple[str, object]) -> SubjectVersion:
        listed = [{"name": n, "type": k, **({} if n == "a" else {"default": None})}
                  for n, k in fields]  # fmt: skip
        text = json.dumps({"type": "record", "name": "R", "fields": listed})
        made = registry.candidate(subject, read_content({"schema": text}))
        found = registry.change(lambda state, parsed: decisions.register(state, made, parsed))
        assert isinstance(found, SubjectVersion)
        return found

    def framed(version: SubjectVersion, body: bytes) -> bytes:
        return b"\0" + version.schema_id.to_bytes(4, "big") + body

    optional = ["null", "string"]
    one = register("t-value", ("a", "int"))
    two = register("t-value", ("a", "long"), ("b", optional))
    other = register("other", ("a", "string"))  # else it had the id of the first
    named = {"key": "__value_schema_id", "value": b"\1" + UUID(two.content.guid).bytes}
    values = [framed(one, b"\x02"), framed(two, b"\x04\x02\x02y"), framed(other, b"\x02"),
              b"bare!", b"\x06\x00", framed(two, b""), None]  # fmt: skip
    headers = [None, None, None, None, [named], None, None]
    log.partition("t", 0).append([
        pa.record_batch({
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(headers, RECORDS_SCHEMA.field("headers").type),
        })
    ])  # fmt: skip
    assert run("--format", "registry").details["rejected"] == 3
    found = [(row["_offset"], row["a"], row["b"]) for row in rows(spark, table)]
    assert found == [(0, 1, None), (1, 2, "y"), (4, 3, None), (6, None, None)]
    parked = [(row["offset"], row["value"]) for row in rows(spark, table + "_rejected")]
    assert parked == [(n, values[n]) for n in (2, 3, 5)]
    three = register("t-value", ("a", "long"), ("b", optional), ("c", ["null", "long"]))
    append(log, 0, framed(three, b"\x08\x00\x02\x0a"), framed(one, b"\x0a"))
    run("--format", "registry")
    found = [(row["_offset"], row["a"], row["c"]) for row in rows(spark, table)]
    assert found[-2:] == [(7, 4, 5), (8, 5, None)]


def test_schemas_that_refer_to_others_fill_tables(
    run: Run, spark: SparkSession, make_log: MakeLog, table: str
) -> None:
    log = make_log(t=3)
    with served_registry(log) as url:
        values = referring_values(url)
    damaged = values.protobuf[0][:5] + b"\x02\x02\x0a\xff"
    in_header = [{"key": "__value_schema_id", "value": values.protobuf[1][:7]}]
    bare = values.protobuf[1][7:]
    append(log, 0, *values.avro)
    append(log, 1, *values.json)
    stored = [*values.protobuf, values.note, damaged, b"bare!", None, bare]
    log.partition("t", 2).append([
        pa.record_batch({
            "value": pa.array(stored, pa.binary()),
            "headers": pa.array([None] * 6 + [in_header], RECORDS_SCHEMA.field("headers").type),
        })
    ])  # fmt: skip

    def filled(name: str, *more: str) -> dict[tuple[int, int], tuple[Any, ...]]:
        run("--format", "registry", "--subject", f"{name}-value", "--table", table + name, *more)
        return {
            (row["_partition"], row["_offset"]): (row["id"], row["to"], row["phase"])
            for row in rows(spark, table + name)
        }

    one, two = (1, {"city": "Oslo"}), (2, {"city": "Lima"}, "paid")
    nothing = (None, None, None)
    assert filled("avro") == {(0, 0): (*one, None), (0, 1): two, (2, 5): nothing}
    assert filled("json") == {(1, 0): (*one, None), (1, 1): two, (2, 5): nothing}
    written = filled("protobuf", "--rejected", table + "_bad")
    assert written == {(2, 0): (*one, ""), (2, 1): two, (2, 5): nothing, (2, 6): two}
    parked = rows(spark, table + "_bad")
    reasons = {(row["partition"], row["offset"]): row["reason"] for row in parked}
    assert all("no schema of the subject" in reasons.pop((n, o)) for n in (0, 1) for o in (0, 1))
    assert reasons.pop((2, 2)) == "the value is another message of its schema"
    assert reasons.pop((2, 4)) == "the value carries no id of a schema"
    assert reasons.pop((2, 3)).startswith("DecodeError: ")
    assert not reasons
    append(log, 2, values.protobuf[0])
    again = filled("protobuf", "--rejected", table + "_bad", "--message", "shop.Order")
    assert again == {**written, (2, 7): (*one, "")}
    append(log, 2, values.note)
    with pytest.raises(InvalidRequest, match="made of another message"):
        filled("protobuf", "--rejected", table + "_bad", "--message", "shop.Note")


def test_avro_values_that_claim_huge_sizes_are_parked(
    run: Run, spark: SparkSession, make_log: MakeLog, table: str, tmp_path: Path
) -> None:
    numbers = {"type": "array", "items": "int"}
    fields = [
        {"name": name, "type": kind}
        for name, kind in (("s", "string"), ("b", "bytes"), ("n", numbers))
    ]
    (tmp_path / "s.avsc").write_text(json.dumps({"type": "record", "name": "r", "fields": fields}))
    huge = b"\xfe\xff\xff\xff\x0e"  # 2^31 - 1 in Avro's numbers, near the largest Java array
    append(make_log(t=1), 0, b"\x02x\x02y\x02\x04\x00", huge, b"\x00" + huge, b"\x00\x00" + huge)
    run("--format", "avro", "--avro-schema", str(tmp_path / "s.avsc"))
    assert [(row["s"], row["b"], row["n"]) for row in rows(spark, table)] == [("x", b"y", [2])]
    parked = [(row["offset"], row["reason"]) for row in rows(spark, table + "_rejected")]
    assert parked == [(n, "the value does not fit the Avro schema") for n in (1, 2, 3)]


def test_columns_widen_and_take_any_name_and_small_files_are_merged(
    run: Run, spark: SparkSession, make_log: MakeLog, table: str
) -> None:
    log = make_log(t=1)
    append(log, 0, as_json(n=1))
    words = ("--partition-by", "_date", "--no-headers", "--optimize-every", "1", "--schema")
    planned = run(*words, "n INT", "--dry-run")
    assert planned.rows == planned.details["batches"] == 1
    assert planned.details["schema"].endswith("_date:date,n:int>")
    assert not Path(table).exists()
    run(*words, "n INT")
    append(log, 0, as_json(n=1 << 40, **{"first name": "Ann"}))
    report = run(*words, "n BIGINT, `first name` STRING")
    assert report.details["merged_files"] == 2
    assert [(row["n"], row["first name"]) for row in rows(spark, table)] == [
        (1, None),
        (1 << 40, "Ann"),
    ]
    with pytest.raises(InvalidRequest, match="column=bigint given=string"):
        run(*words, "n STRING")


def test_following_job_ends_on_request(
    spark: SparkSession, make_log: MakeLog, log_root: str, table: str
) -> None:
    log = make_log(t=1)
    append(log, 0, b"before")
    batches: list[int] = []

    class Watched(DeltaTables):
        def append(
            self, rows: DataFrame, commit: TableCommit, properties: Mapping[str, str]
        ) -> None:
            super().append(rows, commit, properties)
            batches.append(commit.batch)
            if commit.batch == 1:
                append(log, 0, b"after")
            else:
                signal.raise_signal(signal.SIGTERM)

    argv = ["--root", log_root, "--topic", "t", "--table", table, "--format", "raw",
            "--from-offset", "latest", "--trigger", "100 ms"]  # fmt: skip
    report = materialize(
        parse_materialize(argv), lambda conf: spark, JobProgress(io.StringIO()), Watched
    )
    assert report.ended_by == TERMINATED
    assert batches == [1, 2]
    assert [(row["_offset"], row["value"]) for row in rows(spark, table)] == [(1, b"after")]


def test_led_topic_is_complete_with_unflushed_records(
    run: Run, spark: SparkSession, make_log: MakeLog, log_root: str, table: str
) -> None:
    log = make_log(t=1)
    with Brokers(log_root) as brokers:
        eventually(lambda: log.partition("t", 0).view().is_led, "a broker leads")
        with Producer(brokers.bootstrap) as producer:
            producer.send("t", b"first", key=b"k")
        assert run("--format", "raw").rows == 1
        with Producer(brokers.bootstrap) as producer:
            producer.send("t", b"second", key=b"k")
        view = table_view(spark, table, log_root)
        assert sorted(row["value"] for row in view.collect()) == [b"first", b"second"]
    assert run("--format", "raw").rows == 1
    assert [row["value"] for row in rows(spark, table)] == [b"first", b"second"]
