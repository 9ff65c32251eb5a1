"""A pipeline from a topic to a table and a topic, and the rows that Debezium's events add up to."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sparklog.cluster.log import Log
from sparklog.core.errors import InvalidRequest, Unavailable
from sparklog.spark.jobs.jars import DELTA_CATALOG
from sparklog.spark.jobs.progress import JobProgress
from sparklog.spark.materialize.rows import given_fields
from sparklog.spark.pipeline.debezium import change_rows, current_table, newest_rows
from sparklog.spark.pipeline.lineage import flows_of
from sparklog.spark.pipeline.project import PipelineProject, create_project
from sparklog.spark.pipeline.run import PipelineJob, PipelineReport, run_pipeline

LARGE = """
CREATE STREAMING TABLE large AS
SELECT v.user, v.amount FROM
  (SELECT from_json(CAST(value AS STRING), 'user STRING, amount INT') AS v FROM STREAM orders)
WHERE v.amount >= 50;
"""
SPENDING = """
CREATE MATERIALIZED VIEW spending AS
SELECT c.name, sum(l.amount) AS total
FROM larger l JOIN customers c ON l.user = c.id GROUP BY c.name;
"""
SINK = """
from pyspark import pipelines as dp

ROOT = {root!r}
dp.create_sink("out", "sparklog", {{"path": ROOT, "topic": "out"}})

@dp.append_flow(target="out", name="to_out")
def to_out():
    stream = spark.readStream.format("sparklog").option("path", ROOT).option("subscribe", "orders")
    return stream.option("startingOffsets", "earliest").load().select("key", "value")
"""
CUSTOMERS = """
from sparklog.spark.pipeline.debezium import current_table

current_table(spark, "customers", root={root!r}, topic="shop.customers",
              fields="id STRING, name STRING, tags ARRAY<STRING>", keys=["id"])
"""
FIELDS = "id STRING, name STRING, tags ARRAY<STRING>"
ORDERS = [(b"k", json.dumps({"user": f"u{n % 5}", "amount": n}).encode()) for n in range(100)]
CUSTOMERS_NOW = [
    ("u1", "Anna", ["a", "Anna"]),
    ("u2", "Rob", ["a", "Rob"]),
    ("u4", "Dora", ["a", "Dora"]),
]


def change(op: str, key: str, name: str, lsn: int, *, schemas: bool = False) -> tuple[bytes, bytes]:
    """Return key and value of an event as Debezium's connector for PostgreSQL writes them."""
    row = {"id": key, "name": name, "tags": ["a", name]}
    event: dict[str, Any] = {
        "before": {"id": key, "name": None, "tags": None} if op in "ud" else None,
        "after": None if op == "d" else row,
        "source": {"version": "3.0", "connector": "postgresql", "lsn": lsn, "table": "customers"},
        "op": op,
        "ts_ms": 1,
    }
    named: dict[str, Any] = {"id": key}
    if schemas:
        event, named = {"schema": {}, "payload": event}, {"schema": {}, "payload": named}
    return json.dumps(named).encode(), json.dumps(event).encode()


def tombstone(key: str) -> tuple[bytes, None]:
    return json.dumps({"id": key}).encode(), None


CHANGES = [
    change("r", "u1", "Ann", 1),
    change("c", "u2", "Bob", 2, schemas=True),
    change("u", "u1", "Anna", 5),
    change("u", "u1", "late", 3),
    change("c", "u3", "Cid", 6),
    change("d", "u3", "", 7),
    tombstone("u3"),
    change("u", "u3", "gone", 4),
    change("c", "u4", "Dot", 8),
    change("d", "u4", "", 9, schemas=True),
    tombstone("u4"),
    change("c", "u4", "Dora", 10),
    change("u", "u2", "Rob", 12),
    change("u", "u2", "Rob", 12),
]
"""A late event, a delete with its tombstone, an older event after it, a key that comes again."""


def append(log: Log, topic: str, rows: Sequence[tuple[bytes, bytes | None]]) -> None:
    keys, values = zip(*rows, strict=True)
    columns = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
    log.partition(topic, 0).append([pa.record_batch(columns)])


def values_of(log: Log, topic: str) -> list[bytes]:
    partition = log.partition(topic, 0)
    batches = partition.read(0, partition.probe().end_offset, ("value",))
    return [value for batch in batches for value in batch.column("value").to_pylist()]


