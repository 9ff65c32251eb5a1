"""Topics in SQL: the table that stands for a log, options in WITH, a view per topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from sparklog.cluster.log import Log, open_log
from sparklog.core.errors import InvalidRequest
from sparklog.log.schema import HEADERS
from sparklog.spark.views import create_table, create_topic_views
from tests.spark.conftest import MakeLog


def append(log: Log, topic: str, *values: str) -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([v.encode() for v in values]),
            "headers": pa.array([[("h", v.encode())] for v in values], HEADERS),
        }
    )
    log.partition(topic, 0).append([batch])


@pytest.fixture
def database(spark: SparkSession) -> Iterator[str]:
    """A database for one test's tables and views; it is the current one meanwhile."""
    spark.sql("CREATE DATABASE source_sql")
    spark.sql("USE source_sql")
    yield "source_sql"
    spark.sql("USE default")
    spark.sql("DROP DATABASE source_sql CASCADE")


def values(spark: SparkSession, query: str) -> list[str]:
    return sorted(
        row[0] for row in spark.sql(f"SELECT CAST(value AS STRING) FROM {query}").collect()
    )


def test_options_are_given_where_a_table_is_read(
    spark: SparkSession, database: str, make_log: MakeLog, log_root: str, tmp_path: Path
) -> None:
    log = make_log(t=1, u=1)
    append(log, "t", "a", "b")
    append(log, "u", "c")
    create_table(spark, "raw")
    create_table(spark, "raw")
    assert values(spark, f"raw WITH (path = '{log_root}', subscribe = 't')") == ["a", "b"]
    start = """startingOffsets = '{"t": {"0": 1}}'"""
    assert values(spark, f"raw WITH (path = '{log_root}', subscribe = 't', {start})") == ["b"]
    both = spark.sql(
        f"SELECT x.value FROM raw WITH (path = '{log_root}', subscribe = 't') x "
        f"JOIN raw WITH (path = '{log_root}', subscribePattern = '[tu]') y ON x.value = y.value"
    )
    assert both.count() == 2, "two reads of one table with options of their own"
    headers = f"SELECT headers[0].value FROM raw WITH (path = '{log_root}', subscribe = 'u')"
    assert spark.sql(headers).collect() == [(b"c",)]
    assert spark.read.option("path", log_root).option("subscribe", "u").table("raw").count() == 1
    streamed = spark.sql(
        f"SELECT value FROM STREAM raw WITH (path = '{log_root}', subscribe = 't', "
        "startingOffsets = 'earliest')"
    )
    found: list[int] = []
    query = (
        streamed.writeStream.foreachBatch(lambda df, _: found.append(df.count()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    assert sum(found) == 2


def test_create_table_rejects_options_that_reads_would_not_get(
    spark: SparkSession, database: str, log_root: str
) -> None:
    for clause in (f"OPTIONS (path '{log_root}', subscribe 't')", f"LOCATION '{log_root}'"):
        with pytest.raises(AnalysisException, match=r"WITH \(path ="):
            spark.sql(f"CREATE TABLE raw USING sparklog {clause}")


def test_a_table_may_have_the_columns_that_are_wanted_only(
    spark: SparkSession, database: str, make_log: MakeLog, log_root: str
) -> None:
    append(make_log(t=1), "t", "a", "b")
    spark.sql("CREATE TABLE offsets (offset BIGINT) USING sparklog")
    found = spark.sql(f"SELECT * FROM offsets WITH (path = '{log_root}', subscribe = 't')")
    assert found.collect() == [(0,), (1,)]


@pytest.mark.parametrize("temporary", [False, True])
def test_view_per_topic_shows_the_topics_current_records(
    spark: SparkSession, database: str, make_log: MakeLog, log_root: str, temporary: bool
) -> None:
    log = make_log(t=1)
    log.create_topic("odd.na-me")
    log.create_topic("__consumer_offsets", by_cluster=True)
    append(log, "t", "a")
    views = create_topic_views(spark, log_root, temporary=temporary)
    assert views == {"t": "`t`", "odd.na-me": "`odd_na_me`"}
    assert values(spark, "t") == ["a"]
    append(log, "t", "b")
    assert values(spark, "t") == ["a", "b"], "and it is planned anew for every query"
    assert values(spark, "odd_na_me") == []
    assert spark.table("t").columns == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
    ]
    again = create_topic_views(
        spark, log_root, topics=["t"], temporary=temporary, include_headers=True
    )
    assert again == {"t": "`t`"}
    assert spark.table("t").columns[-1] == "headers"
    if temporary:
        spark.catalog.dropTempView("t")
        spark.catalog.dropTempView("odd_na_me")


def test_views_with_a_prefix_options_and_awkward_roots(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    root = str(tmp_path / "a 'quoted' root\\with")
    with open_log(root) as log:
        log.create_topic("t")
        append(log, "t", "a", "b")
        log.partition("t", 0).delete_records(1)
        options = {"startingOffsets": '{"t": {"0": 0}}', "failOnDataLoss": "false"}
        views = create_topic_views(
            spark, root, topics=["t"], database=database, prefix="log_",
            table=f"{database}.raw", options=options,
        )  # fmt: skip
        assert views == {"t": f"{database}.`log_t`"}
        assert values(spark, views["t"]) == ["b"]


def test_topics_that_would_share_a_view_are_refused(spark: SparkSession, log_root: str) -> None:
    with pytest.raises(InvalidRequest, match=r"topics=a-b,a\.b"):
        create_topic_views(spark, log_root, topics=["a-b", "a.b"])
