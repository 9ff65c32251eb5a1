"""A driver to be killed: copies a topic, or a folder of files, to a topic, batch by batch.

Run as a process of its own, with one JSON argument (see `Job`). Ends with 0 when all that was
there at the start has been copied. A query that fails (a killed worker, not a killed driver) is
started again in the same session, as a supervisor would.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sparklog.spark.jobs.session import QUICK_JVM, session_builder
from tests.spark.kill.points import DRIVER_FILE, PLAN_VARIABLE, PointsSource

SETTINGS = {
    # Drivers of several tests run side by side, over a few rows each.
    "spark.ui.enabled": "false",
    "spark.driver.memory": "700m",
    # A driver lives for seconds here: compile little, collect simply.
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
}


@dataclass(frozen=True)
class Job:
    """Source and target of a copy."""

    root: str
    checkpoint: str
    output: str
    """A topic; or, for a Delta table, its path."""
    topic: str = ""
    reading: dict[str, str] = field(default_factory=dict)
    """More options of the source."""
    sink: str = "sparklogpoints"
    folder: str = ""
    records_per_batch: int = 0
    restarts_max: int = 0
    master: str = "local[2,4]"
    settings: dict[str, str] = field(default_factory=dict)


def rows_of(spark: SparkSession, job: Job) -> DataFrame:
    """Return the stream to copy: one file or a number of records per batch."""
    if job.folder:
        files = spark.readStream.schema("key string, value string").option("maxFilesPerTrigger", 1)
        return files.json(job.folder)
    read = spark.readStream.format("sparklog").option("path", job.root)
    read = read.option("subscribe", job.topic).option("startingOffsets", "earliest")
    read = read.options(**job.reading)
    stream = read.option("maxOffsetsPerTrigger", job.records_per_batch).load()
    return stream.select("key", "value")


def copy(spark: SparkSession, job: Job) -> None:
    """Run the query until it has copied what there was when it began."""
    rows = rows_of(spark, job).writeStream.format(job.sink)
    rows = rows.option("checkpointLocation", job.checkpoint)
    if job.sink == "delta":
        rows = rows.option("path", job.output)
    else:
        rows = rows.option("path", job.root).option("topic", job.output)
    rows.trigger(availableNow=True).start().awaitTermination()


def main() -> None:
    """Copy, starting the query again when it fails."""
    job = Job(**json.loads(sys.argv[1]))
    (Path(os.environ[PLAN_VARIABLE]) / DRIVER_FILE).write_text(str(os.getpid()))
    spark = session_builder({**SETTINGS, **job.settings}).master(job.master).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(PointsSource)
    for left in reversed(range(job.restarts_max + 1)):
        try:
            copy(spark, job)
            break
        except PySparkException as error:
            print(f"query failed, {left} restarts left: {str(error)[:2000]}", flush=True)
            if not left:
                raise
    print("copied", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
