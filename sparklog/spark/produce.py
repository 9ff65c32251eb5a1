"""From rows of any Spark source to records of a topic: what `jobs/produce.py` does.

The expressions of key, value, headers and time are Spark SQL over the rows; partitions, staging and
publication are the sink's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from sparklog.cluster.open import Log, open_log
from sparklog.core.errors import InvalidPartitions, UnknownTopicOrPartition
from sparklog.spark.expressions import as_header_value, as_payload, as_timestamp
from sparklog.spark.job import OpenSession
from sparklog.spark.progress import Progress, Report, StageSampler, watched
from sparklog.spark.streaming import TOTALS, Pace, await_query, observed, paced, totals_of

CSV_OPTIONS = {"header": "true", "inferSchema": "true"}


@dataclass(frozen=True, slots=True)
class ProduceJob:
    """What to read, what to make of it, and where to send it."""

    root: str
    topic: str
    source: str
    paths: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None
    where: str | None = None
    select: tuple[str, ...] = ()
    key: str | None = None
    value: str = "to_json(struct(*))"
    headers: tuple[tuple[str, str], ...] = ()
    timestamp: str | None = None
    partition: str | None = None
    create: bool = False
    partitions: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)
    compression: str | None = None
    pace: Pace | None = None
    """How the stream runs; None reads the source once."""
    json: bool = False


def produce(job: ProduceJob, open_session: OpenSession, progress: Progress) -> Report:
    """Send the rows, and return what was sent.

    Raises:
        SparklogError: the topic or the log. PySparkException: the source or an expression.
    """
    with open_log(job.root) as log:
        created = prepare_topic(log, job)
        before = end_offsets(log, job.topic)
        spark = open_session({})
        records = records_of(read_rows(spark, job), job)
        progress.start()
        if job.pace is None:
            report = _produce_once(spark, records, job, progress)
        else:
            report = _produce_stream(records, job, job.pace, progress)
        after = end_offsets(log, job.topic)
    return _with_offsets(report, created, before, after)


def prepare_topic(log: Log, job: ProduceJob) -> bool:
    """Make sure that the topic is there before Spark starts; returns whether it was created.

    Raises:
        UnknownTopicOrPartition: it is not, and nobody asked to create it.
        InvalidPartitions: it is, with another number of partitions.
        InvalidTopic, InvalidConfig: it cannot be created like this.
    """
    topic = log.topics().get(job.topic)
    if topic is None:
        if not job.create:
            raise UnknownTopicOrPartition(
                f"no such topic; add --create to have it created. topic={job.topic}"
            )
        log.create_topic(job.topic, job.partitions or 1, dict(job.configs))
        return True
    if job.partitions is not None and job.partitions != topic.partitions:
        raise InvalidPartitions(
            "the topic exists with another number of partitions; leave --partitions out, or use "
            f"`sparklog topics --alter`. topic={job.topic} partitions={topic.partitions} "
            f"asked={job.partitions}"
        )
    return False


def read_rows(spark: SparkSession, job: ProduceJob) -> DataFrame:
    """Return the rows of the source, filtered and selected as the job says."""
    options = dict(job.options)
    if job.source.lower() == "csv":
        given = {name.lower() for name in options}
        options |= {
            name: value
            for name, value in CSV_OPTIONS.items()
            if name.lower() not in given and not (name == "inferSchema" and job.schema is not None)
        }
    if job.pace is None:
        reader = spark.read.format(job.source).options(**options)
        reader = reader.schema(job.schema) if job.schema is not None else reader
        rows = reader.load(list(job.paths)) if job.paths else reader.load()
    else:
        stream = spark.readStream.format(job.source).options(**options)
        stream = stream.schema(job.schema) if job.schema is not None else stream
        rows = stream.load(job.paths[0]) if job.paths else stream.load()
    if job.where is not None:
        rows = rows.where(job.where)
    return rows.selectExpr(*job.select) if job.select else rows


def records_of(rows: DataFrame, job: ProduceJob) -> DataFrame:
    """Return the sink's columns: value, and what the job gives of the others."""
    columns = {"value": as_payload(rows, job.value)}
    if job.key is not None:
        columns["key"] = as_payload(rows, job.key)
    if job.headers:
        columns["headers"] = sf.array(
            *(
                sf.struct(
                    sf.lit(name).alias("key"), as_header_value(rows, expression).alias("value")
                )
                for name, expression in job.headers
            )
        )
    if job.timestamp is not None:
        columns["timestamp"] = as_timestamp(rows, job.timestamp)
    if job.partition is not None:
        columns["partition"] = sf.expr(job.partition).cast("int")
    return rows.select(*(column.alias(name) for name, column in columns.items()))


def end_offsets(log: Log, topic: str) -> dict[int, int]:
    """Return the end offset of every partition of a topic."""
    partitions = log.topic(topic).partitions
    return {n: log.partition(topic, n).view().end_offset for n in range(partitions)}


def _sink_options(job: ProduceJob) -> dict[str, str]:
    options = {"path": job.root, "topic": job.topic}
    if job.compression is not None:
        options["kafka.compression.type"] = job.compression
    return options


def _produce_once(
    spark: SparkSession, records: DataFrame, job: ProduceJob, progress: Progress
) -> Report:
    seen = Observation(TOTALS)
    counted = observed(records, _size(records), seen)
    with watched(progress, StageSampler(spark)):
        counted.write.format("sparklog").mode("append").options(**_sink_options(job)).save()
    totals = totals_of(seen.get)
    return Report("produced", job.topic, totals.rows, totals.size_bytes, progress.elapsed_s())


def _produce_stream(records: DataFrame, job: ProduceJob, pace: Pace, progress: Progress) -> Report:
    counted = observed(records, _size(records), TOTALS)
    writer = counted.writeStream.format("sparklog").options(**_sink_options(job))
    ended = await_query(paced(writer, pace).start(), progress)
    return Report(
        "produced",
        job.topic,
        ended.tally.rows,
        ended.tally.size_bytes,
        progress.elapsed_s(),
        {"batches": ended.batches},
        ended_by=ended.ended_by,
    )


def _size(records: DataFrame) -> Column:
    """Return how many bytes of key and value a record has."""
    size = sf.coalesce(sf.octet_length("value"), sf.lit(0))
    if "key" in records.columns:
        size = size + sf.coalesce(sf.octet_length("key"), sf.lit(0))
    return size


def _with_offsets(
    report: Report, created: bool, before: Mapping[int, int], after: Mapping[int, int]
) -> Report:
    partitions = [
        {"partition": number, "base_offset": before.get(number, 0), "end_offset": end}
        for number, end in after.items()
    ]
    lines = [
        f"  partition {one['partition']}: offsets {one['base_offset']:,} to {one['end_offset']:,}"
        for one in partitions
        if one["end_offset"] > one["base_offset"]
    ]
    details = {**report.details, "created": created, "partitions": partitions}
    return replace(report, details=details, lines=(*report.lines, *lines))
