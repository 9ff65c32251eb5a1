"""Dry runs without Spark: what compaction or retention would do now, in threads of this process.

It takes the work of each partition from the jobs themselves, so it says what they would say. It
serves the console, which has no Spark. A job on Spark looks at more partitions at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

from sparklog.cluster import orphans
from sparklog.cluster.log import Log
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
from sparklog.spark.jobs.report import UpkeepReport
from sparklog.spark.jobs.retain import retain_report, retained_by, retained_works
from sparklog.spark.schedule.job_kinds import kind_of

DRY_RUN_KINDS: Final = ("compact", "retain")
AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class DryRunReport:
    """The report of a dry run, and how much it looked at."""

    report: UpkeepReport
    looked_at: int
    """Partitions."""
    partitions: int
    """Of all topics of the job."""


def dry_run(log: Log, kind: str, words: Sequence[str], partitions_max: int) -> DryRunReport:
    """Look at the first partitions of a job's topics, and return what the job would do there.

    It changes nothing. Garbage beside the partitions is left out. Cost: of each partition a listing
    and a few gets; compaction reads the keys of what it would compact, too.

    Args:
        log: the log.
        kind: one of `DRY_RUN_KINDS`.
        words: the job's options, such as `--topic`.
        partitions_max: the most partitions to look at.

    Raises:
        InvalidRequest: another kind, or wrong words. UnknownTopicOrPartition: no such topic.
    """
    if kind not in DRY_RUN_KINDS:
        raise InvalidRequest(f"only {' and '.join(DRY_RUN_KINDS)} have a dry run here. kind={kind}")
    given = [one for one in words if one != "--dry-run"]
    job = kind_of(kind).parsed(["--root", log.store.url, *given, "--dry-run"])
    began_s = SYSTEM_CLOCK.monotonic_s()
    image = log.refresh()
    if isinstance(job, CompactJob):
        works = work_on(chosen_topics(image, job.topics))
        answers = _answers(log, works[:partitions_max], compacted_by(job))
        report = compact_report(job, answers, SYSTEM_CLOCK.monotonic_s() - began_s)
    else:
        records = run(orphans.publication_records(SYSTEM_CLOCK.now_ms()), log.store)
        snapshots = run(snapshot_records(), log.store)
        works = retained_works(image, job, records, snapshots)
        answers = _answers(log, works[:partitions_max], retained_by(job))
        report = retain_report(job, answers, {}, (), SYSTEM_CLOCK.monotonic_s() - began_s)
    return DryRunReport(report, len(answers), len(works))


def _answers(
    log: Log, works: Sequence[PartitionWork], function: PartitionFunction
) -> list[PartitionAnswer]:
    with ThreadPoolExecutor(AT_ONCE, "sparklog-dry-run") as pool:
        return list(pool.map(partial(_answer, log, function), works))


def _answer(log: Log, function: PartitionFunction, work: PartitionWork) -> PartitionAnswer:
    return answered(log, work, function)
