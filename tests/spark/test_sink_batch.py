"""Batch writes: `df.write.format("sparklog")`, against a real session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as sf

from sparklog.cluster.log import Log
from sparklog.protocol.partitioner.partitioner import partition_for_key
from tests.spark.conftest import MakeLog


def to_log(rows: DataFrame, root: str, topic: str | None = "t", **options: str) -> DataFrameWriter:
    writer = rows.write.format("sparklog").option("path", root).options(**options).mode("append")
    return writer if topic is None else writer.option("topic", topic)


def records(log: Log, topic: str, partition: int) -> list[dict[str, Any]]:
    place = log.partition(topic, partition)
    found: list[dict[str, Any]] = []
    for batch in place.read(0, place.view().end_offset):
        found += batch.to_pylist()
    return found


def staged(log: Log) -> set[str]:
    return {i.key for i in log.store.list("topics/") if "/staged/" in i.key}


def named(log: Log, topic: str, partitions: int) -> set[str]:
    found = set()
    for number in range(partitions):
        place = log.partition(topic, number)
        found |= {place.layout.key(entry.object) for entry in place.view().entries}
    return found


def test_every_column_arrives_where_kafka_would_put_it(
    spark: SparkSession, make_log: MakeLog, log_root: str
) -> None:
    log = make_log(t=3)
    rows = spark.range(0, 1000, 1, 2).select(
        sf.concat(sf.lit("key-"), (sf.col("id") % 50).cast("string")).alias("key"),
        sf.col("id").cast("string").alias("value"),
        sf.array(
            sf.struct(
                sf.lit("n").alias("key"), sf.col("id").cast("string").cast("binary").alias("value")
            )
        ).alias("headers"),
        sf.timestamp_millis(sf.col("id") + 1_700_000_000_000).alias("timestamp"),
        sf.lit("not written").alias("something_else"),
    )
    to_log(rows, log_root).save()
    seen = []
    for number in range(3):
        for record in records(log, "t", number):
            value = int(record["value"])
            assert record["key"] == b"key-%d" % (value % 50)
            assert partition_for_key(record["key"], 3) == number
            assert record["headers"] == [{"key": "n", "value": b"%d" % value}]
            assert round(record["timestamp"].timestamp() * 1000) == 1_700_000_000_000 + value
            seen.append(value)
    assert sorted(seen) == list(range(1000))


def test_rows_of_a_sorted_frame_keep_their_order_within_a_partition(
    spark: SparkSession, make_log: MakeLog, log_root: str
) -> None:
    log = make_log(t=3)
    rows = spark.range(0, 200_000, 1, 4).select(
        (sf.col("id") % 1000).cast("string").alias("key"),
        sf.col("id").cast("string").alias("value"),
    )
    to_log(rows, log_root).save()
    total = 0
    for number in range(3):
        values = [int(record["value"]) for record in records(log, "t", number)]
        assert values == sorted(values)
        total += len(values)
    assert total == 200_000


def test_a_topic_column_and_a_partition_column_choose_for_each_row(
    spark: SparkSession, make_log: MakeLog, log_root: str
) -> None:
    log = make_log(one=1, two=2)
    rows = spark.createDataFrame(
        [("one", None, "a"), ("two", 1, "b"), ("two", 0, "c"), ("two", 1, "d")],
        "topic string, partition int, value string",
    ).coalesce(1)
    to_log(rows, log_root, topic=None).save()
    found = [[r["value"] for r in records(log, *p)] for p in [("one", 0), ("two", 0), ("two", 1)]]
    assert found == [[b"a"], [b"c"], [b"b", b"d"]]
    to_log(rows.where("partition is null or partition = 0"), log_root, topic="one").save()
    assert [r["value"] for r in records(log, "one", 0)] == [b"a", b"a", b"c"]


def test_rows_without_a_timestamp_get_the_time_of_writing(
    spark: SparkSession, make_log: MakeLog, log_root: str
) -> None:
    log = make_log(t=1)
    rows = spark.sql("SELECT 'v' AS value, timestamp'2020-01-01 00:00:00Z' AS timestamp")
    to_log(rows.union(spark.sql("SELECT 'w', null")).coalesce(1), log_root).save()
    to_log(rows.select("value"), log_root).save()
    years = [record["timestamp"].year for record in records(log, "t", 0)]
    assert years[0] == 2020
    assert all(year >= 2024 for year in years[1:])
    assert len(years) == 3


def test_rows_of_one_topic_can_be_written_to_another(
    spark: SparkSession, make_log: MakeLog, log_root: str
) -> None:
    log = make_log(t=2, u=2)
    log.partition("t", 1).append(
        [pa.RecordBatch.from_pydict({"key": [b"k", None], "value": [b"v", None]})]
    )
    read = spark.read.format("sparklog").option("path", log_root).option("subscribe", "t")
    frame = read.option("includeHeaders", "true").load()
    to_log(frame, log_root, topic="u").save()
    assert records(log, "u", 1) == records(log, "t", 1)
    assert records(log, "u", 0) == []


def test_no_rows_make_no_objects(spark: SparkSession, make_log: MakeLog, log_root: str) -> None:
    log = make_log(t=2)
    before = [info.key for info in log.store.list("")]
    to_log(spark.range(0).selectExpr("'v' AS value"), log_root).save()
    to_log(spark.range(10).where("id < 0").selectExpr("'v' AS value"), log_root).save()
    assert [info.key for info in log.store.list("")] == before


def test_insert_into_and_write_to_reach_the_sink(
    spark: SparkSession, make_log: MakeLog, log_root: str
) -> None:
    log = make_log(t=1)
    spark.sql("CREATE TABLE sink_raw USING sparklog")
    try:
        spark.sql(
            f"INSERT INTO sink_raw WITH (topic='t', path='{log_root}') (key, value) "
            "VALUES (CAST('k' AS BINARY), CAST('v' AS BINARY))"
        )
    finally:
        spark.sql("DROP TABLE sink_raw")
    assert [(r["key"], r["value"]) for r in records(log, "t", 0)] == [(b"k", b"v")]


def test_a_transaction_of_a_batch_write_happens_once(
    spark: SparkSession, make_log: MakeLog, log_root: str
) -> None:
    log = make_log(t=2)
    for version, rows in [(1, 10), (1, 10), (2, 5), (1, 10)]:
        frame = spark.range(rows).selectExpr("CAST(id AS STRING) AS key", "'v' AS value")
        to_log(frame, log_root, txnAppId="job", txnVersion=str(version)).save()
    assert sum(len(records(log, "t", p)) for p in range(2)) == 15
    assert staged(log) == named(log, "t", 2), "a repeated write left its staging behind"


def failing_part(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Hand rows on, then fail in the task that has row 0."""
    for batch in batches:
        yield batch
        if 0 in batch.column("id").to_pylist():
            raise ZeroDivisionError("this task fails")


