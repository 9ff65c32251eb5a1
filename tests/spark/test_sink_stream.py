"""Streaming writes: `df.writeStream.format("sparklog")`, against a real session."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sparklog.cluster.log import Log
from tests.spark.conftest import MakeLog

WAIT_SECONDS_MAX = 300


def feed(log: Log, topic: str, numbers: range, partition: int = 0) -> None:
    """Append numbers to a topic."""
    batch = pa.RecordBatch.from_pydict(
        {"key": [b"%d" % (n % 7) for n in numbers], "value": [b"%d" % n for n in numbers]}
    )
    log.partition(topic, partition).append([batch])


def stream_of(spark: SparkSession, root: str, topic: str, **options: str) -> DataFrame:
    read = spark.readStream.format("sparklog").option("path", root).option("subscribe", topic)
    return read.option("startingOffsets", "earliest").options(**options).load()


def to_log(rows: DataFrame, root: str, topic: str, checkpoint: Path) -> DataStreamWriter:
    writer = rows.writeStream.format("sparklog").option("path", root).option("topic", topic)
    return writer.option("checkpointLocation", str(checkpoint))


def run(writer: DataStreamWriter) -> StreamingQuery:
    """Copy what is there, and return the ended query."""
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_SECONDS_MAX), "the query did not end"
    return query


def numbers(log: Log, topic: str, partitions: int) -> list[list[int]]:
    log.refresh()
    found = []
    for partition in range(partitions):
        place = log.partition(topic, partition)
        batches = place.read(0, place.view().end_offset, ("value",))
        found.append([int(v) for b in batches for v in b.column("value").to_pylist()])
    return found


def test_batches_arrive_once_and_in_order_and_go_on_where_they_ended(
    spark: SparkSession, make_log: MakeLog, log_root: str, tmp_path: Path
) -> None:
    log = make_log(source=1, t=3)
    rows = stream_of(spark, log_root, "source", maxOffsetsPerTrigger="100").select("key", "value")
    writer = to_log(rows, log_root, "t", tmp_path / "checkpoint")
    for base in (0, 250):
        feed(log, "source", range(base, base + 250))
        run(writer)
    found = numbers(log, "t", 3)
    assert sorted(n for part in found for n in part) == list(range(500))
    assert all(part == sorted(part) for part in found)
    commits = [info.key for info in log.store.list("commits/")]
    assert len(commits) == 6
    assert len({key.rpartition("/")[0] for key in commits}) == 1, "one query, one writer"


def test_published_batch_is_not_published_again_after_a_lost_commit(
    spark: SparkSession, make_log: MakeLog, log_root: str, tmp_path: Path
) -> None:
    log = make_log(source=1, t=2)
    feed(log, "source", range(100))
    checkpoint = tmp_path / "checkpoint"
    writer = to_log(
        stream_of(spark, log_root, "source").select("key", "value"), log_root, "t", checkpoint
    )
    run(writer)
    for commit in (checkpoint / "commits").iterdir():
        commit.unlink()  # as if the driver had died right after the sink's commit
    feed(log, "source", range(100, 150))
    run(writer)
    found = numbers(log, "t", 2)
    assert sorted(n for part in found for n in part) == list(range(150))
    referenced = {
        log.partition("t", p).layout.key(entry.object)
        for p in range(2)
        for entry in log.partition("t", p).view().entries
    }
    assert referenced == {i.key for i in log.store.list("topics/t~") if "/staged/" in i.key}


def test_two_queries_share_a_topic(
    spark: SparkSession, make_log: MakeLog, log_root: str, tmp_path: Path
) -> None:
    log = make_log(one=1, two=1, t=2)
    feed(log, "one", range(1000))
    feed(log, "two", range(1000, 2000))
    queries = []
    for name in ("one", "two"):
        rows = stream_of(spark, log_root, name, maxOffsetsPerTrigger="200")
        writer = to_log(rows.select("key", "value"), log_root, "t", tmp_path / name)
        queries.append(writer.trigger(availableNow=True).start())
    for query in queries:
        assert query.awaitTermination(WAIT_SECONDS_MAX)
    counted = Counter(n for part in numbers(log, "t", 2) for n in part)
    assert counted == Counter(range(2000))


def test_complete_mode_appends_every_row_as_kafkas_sink_does(
    spark: SparkSession, make_log: MakeLog, log_root: str, tmp_path: Path
) -> None:
    log = make_log(source=1, complete=1)
    rows = stream_of(spark, log_root, "source", maxOffsetsPerTrigger="10")
    counts = rows.groupBy().count().selectExpr("CAST(count AS STRING) AS value")
    feed(log, "source", range(20))
    run(to_log(counts, log_root, "complete", tmp_path / "complete").outputMode("complete"))
    assert numbers(log, "complete", 1) == [[10, 20]]


def test_update_mode_is_rejected_as_for_every_python_sink(
    spark: SparkSession, make_log: MakeLog, log_root: str, tmp_path: Path
) -> None:
    log = make_log(source=1, update=1)
    feed(log, "source", range(3))
    counts = stream_of(spark, log_root, "source").groupBy().count()
    values = counts.selectExpr("CAST(count AS STRING) AS value")
    with pytest.raises(PySparkException, match="does not support Update mode"):
        run(to_log(values, log_root, "update", tmp_path / "update").outputMode("update"))
    assert numbers(log, "update", 1) == [[]]


def test_each_batch_of_for_each_batch_is_written_once_by_its_number(
    spark: SparkSession, make_log: MakeLog, log_root: str, tmp_path: Path
) -> None:
    log = make_log(source=1, t=2)
    feed(log, "source", range(50))
    fails = [True]

    def write(rows: DataFrame, batch_id: int) -> None:
        sink = rows.write.format("sparklog").option("path", log_root).option("topic", "t")
        numbered = sink.option("txnAppId", "copy").option("txnVersion", batch_id)
        numbered.mode("append").save()
        if batch_id == 1 and fails.pop():
            raise ZeroDivisionError("after the write")

    rows = stream_of(spark, log_root, "source", maxOffsetsPerTrigger="20").select("key", "value")
    writer = rows.writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(PySparkException, match="after the write"):
        run(writer)
    fails.append(False)
    run(writer)
    found = numbers(log, "t", 2)
    assert sorted(n for part in found for n in part) == list(range(50))


def test_a_topic_that_is_created_again_gets_the_batches_that_follow(
    spark: SparkSession, make_log: MakeLog, log_root: str, tmp_path: Path
) -> None:
    log = make_log(source=1, t=1)
    feed(log, "source", range(10))
    writer = to_log(
        stream_of(spark, log_root, "source").select("key", "value"), log_root, "t", tmp_path / "c"
    )
    run(writer)
    log.delete_topic("t")
    feed(log, "source", range(10, 20))
    with pytest.raises(PySparkException, match=r"topics --create --topic t"):
        run(writer)
    log.create_topic("t", 1)
    run(writer)
    assert numbers(log, "t", 1) == [list(range(10, 20))]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (["key"], {}, r"Required attribute 'value' not found"),
        (["CAST(value AS STRING) AS value", "1L AS partition"], {}, r"partition attribute unsupp"),
        (["value"], {"txnAppId": "a", "txnVersion": "1"}, r"batch writes"),
        (["value"], {"startingOffsets": "latest"}, r"no such option"),
        (["value"], {"topic": "nosuch"}, r"topics --create --topic nosuch"),
    ],
)
def test_bad_input_fails_the_query_with_a_clear_error(
    spark: SparkSession,
    make_log: MakeLog,
    log_root: str,
    tmp_path: Path,
    columns: list[str],
    options: dict[str, str],
    message: str,
) -> None:
    log = make_log(source=1, t=1)
    feed(log, "source", range(3))
    rows = stream_of(spark, log_root, "source").selectExpr(*columns)
    with pytest.raises(PySparkException, match=message):
        run(to_log(rows, log_root, "t", tmp_path / "checkpoint").options(**options))
    assert numbers(log, "t", 1) == [[]]
