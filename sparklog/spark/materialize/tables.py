"""The two Delta tables of a materialisation, and how a batch gets into them.

Each write is one Delta commit with the batch's number (txnAppId, txnVersion) and its `TableCommit`.
The session is one of our own: settings that a write needs reach no other user's queries.

  TABLES-1: a batch with a number that the table has already is not written again, without an
      error. So after every write the job asks the table whose commit it has
  TABLES-2: a commit always has something in it, its number: an empty batch moves the table on, too
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType
from pyspark.sql.window import Window

from sparklog.core.errors import InvalidRequest
from sparklog.spark.access.sql_names import quoted, spare_name
from sparklog.spark.jobs.jars import DELTA_CATALOG, DELTA_COORDINATE, DELTA_EXTENSION
from sparklog.spark.materialize.commit import APP_ID, TableCommit, parse_commit
from sparklog.spark.materialize.schema import value_fields

SESSION_CONF: Final[Mapping[str, str]] = {
    # Delta looks its log up with this many tasks; its default of 50 is meant for millions of files.
    "spark.databricks.delta.snapshotPartitions": "2",
    # Files of this size are left as they are, else every round would write the whole table anew.
    "spark.databricks.delta.optimize.minFileSize": str(96 << 20),
    "spark.databricks.delta.optimize.maxFileSize": str(128 << 20),
    # A record's day must not depend on where the job runs.
    "spark.sql.session.timeZone": "UTC",
}
_CONF: Final = "spark.databricks.delta."
_HISTORY_STEPS: Final = (1, 20, 1000)
"""Number of commits in which to look for the newest of ours, before looking in all of them."""


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table as it is now."""

    exists: bool
    version: int = -1
    """Of the newest commit by any writer."""
    commit: TableCommit | None = None
    """The newest of ours."""
    committed_ms: int = 0
    """When that was."""
    rows: int = 0
    size_bytes: int = 0
    """The result that the commit has written."""


def own_session(spark: SparkSession) -> SparkSession:
    """Return a session of the same application, for this job alone.

    Raises:
        InvalidRequest: the application was started without Delta Lake.
    """
    for name, wanted in DELTA_EXTENSION.items():
        if wanted not in (spark.conf.get(name, "") or ""):
            raise InvalidRequest(
                "this Spark application was started without Delta Lake, and cannot be given it "
                f"later. Start it with --packages {DELTA_COORDINATE} (or the jars that make setup "
                f"has fetched), and with --conf {name}={wanted}"
            )
    session = spark.newSession()
    for name, value in {**DELTA_CATALOG, **SESSION_CONF}.items():
        session.conf.set(name, value)
    return session