@pytest.fixture
def project(make_log: Callable[..., Log], log_root: str, tmp_path: Path) -> PipelineProject:
    log = make_log(orders=1, out=1)
    log.create_topic("shop.customers", partitions=1)
    append(log, "orders", ORDERS)
    append(log, "shop.customers", CHANGES)
    made = create_project(tmp_path / "project", log_root, ["orders"])
    definitions = made.folder / "transformations"
    (definitions / "tables.sql").write_text(LARGE)
    (definitions / "sinks.py").write_text(SINK.format(root=log_root))
    return made


def run(spark: SparkSession, project: PipelineProject) -> PipelineReport:
    job = PipelineJob(project.folder)
    return run_pipeline(job, lambda _: spark, JobProgress(io.StringIO()))


def rows_of(spark: SparkSession, table: str) -> list[tuple[Any, ...]]:
    session = spark.newSession()
    for name, value in DELTA_CATALOG.items():
        session.conf.set(name, value)
    return sorted(map(tuple, session.table(table).collect()))


def test_a_pipeline_writes_a_table_and_a_topic_from_a_topic(
    spark: SparkSession, project: PipelineProject, make_log: Callable[..., Log]
) -> None:
    with project.locked(), pytest.raises(Unavailable, match="another process runs"):
        run(spark, project)
    report = run(spark, project)
    assert (report.updates, report.flows) == (1, 2)
    assert rows_of(spark, "large") == sorted((f"u{n % 5}", n) for n in range(50, 100))
    assert values_of(make_log(), "out") == [value for _, value in ORDERS]
    flows = {one.flow: one for one in flows_of(project.storage, project.sinks())}
    assert set(flows) == {"large", "to_out"}
    assert flows["to_out"].target == "out"
    assert (flows["to_out"].batch, flows["to_out"].committed) == (0, 0)
    assert flows["to_out"].sources == ({"orders": {"0": 100}},)
    assert flows["to_out"].written == {"out": {"0": (0, 100)}}
    assert flows["large"].written is None, "a table has no offsets"


@pytest.mark.soak
def test_a_materialized_view_joins_a_debezium_topics_current_table(
    spark: SparkSession, project: PipelineProject, log_root: str
) -> None:
    definitions = project.folder / "transformations"
    (definitions / "customers.py").write_text(CUSTOMERS.format(root=log_root))
    (definitions / "tables.sql").write_text(LARGE.replace("large", "larger") + SPENDING)
    assert run(spark, project).flows == 5
    assert rows_of(spark, "customers") == CUSTOMERS_NOW
    totals = {n: sum(a for a in range(50, 100) if a % 5 == n) for n in range(5)}
    assert dict(rows_of(spark, "spending")) == {
        "Anna": totals[1], "Rob": totals[2], "Dora": totals[4],
    }  # fmt: skip


def test_change_events_in_any_order_give_the_current_rows(spark: SparkSession) -> None:
    row = given_fields(FIELDS)
    kind = "key BINARY, value BINARY, partition INT, offset BIGINT"
    for seed in (None, 1):
        events = list(CHANGES)
        if seed is not None:
            random.Random(seed).shuffle(events)
        records = spark.createDataFrame([(k, v, 0, n) for n, (k, v) in enumerate(events)], kind)
        changes = change_rows(records, row, ["id"], "postgresql")
        found = newest_rows(changes, row, ["id"]).collect()
        assert sorted(map(tuple, found)) == CUSTOMERS_NOW
    for value in (b"no event", b'{"op":"t","source":{"lsn":1}}'):
        records = spark.createDataFrame([(b"{}", value, 3, 7)], kind)
        with pytest.raises(PySparkException, match=r"not a change of one row.*partition=3"):
            change_rows(records, row, ["id"], "postgresql").collect()


def test_a_current_table_refuses_unknown_keys_and_connectors(spark: SparkSession) -> None:
    wrong: list[dict[str, Any]] = [
        {"keys": ["nr"]},
        {"keys": []},
        {"keys": ["id"], "connector": "db2"},
    ]
    for given in wrong:
        with pytest.raises(InvalidRequest, match=r"connector|keys"):
            current_table(spark, "t", root="r", topic="t", fields="id INT", **given)
