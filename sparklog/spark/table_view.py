"""A materialised table and the records it does not have yet, as one: no gap, no duplicate.

    flights = table_view(spark, "s3a://bucket/tables/flights", root="s3://bucket/log")
    table_view(spark, "tables/flights", name="flights")     # and then: SELECT … FROM flights

The call fixes the table's version, the offsets up to which the log is read, and the table's
columns. Both sides meet at the offsets that the version's own commit names, so a batch that lands
meanwhile changes nothing. To see what came since, call it again: the view of the same name is
replaced. Fields that no commit has brought yet are not columns yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType
from pyspark.sql.window import Window

from sparklog.cluster.log import open_log
from sparklog.cluster.usage_reporter import reported_usage
from sparklog.core.errors import InvalidRequest
from sparklog.spark.access.log_options import parse_root
from sparklog.spark.access.sql_names import quoted, spare_name
from sparklog.spark.access.worker_usage import SPARK_QUERY
from sparklog.spark.materialize.commit import UPSERT, TableCommit, check_origin, next_starts
from sparklog.spark.materialize.rows import BAD, classified, dead_column, table_rows
from sparklog.spark.materialize.schema import DATE_COLUMN, value_fields
from sparklog.spark.materialize.tables import newest_commit
from sparklog.spark.materialize.topic import MaterializedTopic, ranges_between

_RANK: Final = "__sparklog_rank"


@dataclass(frozen=True, slots=True)
class TableView:
    """Contents of a view, by the offsets where its two sides meet and end."""

    rows: DataFrame
    version: int
    """Of the table."""
    joined_at: Mapping[int, int]
    """By partition: below this offset rows come from the table, from it on from the log."""
    ends_at: Mapping[int, int]
    """By partition: the first offset that the view does not have."""


def table_view(
    spark: SparkSession,
    table: str,
    root: str | None = None,
    *,
    name: str | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the rows of a table that `jobs/materialize.py` keeps, and of the records after them.

    Args:
        `spark`: a session with Delta Lake.
        `table`: the table's path.
        `root`: of the log; by default what `SPARKLOG_ROOT` says.
        `name`: of a temporary view to make, for SQL; replaced if there is one.
        `options`: more options of the source, such as `minPartitions`.

    Raises:
        InvalidRequest: no table, or not one of a materialisation.
        OffsetOutOfRange: the log no longer has the records after the table.
    """
    view = join_table_and_log(spark, table, root, options=options)
    if name is not None:
        view.rows.createOrReplaceTempView(name)
    return view.rows


def join_table_and_log(
    spark: SparkSession,
    table: str,
    root: str | None = None,
    *,
    options: Mapping[str, str] | None = None,
) -> TableView:
    """Return the same rows, and where the two sides meet. Raises as `table_view` does."""
    found = newest_commit(spark, table)
    commit = found.commit
    if commit is None:
        raise InvalidRequest(f"there is no table yet; run jobs/materialize.py. table={table}")
    past = spark.read.format("delta").option("versionAsOf", found.version).load(table)
    place = parse_root(root)
    origin = commit.origin
    with (
        open_log(place) as log,
        reported_usage(log, SPARK_QUERY),
        MaterializedTopic(log, place, origin.topic, origin.isolation, dict(options or {})) as topic,
    ):
        topic_id, held = topic.held()
        check_origin(commit, replace(origin, topic_id=topic_id), fail_on_data_loss=True)
        starts = next_starts(commit.ends, held, first=False, fail_on_data_loss=True)
        ends = {number: offsets.end_offset for number, offsets in held.items()}
        live = topic.records(
            spark, ranges_between(starts, ends), headers="_headers" in past.columns
        )
    if origin.mode == UPSERT:
        dead = dead_column(commit.values, value_fields(past.schema))
        rows = _upserted(past, _rows_like(past, live, commit, dead), dead)
    else:
        rows = past.unionByName(_rows_like(past, live, commit))
    return TableView(rows, found.version, starts, ends)


def _rows_like(
    past: DataFrame, live: DataFrame, commit: TableCommit, dead: str | None = None
) -> DataFrame:
    """Return records as rows of the table: its columns, types and order, and then `dead`."""
    good = classified(live, commit.values, commit.origin.mode).where(~sf.col(BAD))
    dated = DATE_COLUMN in past.columns
    known: StructType = value_fields(past.schema)
    rows = table_rows(good, commit.values, known, dated=dated, dead=dead)
    columns = [
        sf.col(quoted(one.name))
        if one.name in rows.columns
        else sf.lit(None).cast(one.dataType).alias(one.name)
        for one in past.schema.fields
    ]
    return rows.select(*columns, *([dead] if dead else []))


def _upserted(past: DataFrame, recent: DataFrame, dead: str) -> DataFrame:
    """Return the newest row of each key, without keys whose newest record has no value."""
    newest = Window.partitionBy("_partition", "_key").orderBy(sf.desc("_offset"))
    rank = spare_name(_RANK, recent.columns)
    last = recent.withColumn(rank, sf.row_number().over(newest)).where(sf.col(rank) == 1)
    kept = past.join(last.select("_partition", "_key"), ["_partition", "_key"], "left_anti")
    alive = last.where(~sf.col(dead)).drop(rank, dead)
    return kept.select(*map(quoted, past.columns)).unionByName(alive)
