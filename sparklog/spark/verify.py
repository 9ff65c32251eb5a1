"""Verification as a Spark job: what `jobs/verify.py` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any

from sparklog.cluster.open import Log, open_log
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.log.layout import METADATA_TOPIC, METADATA_TOPIC_ID
from sparklog.log.verify import verify as verify_partition
from sparklog.spark.job import OpenSession
from sparklog.spark.partition_tasks import (
    PartitionAnswer,
    PartitionWork,
    chosen_topics,
    run_tasks,
    work_on,
)
from sparklog.spark.progress import Progress, StageSampler, bytes_text, watched
from sparklog.spark.upkeep_report import UpkeepReport, total_of
from sparklog.spark.verify_arguments import VerifyJob

READ_THREADS = 8


def verify(job: VerifyJob, open_session: OpenSession, progress: Progress) -> UpkeepReport:
    """Look the partitions over, and return what was found.

    Raises:
        SparklogError: the registry cannot be read, or a topic does not exist.
        PySparkException: Spark.
    """
    with open_log(job.root) as log:
        works = work_on(chosen_topics(log.refresh(), job.topics))
    if not job.topics:
        works.insert(0, PartitionWork(METADATA_TOPIC, METADATA_TOPIC_ID, 0, {}))
    spark = open_session({})
    progress.start()
    with watched(progress, StageSampler(spark)):
        answers = run_tasks(spark, job.root, works, verified_by(job))
    return verify_report([_judged(a) for a in answers], progress.elapsed_s())


class _Verify:
    """The work on one partition; sent to tasks."""

    def __init__(self, job: VerifyJob) -> None:
        self._job = job

    def __call__(self, log: Log, work: PartitionWork) -> Mapping[str, Any]:
        with ThreadPoolExecutor(READ_THREADS, "sparklog-verify") as pool:
            found = verify_partition(
                log.store, work.layout, pool, deep=not self._job.quick,
                now_ms=SYSTEM_CLOCK.now_ms(),
            )  # fmt: skip
        return asdict(found)


def verified_by(job: VerifyJob) -> _Verify:
    """Return the function that does one partition's work."""
    return _Verify(job)


def _judged(answer: PartitionAnswer) -> PartitionAnswer:
    """Make a partition with damage one that failed."""
    damages = answer.result.get("damages")
    if not damages:
        return answer
    return replace(answer, error=f"{len(damages)} damaged objects, see above")


def verify_report(answers: Sequence[PartitionAnswer], seconds: float) -> UpkeepReport:
    """Return what is said at the end."""
    damages = [(a, d) for a in answers for d in a.result.get("damages", ())]
    lines = [_line(answer, damage) for answer, damage in damages]
    foreign = [key for a in answers for key in a.result.get("foreign", ())]
    rows, size = total_of(answers, "rows"), total_of(answers, "size_bytes")
    lost = sum(d["lost_end"] - d["lost_base"] for _, d in damages)
    summary = (
        f"verified {len(answers):,} partitions, {total_of(answers, 'objects'):,} objects, "
        f"{rows:,} records ({bytes_text(size)}) in {seconds:.1f} s: {len(damages):,} damages"
    )
    totals = {
        "rows": rows,
        "size_bytes": size,
        "damages": len(damages),
        "lost_offsets": lost,
        "orphans": total_of(answers, "orphans"),
    }
    problems = [f"an object is none of sparklog's. object={key}" for key in foreign]
    return UpkeepReport(summary, seconds, tuple(answers), totals, tuple(lines), tuple(problems))


def _line(answer: PartitionAnswer, damage: Mapping[str, Any]) -> str:
    base, end = damage["lost_base"], damage["lost_end"]
    lost = f"offsets {base:,} to {end:,} lost" if end > base else "no record lost"
    return f"  {answer.topic}-{answer.partition}: {lost}: {damage['what']}"
