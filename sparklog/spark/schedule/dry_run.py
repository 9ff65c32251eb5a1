"""Dry runs without Spark: what a job would do now, in threads of this process.

For compaction and retention it takes the work of each partition from the jobs themselves, so it
says what they would say. For materialization it goes on from the end of the job's last run: only
Spark reads the table. It serves the console, which has no Spark. A job on Spark looks at more
partitions at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from sparklog.cluster import orphans
from sparklog.cluster.log import Log
from sparklog.cluster.metadata.changes import topic_named
from sparklog.cluster.named_snapshots import snapshot_records
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.errors import InvalidRequest
from sparklog.log.effects import run
from sparklog.spark.jobs.compact import CompactJob, compact_report, compacted_by
from sparklog.spark.jobs.partition_tasks import (
    PartitionAnswer,
    PartitionFunction,
    PartitionWork,
    answered,
    chosen_topics,
    work_on,
)
from sparklog.spark.jobs.progress import ProgressReport
from sparklog.spark.jobs.report import UpkeepReport
from sparklog.spark.jobs.retain import retain_report, retained_by, retained_works
from sparklog.spark.materialize.arguments import MaterializeJob
from sparklog.spark.schedule.history import JobRun
from sparklog.spark.schedule.job_kinds import kind_of

DRY_RUN_KINDS: Final = ("compact", "retain", "materialize")
AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class DryRunReport:
    """The report of a dry run, and how much it looked at."""

    report: UpkeepReport | ProgressReport
    looked_at: int
    """Partitions."""
    partitions: int
    """Of all topics of the job."""


def dry_run(
    log: Log, kind: str, words: Sequence[str], partitions_max: int, runs: Sequence[JobRun] = ()
) -> DryRunReport:
    """Look at the first partitions of a job's topics, and return what the job would do there.

    It changes nothing. Garbage beside the partitions is left out. Cost: of each partition a listing
    and a few gets; compaction reads the keys of what it would compact, too.

    Args:
        log: the log.
        kind: one of `DRY_RUN_KINDS`.
        words: the job's options, such as `--topic`.
        partitions_max: the most partitions to look at.
        runs: of the job, the newest first.

    Raises:
        InvalidRequest: another kind, or wrong words. UnknownTopicOrPartition: no such topic.
    """
    if kind not in DRY_RUN_KINDS:
        raise InvalidRequest(f"only {' and '.join(DRY_RUN_KINDS)} have a dry run here. kind={kind}")
    given = [one for one in words if one != "--dry-run"]
    if kind == "materialize":
        given = _without_avro_file(given)
    job = kind_of(kind).parsed(["--root", log.store.url, *given, "--dry-run"])
    began_s = SYSTEM_CLOCK.monotonic_s()
    image = log.refresh()
    if isinstance(job, CompactJob):
        works = work_on(chosen_topics(image, job.topics))
        answers = _answers(log, works[:partitions_max], compacted_by(job))
        report = compact_report(job, answers, SYSTEM_CLOCK.monotonic_s() - began_s)
    elif isinstance(job, MaterializeJob):
        topic = topic_named(image.topics, job.topic)
        numbers = range(min(topic.partitions, partitions_max))
        planned = _materialized(log, job, numbers, runs, began_s)
        return DryRunReport(planned, len(numbers), topic.partitions)
    else:
        records = run(orphans.publication_records(SYSTEM_CLOCK.now_ms()), log.store)
        snapshots = run(snapshot_records(), log.store)
        works = retained_works(image, job, records, snapshots)
        answers = _answers(log, works[:partitions_max], retained_by(job))
        report = retain_report(job, answers, {}, (), SYSTEM_CLOCK.monotonic_s() - began_s)
    return DryRunReport(report, len(answers), len(works))


def _materialized(
    log: Log, job: MaterializeJob, numbers: Sequence[int], runs: Sequence[JobRun], began_s: float
) -> ProgressReport:
    """Return which stored records the job would bring into its table, from manifests alone."""
    last, ends = _last_ends(job, runs)
    begins_at_end = last is None and job.start == "latest"

    def planned(number: int) -> PlannedRange:
        partition = log.partition(job.topic, number)
        view = partition.readable()
        end = view.end_offset
        if job.isolation == "read_committed":
            end = min(end, partition.outcomes(view).stable_end)
        start = end if begins_at_end else ends.get(number, view.log_start_offset)
        start = min(max(start, view.log_start_offset), end)
        parts = [
            (entry, max(0, min(end, entry.end_offset) - max(start, entry.base_offset)))
            for entry in view.entries
        ]
        return PlannedRange(
            number, start, end,
            sum(round(e.rows * n / (e.end_offset - e.base_offset)) for e, n in parts if n),
            sum(entry.size_bytes for entry, n in parts if n),
        )  # fmt: skip

    with ThreadPoolExecutor(AT_ONCE, "sparklog-dry-run") as pool:
        found = list(pool.map(planned, numbers))
    offsets = sum(one.end_offset - one.start_offset for one in found)
    batches = -(-offsets // job.max_per_batch)
    lines = [
        f"  {job.topic}-{one.partition}: offsets {one.start_offset:,} to {one.end_offset:,}"
        for one in found
        if one.start_offset < one.end_offset
    ]
    origin = f"it goes on from the end of run {last}" if last else "no run of it is known"
    counted = f"{batches:,} {'batch' if batches == 1 else 'batches'}"
    lines += [f"  into {job.table} in {counted}; {origin}"]
    return ProgressReport(
        "would materialize", job.topic, sum(one.rows for one in found),
        sum(one.size_bytes for one in found), SYSTEM_CLOCK.monotonic_s() - began_s,
        {
            "dry_run": True,
            "table": job.table,
            "batches": batches,
            "after_run": last,
            "partitions": [
                {"partition": one.partition, "from": one.start_offset, "until": one.end_offset}
                for one in found
            ],
        },
        lines=tuple(lines),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """Offsets [start, end) of one partition that a materialization would read."""

    partition: int
    start_offset: int
    end_offset: int
    rows: int
    """About, where it is a part of a segment."""
    size_bytes: int
    """Whole segments."""


def _last_ends(job: MaterializeJob, runs: Sequence[JobRun]) -> tuple[str | None, dict[int, int]]:
    """Return the newest run whose report says how far the table was then, and how far."""
    for one in runs:
        listed = one.report.get("partitions")
        if one.report.get("topic") != job.topic or not isinstance(listed, list):
            continue
        ends = {
            part["partition"]: part["until"]
            for part in listed
            if isinstance(part, dict)
            and all(type(part.get(name)) is int for name in ("partition", "until"))
        }
        if ends:
            return one.run_id, ends
    return None, {}


def _without_avro_file(words: Sequence[str]) -> list[str]:
    """Return the words without the file of a schema: it is at the driver, and not needed here."""
    kept, skip = [], False
    for at, word in enumerate(words):
        name, _, value = word.partition("=")
        is_avro = name == "--avro-schema" or (
            name == "--format" and (value or (*words[at + 1 :], "")[0]) == "avro"
        )
        if is_avro:
            skip = not value
        elif skip:
            skip = False
        else:
            kept.append(word)
    return kept


def _answers(
    log: Log, works: Sequence[PartitionWork], function: PartitionFunction
) -> list[PartitionAnswer]:
    with ThreadPoolExecutor(AT_ONCE, "sparklog-dry-run") as pool:
        return list(pool.map(partial(_answer, log, function), works))


def _answer(log: Log, function: PartitionFunction, work: PartitionWork) -> PartitionAnswer:
    return answered(log, work, function)
