"""A job that produces: which rows to read, what records to make of them, what to say at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from sparklog.core.errors import InvalidPartitions, UnknownTopicOrPartition
from sparklog.spark.expressions import as_header_value, as_payload, as_timestamp
from sparklog.spark.produce_rows import CheckedRows, Input
from sparklog.spark.progress import Progress, Report
from sparklog.spark.streaming import Pace


@dataclass(frozen=True, slots=True)
class ProduceJob:
    """What to read, what to make of it, and where to send it."""

    root: str | None
    """None where brokers are asked to append."""
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
    bootstrap_servers: str | None = None
    replication_factor: int | None = None
    pace: Pace | None = None
    """How the stream runs; None reads the source once."""
    malformed: str | None = None
    """Folder for malformed lines of CSV and JSON; None: they fail the job."""
    json: bool = False


def is_to_be_created(job: ProduceJob, partitions: int | None) -> bool:
    """Return whether the job's topic is still to be created; `partitions`: those it has, if any.

    Raises:
        UnknownTopicOrPartition: it does not exist, and nobody asked to create it.
        InvalidPartitions: it exists, with another number of partitions.
    """
    if partitions is None and not job.create:
        raise UnknownTopicOrPartition(
            f"no such topic; add --create to have it created. topic={job.topic}"
        )
    if partitions is not None and job.partitions not in (None, partitions):
        raise InvalidPartitions(
            "the topic exists with another number of partitions; leave --partitions out, or use "
            f"`sparklog topics --alter`. topic={job.topic} partitions={partitions} "
            f"asked={job.partitions}"
        )
    return partitions is None


def input_of(job: ProduceJob) -> Input:
    """Return what the job reads."""
    return Input(job.source, job.paths, job.options, job.schema, streams=job.pace is not None)


def chosen_rows(rows: DataFrame, job: ProduceJob) -> DataFrame:
    """Return the rows of the source, filtered and selected as the job says."""
    if job.where is not None:
        rows = rows.where(job.where)
    return rows.selectExpr(*job.select) if job.select else rows


def set_aside(rows: CheckedRows, job: ProduceJob, progress: Progress) -> int:
    """Write the malformed lines into the job's folder, and return how many there are."""
    assert job.malformed is not None, "asked for only where there is a folder"
    count = rows.malformed().count() if rows.checked else 0
    if count:
        rows.malformed().write.mode("append").json(job.malformed)
        progress.say(f"warning: {count:,} malformed lines were set aside in {job.malformed}")
    return count


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


def size_of(records: DataFrame) -> Column:
    """Return how many bytes of key and value a record has."""
    size = sf.coalesce(sf.octet_length("value"), sf.lit(0))
    if "key" in records.columns:
        size = size + sf.coalesce(sf.octet_length("key"), sf.lit(0))
    return size


def with_offsets(
    report: Report, created: bool, before: Mapping[int, int], after: Mapping[int, int]
) -> Report:
    """Return the report with the offsets of every partition before and after the work."""
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