class DeltaTables:
    """The table of a topic and the table of what was rejected."""

    def __init__(
        self,
        spark: SparkSession,
        table: str,
        rejected: str,
        partition_by: tuple[str, ...] = (),
    ) -> None:
        """Name the tables by their paths; `spark` is `own_session`'s."""
        self._spark = spark
        self.table = table
        self.rejected = rejected
        self._partition_by = partition_by

    def newest(self) -> FoundTable:
        """Return the table, and the newest batch in it.

        Raises:
            InvalidRequest: there is a table and none of its commits is ours.
        """
        return newest_commit(self._spark, self.table)

    def newest_rejected(self) -> FoundTable:
        """Return the same of the rejected records' table."""
        return newest_commit(self._spark, self.rejected)

    def fields(self) -> StructType:
        """Return the table's columns as fields of the value."""
        return value_fields(self._spark.read.format("delta").load(self.table).schema)

    def append(self, rows: DataFrame, commit: TableCommit, properties: Mapping[str, str]) -> None:
        """Write a batch's rows as one commit, unless the table has its number (TABLES-1).

        `properties` are for a table that is made by it.
        """
        writer = self._writer(rows, commit).options(**properties)
        if self._partition_by:
            # One writer per value, and not every task a file for every value.
            writer = writer.partitionBy(*self._partition_by).option("optimizeWrite", "true")
        writer.save(self.table)

    def upsert(self, rows: DataFrame, commit: TableCommit, dead: str) -> None:
        """Bring in the newest row of each key; a row whose column `dead` holds deletes its key."""
        newest = Window.partitionBy("_partition", "_key").orderBy(sf.desc("_offset"))
        rank = spare_name("__sparklog_rank", rows.columns)
        ranked = rows.withColumn(rank, sf.row_number().over(newest))
        source = ranked.where(sf.col(rank) == 1).drop(rank)
        columns: dict[str, str | Column] = {
            quoted(name): quoted("s", name) for name in rows.columns if name != dead
        }
        into = DeltaTable.forPath(self._spark, self.table).alias("t")
        on = "t._partition = s._partition AND t._key = s._key"
        is_dead = quoted("s", dead)
        merge = into.merge(source.alias("s"), on).withSchemaEvolution()
        merge = merge.whenMatchedDelete(f"{is_dead} AND s._offset > t._offset")
        merge = merge.whenMatchedUpdate(f"NOT {is_dead} AND s._offset > t._offset", columns)
        merge = merge.whenNotMatchedInsert(f"NOT {is_dead}", columns)
        with self._marked(commit):
            merge.execute()

    def park(self, rows: DataFrame, commit: TableCommit) -> None:
        """Write a batch's rejected rows as one commit, unless that table has its number."""
        self._writer(rows, commit).save(self.rejected)

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set properties of the table."""
        named = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        self._spark.sql(f"ALTER TABLE {quoted('delta', self.table)} SET TBLPROPERTIES ({named})")

    def optimize(self) -> dict[str, int]:
        """Merge small files; returns how many went and how many came."""
        done = DeltaTable.forPath(self._spark, self.table).optimize().executeCompaction()
        (row,) = done.select("metrics.numFilesRemoved", "metrics.numFilesAdded").collect()
        return {"removed": int(row[0]), "added": int(row[1])}

    def _writer(self, rows: DataFrame, commit: TableCommit) -> Any:
        return (
            rows.write.format("delta")
            .mode("append")
            .option("mergeSchema", "true")
            .option("txnAppId", APP_ID)
            .option("txnVersion", commit.batch)
            .option("userMetadata", commit.to_json())
        )

    @contextmanager
    def _marked(self, commit: TableCommit) -> Iterator[None]:
        """Say of a statement, which has no options, what `_writer` says of a write."""
        settings = {
            "write.txnAppId": APP_ID,
            "write.txnVersion": str(commit.batch),
            "commitInfo.userMetadata": commit.to_json(),
        }
        for name, value in settings.items():
            self._spark.conf.set(_CONF + name, value)
        try:
            yield
        finally:
            for name in settings:
                self._spark.conf.unset(_CONF + name)


def newest_commit(spark: SparkSession, path: str) -> FoundTable:
    """Return the newest batch of a table, by its own history.

    Raises:
        InvalidRequest: there is a table and none of its commits is ours.
    """
    if not DeltaTable.isDeltaTable(spark, path):
        return FoundTable(exists=False)
    table = DeltaTable.forPath(spark, path)
    oldest = 0
    for limit in (*_HISTORY_STEPS, None):
        history = table.history(limit) if limit else table.history()
        at = sf.unix_millis("timestamp").alias("at_ms")
        columns = ("version", "operation", "userMetadata", "operationMetrics")
        rows = history.select(at, *columns).collect()
        seen = sorted(rows, key=lambda row: -int(row.version))
        for row in seen:
            if row.operation == "RESTORE":
                # The rows went back, and the numbers that Delta takes once did not.
                raise InvalidRequest(
                    "the table was restored to an older version, and no batch can follow that; "
                    f"make a new one. table={path} version={row.version}"
                )
            commit = parse_commit(row.userMetadata)
            if commit is not None:
                metrics = row.operationMetrics or {}
                return FoundTable(
                    exists=True,
                    version=int(seen[0].version),
                    commit=commit,
                    committed_ms=int(row.at_ms),
                    rows=_rows_of(metrics),
                    size_bytes=_bytes_of(metrics),
                )
        oldest = int(seen[-1].version) if seen else 0
        if limit is None or len(seen) < limit:
            break
    raise InvalidRequest(
        "there is a table that no materialisation has written, or none since Delta forgot the "
        "older commits (delta.logRetentionDuration); name another folder. "
        f"table={path} oldest_version={oldest}"
    )


def _rows_of(metrics: Mapping[str, str]) -> int:
    changed = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
    if any(name in metrics for name in changed):
        return sum(int(metrics.get(name, 0)) for name in changed)
    return int(metrics.get("numOutputRows", 0))


def _bytes_of(metrics: Mapping[str, str]) -> int:
    return int(metrics.get("numOutputBytes", metrics.get("numTargetBytesAdded", 0)))