def test_a_failed_write_publishes_nothing_and_leaves_nothing(
    spark: SparkSession, make_log: MakeLog, log_root: str
) -> None:
    log = make_log(t=2)
    rows = spark.range(0, 100, 1, 4).mapInArrow(failing_part, "id bigint")
    frame = rows.selectExpr("CAST(id AS STRING) AS key", "'v' AS value")
    with pytest.raises(PySparkException, match="this task fails"):
        to_log(frame, log_root).save()
    assert sum(len(records(log, "t", p)) for p in range(2)) == 0


BAD: dict[str, tuple[list[str], dict[str, str], str]] = {
    "no such topic": (["'v' AS value"], {"topic": "nosuch"}, r"topics --create --topic nosuch"),
    "no topic at all": (["'v' AS value"], {}, r"topic option required when no 'topic' attribute"),
    "no value": (["'k' AS key"], {"topic": "t"}, r"Required attribute 'value' not found"),
    "wrong type": (["id AS value"], {"topic": "t"}, r"value attribute unsupported type bigint"),
    "unknown option": (["'v' AS value"], {"topic": "t", "tpoic": "x"}, r"did you mean topic\?"),
    "partition out of range": (
        ["'v' AS value", "7 AS partition"],
        {"topic": "t"},
        r"topic=t partition=7 partitions=2",
    ),
    "null topic": (["'v' AS value", "CAST(null AS STRING) AS topic"], {}, r"null topic present"),
    "unknown topic in a row": (["'v' AS value", "'nosuch' AS topic"], {}, r"topic=nosuch"),
    "closed topic": (["'v' AS value"], {"topic": "__cluster_metadata"}, r"only the cluster itself"),
    "closed topic in a row": (
        ["'v' AS value", "'__cluster_metadata' AS topic"],
        {},
        r"only the cluster itself can append to it\. topic=__cluster_metadata",
    ),
    "too large": (["repeat('v', 1100000) AS value"], {"topic": "t"}, r"max\.message\.bytes"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_fails_with_a_clear_error_and_writes_nothing(
    spark: SparkSession, make_log: MakeLog, log_root: str, case: str
) -> None:
    columns, options, message = BAD[case]
    log = make_log(t=2)
    frame = spark.range(3).selectExpr(*columns)
    with pytest.raises(PySparkException, match=message):
        to_log(frame, log_root, None).options(**options).save()
    assert sum(len(records(log, "t", p)) for p in range(2)) == 0
    assert staged(log) == set()


def test_overwrite_mode_is_rejected_with_the_alternative(
    spark: SparkSession, make_log: MakeLog, log_root: str
) -> None:
    make_log(t=1)
    frame = spark.range(1).selectExpr("'v' AS value")
    with pytest.raises(PySparkException, match=r"Overwrite is not allowed.*append"):
        to_log(frame, log_root).mode("overwrite").save()
