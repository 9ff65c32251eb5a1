"""The follower: reads the flights as they come, adds up delays, keeps a Delta table up to date.

A process of its own, with its own Spark. It says what it does as JSON lines on standard output,
and goes on until its standard input ends or says so. Then it takes what is left, and stops.
"""

from __future__ import annotations

import argparse
import json
import sys
from threading import Thread
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from sparklog.core.bounded_json import parse_json
from sparklog.spark.jobs.jars import delta_conf
from sparklog.spark.jobs.job import job_session

POLL_S = 1
SESSION = {
    # Delta reads its own log with 50 tasks otherwise: ten seconds of a commit on two cores.
    "spark.databricks.delta.snapshotPartitions": "1",
}
RECORDS_PER_BATCH = 80_000
VALUE = "carrier STRING, dep_delay BIGINT, arr_delay BIGINT"


def delays(spark: SparkSession, root: str) -> DataFrame:
    """Return flights and delays by carrier and hour, as a stream over the topic `flights`."""
    records = (
        spark.readStream.format("sparklog")
        .schema("value BINARY, timestamp TIMESTAMP")
        .option("path", root)
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", RECORDS_PER_BATCH)
        .load()
    )
    flight = sf.from_json(sf.col("value").cast("string"), VALUE)
    flights = records.select(
        flight.alias("f"), sf.window("timestamp", "1 hour").start.alias("hour")
    )
    return flights.groupBy("f.carrier", "hour").agg(
        sf.count(sf.lit(1)).alias("flights"),
        sf.count("f.dep_delay").alias("departed"),
        sf.sum("f.dep_delay").alias("dep_delay"),
        sf.sum("f.arr_delay").alias("arr_delay"),
    )


def follow(spark: SparkSession, root: str, table: str, checkpoint: str) -> None:
    """Run until asked to stop."""
    query = (
        delays(spark, root)
        .writeStream.format("delta")
        .outputMode("complete")
        .option("checkpointLocation", checkpoint)
        .start(table)
    )
    say("ready")
    Thread(target=_finish_on_request, args=(query,), name="finish", daemon=True).start()
    shown = -1
    while True:
        ended = query.awaitTermination(POLL_S)
        shown = _tell_batches(query, shown)
        if ended:
            say("done")
            return


def say(event: str, **fields: Any) -> None:
    """Report an event to the demo."""
    print(json.dumps({"event": event, **fields}), flush=True)


def _finish_on_request(query: StreamingQuery) -> None:
    sys.stdin.readline()
    query.processAllAvailable()
    query.stop()


def _tell_batches(query: StreamingQuery, shown: int) -> int:
    for one in query.recentProgress:
        if one.batchId <= shown or not one.numInputRows:
            continue
        shown = one.batchId
        end = parse_json(one.sources[0].endOffset, "end offsets of a query")["flights"]
        groups = one.stateOperators[0].numRowsTotal
        say("batch", rows=one.numInputRows, end=end, groups=groups, ms=one.batchDuration)
    return shown


def main() -> None:
    """Parse, and follow."""
    parser = argparse.ArgumentParser(description="Follow the demo's flights.")
    for name in ("root", "table", "checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    spark = job_session("sparklog demo: follower", {**delta_conf(), **SESSION})
    try:
        follow(spark, given.root, given.table, given.checkpoint)
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
