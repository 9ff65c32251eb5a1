"""Batch reads through Spark itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from sparklog.cluster.log import Log
from sparklog.log.schema import HEADERS, TIMESTAMP
from tests.spark.conftest import MakeLog

COUNT = 20_000


def fill(log: Log, topic: str, partitions: int, count: int = COUNT) -> None:
    """Append `count` numbered records to each partition, in three segments, a millisecond apart."""
    for p in range(partitions):
        for low, high in ((0, count // 2), (count // 2, count - 1), (count - 1, count)):
            span = range(low, high)
            log.partition(topic, p).append(
                [
                    pa.RecordBatch.from_pydict(
                        {
                            "timestamp": pa.array(
                                range(1_000_000 + low, 1_000_000 + high), pa.int64()
                            ).cast(TIMESTAMP),
                            "key": pa.array([b"key-%d" % (i % 10) for i in span]),
                            "value": pa.array([b"value-%d-%d" % (p, i) for i in span]),
                        }
                    )
                ]
            )


@pytest.fixture
def log(make_log: MakeLog) -> Log:
    made = make_log(flights=2)
    fill(made, "flights", 2)
    return made


def read(spark: SparkSession, root: str, schema: Any = None, **options: str) -> DataFrame:
    reader = spark.read.format("sparklog")
    if schema is not None:
        reader = reader.schema(schema)
    return reader.options(**{"subscribe": "flights", **options}).load(root)


def test_columns_and_values_are_those_of_the_kafka_source(
    spark: SparkSession, log: Log, log_root: str
) -> None:
    log.create_topic("h", configs={"message.timestamp.type": "LogAppendTime"})
    log.partition("h", 0).append(
        [
            pa.RecordBatch.from_pydict(
                {
                    "value": pa.array([b"v", None]),
                    "headers": pa.array([[("a", b"1"), ("a", None)], None], HEADERS),
                }
            )
        ]
    )
    df = read(spark, log_root, subscribe="h", includeHeaders="true")
    assert df.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    first, second = df.orderBy("offset").collect()
    assert (first.key, first.value, first.topic, first.partition, first.offset) == (
        *(None, b"v", "h", 0, 0),
    )
    assert [(h.key, h.value) for h in first.headers] == [("a", b"1"), ("a", None)]
    assert (second.value, second.headers) == (None, None)
    assert (first.timestampType, first.timestamp) == (1, second.timestamp)
    row = read(spark, log_root).where("partition = 1 AND offset = 7").collect()[0]
    assert row.timestamp.timestamp() * 1000 == 1_000_007
    assert "headers" not in read(spark, log_root).columns


def test_every_record_comes_once(spark: SparkSession, log: Log, log_root: str) -> None:
    for options in ({}, {"minPartitions": "7"}, {"maxRecordsPerPartition": "3000"}):
        df = read(spark, log_root, **options)
        row = df.selectExpr(
            "count(*) AS all",
            "count(DISTINCT partition, offset) AS different",
            "count_if(CAST(value AS STRING) = concat_ws('-', 'value', partition, offset)) AS right",
        ).collect()[0]
        assert tuple(row) == (2 * COUNT,) * 3
    cut = read(spark, log_root, maxRecordsPerPartition="3000")
    assert cut.rdd.getNumPartitions() == 14


def test_a_schema_reads_its_columns_only(spark: SparkSession, log: Log, log_root: str) -> None:
    df = read(spark, log_root, "OFFSET BIGINT, value BINARY")
    assert df.columns == ["OFFSET", "value"]
    assert df.where("offset = 19999").count() == 2
    assert read(spark, log_root, StructType([])).count() == 2 * COUNT
    assert read(spark, log_root, "offset BIGINT").agg({"offset": "sum"}).collect()[0][0] == (
        COUNT * (COUNT - 1)
    )


def test_ranges_by_offset_and_time(spark: SparkSession, log: Log, log_root: str) -> None:
    start = json.dumps({"flights": {"0": 100, "1": -2}})
    end = json.dumps({"flights": {"0": 150, "1": 10}})
    df = read(spark, log_root, startingOffsets=start, endingOffsets=end)
    assert df.groupBy("partition").count().orderBy("partition").collect() == [(0, 50), (1, 10)]
    df = read(spark, log_root, startingTimestamp="1000500", endingTimestamp="1000510")
    assert sorted(r.offset for r in df.collect()) == sorted([*range(500, 510)] * 2)


def test_one_relation_may_be_used_twice_in_a_query(
    spark: SparkSession, log: Log, log_root: str
) -> None:
    """Pushing filters down would prune the plan that all uses of one relation share."""
    base = read(spark, log_root)
    first, second = base.where("partition = 0"), base.where("partition = 1 AND offset < 5")
    assert first.count() == COUNT
    assert base.count() == 2 * COUNT
    both = first.union(second)
    assert both.groupBy("partition").count().orderBy("partition").collect() == [(0, COUNT), (1, 5)]
    joined = first.alias("a").join(second.alias("b"), "offset")
    assert joined.selectExpr("a.partition", "b.partition").distinct().collect() == [(0, 1)]
    assert joined.count() == 5
    assert base.where("partition = 5").count() == 0
    assert base.count() == 2 * COUNT


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "nowhere"}, "no such topic.*topic=nowhere"),
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries"),
        ({"startingOffsets": '{"flights": {"0": 1}}'}, "Specified: .flights-0. Assigned"),
        ({"startingOffsets": '{"flights": {"0": 1, "1": 20001}}'}, "start offset 20001 is greater"),
        ({"endingOffsets": '{"flights": {"0": 1, "1": 20001}}'}, "failOnDataLoss to false"),
    ],
)
def test_options_that_do_not_fit_the_log_fail_before_any_task(
    spark: SparkSession, log: Log, log_root: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(AnalysisException, match=f"(?s){message}"):
        read(spark, log_root, **options).collect()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("value STRING", "type=binary asked=string"),
        ("offset BIGINT, body BINARY", "no such column"),
    ],
)
def test_bad_columns_fail_before_any_task(
    spark: SparkSession, log: Log, log_root: str, schema: str, message: str
) -> None:
    with pytest.raises(AnalysisException, match=message):
        read(spark, log_root, schema).collect()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"assign": '{"flights": [2]}'}, "Only one of the following options can be specified"),
        ({"startingOfset": "earliest"}, "did you mean startingOffsets"),
        ({"minPartitions": "0"}, "minPartitions must be positive"),
    ],
)
def test_unknown_read_options_fail_at_load(
    spark: SparkSession, log_root: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(AnalysisException, match=message):
        read(spark, log_root, **options)
    with_schema = read(spark, log_root, "offset BIGINT", **options)
    with pytest.raises(AnalysisException, match=message):
        with_schema.collect()  # Spark makes the source no earlier if it gets a schema


def test_damage_fails_the_query_and_names_the_object(
    spark: SparkSession, log: Log, log_root: str, tmp_path: Path
) -> None:
    (segment,) = tmp_path.glob("log/topics/flights*/1/log/*10000.arrow")
    data = bytearray(segment.read_bytes())
    data[len(data) // 4] ^= 1
    segment.write_bytes(data)
    with pytest.raises(PySparkException, match=f"DataCorrupt.*{segment.name}"):
        read(spark, log_root).selectExpr("sum(length(value))").collect()
    assert read(spark, log_root, "offset BIGINT").count() == 2 * COUNT


def test_deleted_records_fail_the_query_by_default(
    spark: SparkSession, log: Log, log_root: str
) -> None:
    log.partition("flights", 0).delete_records(COUNT - 3)
    assert read(spark, log_root).count() == COUNT + 3
    gone = {"startingOffsets": '{"flights": {"0": 0, "1": -2}}'}
    with pytest.raises(AnalysisException, match=r"flights-0 was 0 but the log starts at 19997"):
        read(spark, log_root, **gone).count()
    assert read(spark, log_root, failOnDataLoss="false", **gone).count() == COUNT + 3


def test_the_root_may_come_from_the_environment_of_the_driver(
    spark: SparkSession, log: Log, log_root: str
) -> None:
    with pytest.raises(AnalysisException, match="SPARKLOG_ROOT"):
        spark.read.format("sparklog").option("subscribe", "flights").load()
