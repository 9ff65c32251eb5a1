"""From rows of any Spark source to records of a topic: what `jobs/produce.py` does.

The expressions of key, value, headers and time are Spark SQL over the rows; partitions, staging and
publication are the sink's.
"""

from __future__ import annotations

from dataclasses import replace

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession

from sparklog.cluster.open import Log, open_log
from sparklog.core.errors import InvalidRequest
from sparklog.spark.job import OpenSession
from sparklog.spark.produce_job import (
    ProduceJob,
    chosen_rows,
    input_of,
    is_to_be_created,
    records_of,
    set_aside,
    size_of,
    with_offsets,
)
from sparklog.spark.produce_rows import MALFORMED, CheckedRows, read_input, refusal
from sparklog.spark.produce_to_brokers import produce_to_brokers
from sparklog.spark.progress import Progress, Report, StageSampler, watched
from sparklog.spark.streaming import TOTALS, Pace, await_query, observed, paced, totals_of


def produce(job: ProduceJob, open_session: OpenSession, progress: Progress) -> Report:
    """Send the rows, and return what was sent.

    Raises:
        SparklogError: the topic or the log. PySparkException: the source or an expression.
    """
    if job.bootstrap_servers is not None:
        return produce_to_brokers(job, job.bootstrap_servers, open_session, progress)
    if job.root is None:
        raise InvalidRequest("which log? give its root, or the addresses of its brokers")
    with open_log(job.root) as log:
        created = prepare_topic(log, job)
        before = end_offsets(log, job.topic)
        spark = open_session({})
        progress.start()
        rows = read_input(spark, input_of(job))
        if job.pace is not None:
            records = records_of(chosen_rows(rows.all_or_none(), job), job)
            report = _produce_stream(records, job, job.pace, progress)
        else:
            report = _produce_rows(spark, rows, job, progress)
        after = end_offsets(log, job.topic)
    return with_offsets(report, created, before, after)


def prepare_topic(log: Log, job: ProduceJob) -> bool:
    """Make sure that the topic is there before Spark starts; returns whether it was created.

    Raises:
        UnknownTopicOrPartition, InvalidPartitions: as `is_to_be_created`.
        InvalidTopic, InvalidConfig: it cannot be created like this.
    """
    topic = log.topics().get(job.topic)
    if not is_to_be_created(job, None if topic is None else topic.partitions):
        return False
    log.create_topic(job.topic, job.partitions or 1, dict(job.configs))
    return True


def end_offsets(log: Log, topic: str) -> dict[int, int]:
    """Return the end offset of every partition of a topic."""
    partitions = log.topic(topic).partitions
    return {n: log.partition(topic, n).view().end_offset for n in range(partitions)}


def _sink_options(job: ProduceJob) -> dict[str, str]:
    assert job.root is not None, "without a root, brokers append"
    options = {"path": job.root, "topic": job.topic}
    if job.compression is not None:
        options["kafka.compression.type"] = job.compression
    return options


def _produce_rows(
    spark: SparkSession, rows: CheckedRows, job: ProduceJob, progress: Progress
) -> Report:
    """Send the rows of files: all of them, or none if a line is malformed and has no folder."""
    aside = set_aside(rows, job, progress) if job.malformed is not None else 0
    if rows.is_empty:
        refused = refusal(rows)
        if refused is not None and job.malformed is None:
            raise refused
        return Report("produced", job.topic, 0, 0, progress.elapsed_s(), {"malformed": aside})
    chosen = rows.good() if job.malformed is not None else rows.all_or_none()
    records = records_of(chosen_rows(chosen, job), job)
    try:
        report = _produce_once(spark, records, job, progress)
    except (PySparkException, Py4JError) as error:
        refused = refusal(rows) if MALFORMED in str(error) else None
        if refused is None:
            raise
        raise refused from error
    return replace(report, details={**report.details, "malformed": aside})


def _produce_once(
    spark: SparkSession, records: DataFrame, job: ProduceJob, progress: Progress
) -> Report:
    seen = Observation(TOTALS)
    counted = observed(records, size_of(records), seen)
    with watched(progress, StageSampler(spark)):
        counted.write.format("sparklog").mode("append").options(**_sink_options(job)).save()
    totals = totals_of(seen.get)
    return Report("produced", job.topic, totals.rows, totals.size_bytes, progress.elapsed_s())


def _produce_stream(records: DataFrame, job: ProduceJob, pace: Pace, progress: Progress) -> Report:
    counted = observed(records, size_of(records), TOTALS)
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
