"""From records of topics to the console, to Parquet or to a Delta table: `jobs/consume.py`.

Which records is the source's matter (its options), what the bytes mean is said by the job, and
where they go is Spark's. Nothing is kept in memory but what is being printed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from sparklog.cluster.open import Log, open_log
from sparklog.core.errors import InvalidConfig, InvalidRequest, UnknownTopicOrPartition
from sparklog.core.terminal import printable_json
from sparklog.spark.jars import DELTA_COORDINATE, delta_conf
from sparklog.spark.job import OpenSession
from sparklog.spark.progress import Progress, Report, StageSampler, watched
from sparklog.spark.read_schema import SPARK_TYPES
from sparklog.spark.streaming import TOTALS, Pace, await_query, observed, paced, totals_of

CONSOLE = "console"
DELTA = "delta"
SINKS = (CONSOLE, "parquet", DELTA)
DECODINGS = ("string", "json", "binary")
EARLIEST_OFFSET = -2
LATEST_OFFSET = -1


@dataclass(frozen=True, slots=True)
class Edge:
    """Where reading begins or ends: one of these, or none for the default."""

    name: str | None = None
    """`earliest`, `latest`, or JSON in the source's own spelling."""
    everywhere: int | None = None
    """The same offset in every partition."""
    partitions: Mapping[int, int] | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ConsumeJob:
    """Which records to read, what to make of them, and where to put them."""

    root: str
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    start: Edge = field(default_factory=Edge)
    end: Edge = field(default_factory=Edge)
    options: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    headers: bool = False
    key_as: str = "string"
    key_schema: str | None = None
    value_as: str = "string"
    value_schema: str | None = None
    where: str | None = None
    select: tuple[str, ...] = ()
    limit: int | None = None
    sink: str = CONSOLE
    output: str | None = None
    mode: str = "append"
    pace: Pace | None = None
    max_per_batch: int | None = None
    json: bool = False

    @property
    def label(self) -> str:
        """Return what is read, for people."""
        return ", ".join(self.topics) if self.topics else f"topics like {self.pattern}"


def consume(job: ConsumeJob, open_session: OpenSession, progress: Progress) -> Report:
    """Move the records, and return what was moved.

    Raises:
        SparklogError: the topics or the log. PySparkException: an expression or the output.
    """
    with open_log(job.root) as log:
        options = source_options(log, job)
    spark = open_session(delta_conf() if job.sink == DELTA else {})
    rows = rows_of(read_records(spark, job, options), job)
    progress.start()
    try:
        if job.pace is None:
            return _consume_once(spark, rows, job, progress)
        return _consume_stream(rows, job, job.pace, progress)
    except (PySparkException, Py4JError) as error:
        if job.sink == DELTA and "DATA_SOURCE_NOT_FOUND" in str(error):
            raise _without_delta() from error
        raise


def source_options(log: Log, job: ConsumeJob) -> dict[str, str]:
    """Return the options of the source, after a look at the topics before Spark starts.

    Raises:
        UnknownTopicOrPartition, InvalidRequest: the topics or an edge.
    """
    options = {"path": job.root}
    if job.pattern is not None:
        options["subscribePattern"] = job.pattern
    else:
        options["subscribe"] = ",".join(job.topics)
    partitions = {name: log.topic(name).partitions for name in job.topics}
    options |= _edge_options(job.start, "starting", EARLIEST_OFFSET, partitions)
    options |= _edge_options(job.end, "ending", LATEST_OFFSET, partitions)
    if "startingTimestamp" in options:
        # A partition whose records are all older has nothing to offer: that is no mistake.
        options["startingOffsetsByTimestampStrategy"] = "latest"
    if job.headers:
        options["includeHeaders"] = "true"
    if job.max_per_batch is not None:
        options["maxOffsetsPerTrigger"] = str(job.max_per_batch)
    return {**options, **job.options}


def _edge_options(
    edge: Edge, prefix: str, otherwise: int, partitions: Mapping[str, int]
) -> dict[str, str]:
    if edge.timestamp_ms is not None:
        return {f"{prefix}Timestamp": str(edge.timestamp_ms)}
    if edge.name is not None:
        return {f"{prefix}Offsets": edge.name}
    if edge.everywhere is None and edge.partitions is None:
        return {}
    if not partitions:
        raise InvalidRequest("offsets by partition need --topic; a pattern may match any topic")
    chosen = edge.partitions or {}
    for topic, count in partitions.items():
        unknown = [number for number in chosen if number >= count]
        if unknown:
            raise UnknownTopicOrPartition(
                f"no such partition. topic={topic} partition={unknown[0]} partitions={count}"
            )
    fallback = edge.everywhere if edge.everywhere is not None else otherwise
    document = {
        topic: {str(number): chosen.get(number, fallback) for number in range(count)}
        for topic, count in partitions.items()
    }
    return {f"{prefix}Offsets": json.dumps(document)}


def read_records(spark: SparkSession, job: ConsumeJob, options: Mapping[str, str]) -> DataFrame:
    """Return the records as the source gives them; only the columns that the job reads.

    Raises:
        InvalidConfig: a column that records do not have.
    """
    columns = job.columns
    for name in columns:
        if name not in SPARK_TYPES:
            raise InvalidConfig(f"records have {', '.join(SPARK_TYPES)}. column={name}")
    schema = ", ".join(f"{name} {SPARK_TYPES[name].simpleString()}" for name in columns)
    if job.pace is None:
        reader = spark.read.format("sparklog").options(**dict(options))
        return (reader.schema(schema) if schema else reader).load()
    stream = spark.readStream.format("sparklog").options(**dict(options))
    return (stream.schema(schema) if schema else stream).load()


def rows_of(records: DataFrame, job: ConsumeJob) -> DataFrame:
    """Return what is written: decoded, filtered and selected as the job says."""
    decoded = {
        name: _decoded(name, kind, schema)
        for name, kind, schema in (
            ("key", job.key_as, job.key_schema),
            ("value", job.value_as, job.value_schema),
        )
        if name in records.columns
    }
    rows = records.withColumns(decoded)
    if job.where is not None:
        rows = rows.where(job.where)
    if job.select:
        rows = rows.selectExpr(*job.select)
    return rows if job.limit is None else rows.limit(job.limit)


def _decoded(name: str, kind: str, schema: str | None) -> Column:
    if kind == "string":
        return sf.col(name).cast("string")
    if kind == "json" and schema is not None:
        return sf.from_json(sf.col(name).cast("string"), schema)
    return sf.col(name)


def _consume_once(
    spark: SparkSession, rows: DataFrame, job: ConsumeJob, progress: Progress
) -> Report:
    if job.output is None:
        count = _print(rows)
        return Report("consumed", job.label, count, 0, progress.elapsed_s(), printed=True)
    seen = Observation(TOTALS)
    counted = observed(rows, sf.lit(0), seen)
    with watched(progress, StageSampler(spark)):
        counted.write.format(job.sink).mode(job.mode).save(job.output)
    return Report("consumed", job.label, totals_of(seen.get).rows, 0, progress.elapsed_s())


def _consume_stream(rows: DataFrame, job: ConsumeJob, pace: Pace, progress: Progress) -> Report:
    counted = observed(rows, sf.lit(0), TOTALS)
    writer = paced(counted.writeStream, pace)
    if job.output is None:
        query = writer.foreachBatch(_print_batch).start()
    else:
        query = writer.format(job.sink).option("path", job.output).start()
    ended = await_query(query, progress)
    return Report(
        "consumed",
        job.label,
        ended.tally.rows,
        0,
        progress.elapsed_s(),
        {"batches": ended.batches},
        printed=job.output is None,
        ended_by=ended.ended_by,
    )


def _print_batch(batch: DataFrame, number: int) -> None:
    _print(batch)


def _print(rows: DataFrame) -> int:
    """Write each row as one line of JSON to standard output; returns how many there were."""
    count = 0
    lines = rows.select(sf.to_json(sf.struct("*"))).toLocalIterator(prefetchPartitions=True)
    escapes = sys.stdout.isatty()
    for (line,) in lines:
        sys.stdout.write(f"{printable_json(line) if escapes else line}\n")
        count += 1
    sys.stdout.flush()
    return count


def _without_delta() -> InvalidRequest:
    return InvalidRequest(
        "this Spark has no Delta Lake: a session that spark-submit prepares must be given it there."
        f" Run `spark-submit --packages {DELTA_COORDINATE} jobs/consume.py …`, or "
        "`python jobs/consume.py …`, which brings its own"
    )
