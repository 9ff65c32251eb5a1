"""Compaction and merging as a Spark job: what `jobs/compact.py` does.

Each partition is compacted by one task, and published by it; a task that Spark runs twice, or that
is killed, does no harm. Keys that do not fit a task's memory go to files where Spark puts its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sparklog.cluster.open import Log, open_log
from sparklog.cluster.topic_config import log_config
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.settings import parse_topic_configs
from sparklog.log.compaction import CompactionPolicy
from sparklog.log.compactor import Compactor, Outcome
from sparklog.log.rewriting import Encoding
from sparklog.spark.compact_arguments import CompactJob
from sparklog.spark.job import OpenSession
from sparklog.spark.partition_tasks import (
    PartitionAnswer,
    PartitionWork,
    chosen_topics,
    run_tasks,
    work_on,
)
from sparklog.spark.progress import Progress, StageSampler, bytes_text, rate, watched
from sparklog.spark.upkeep_report import UpkeepReport

READ_THREADS = 8


def compact(job: CompactJob, open_session: OpenSession, progress: Progress) -> UpkeepReport:
    """Compact and merge, and return what was done.

    Raises:
        SparklogError: the registry, or a topic that does not exist. PySparkException: Spark.
    """
    with open_log(job.root) as log:
        works = work_on(chosen_topics(log.refresh(), job.topics))
    spark = open_session({})
    progress.start()
    with watched(progress, StageSampler(spark)):
        answers = run_tasks(spark, job.root, works, compacted_by(job))
    return _report(job, answers, progress.elapsed_s())


class _Compact:
    """The work on one partition; sent to tasks."""

    def __init__(self, job: CompactJob, clock: Clock) -> None:
        self._job = job
        self._clock = clock

    def __call__(self, log: Log, work: PartitionWork) -> Mapping[str, Any]:
        policy = CompactionPolicy.of(parse_topic_configs(work.configs))
        stored = log_config(work.configs)
        encoding = Encoding(stored.codec, stored.zstd_level, stored.indexes_keys)
        started_s = self._clock.monotonic_s()
        with ThreadPoolExecutor(READ_THREADS, "sparklog-compact") as pool:
            compactor = Compactor(
                log.store, work.layout, policy, encoding, pool,
                keys_folder=_local_folder(), clock=self._clock,
            )  # fmt: skip
            dry_run = self._job.dry_run
            compacted = compactor.compact(force=self._job.force, dry_run=dry_run)
            merged = compactor.merge(dry_run=dry_run) if self._job.merges else None
        seconds = round(self._clock.monotonic_s() - started_s, 3)
        return {"compacted": _told(compacted), "merged": _told(merged), "seconds": seconds}


def compacted_by(job: CompactJob, clock: Clock = SYSTEM_CLOCK) -> _Compact:
    """Return the function that does one partition's work."""
    return _Compact(job, clock)


def _told(outcome: Outcome | None) -> dict[str, Any] | None:
    return None if outcome is None else asdict(outcome)


def _local_folder() -> str | None:
    """Return the first of Spark's own folders for temporary files, if this process may use it."""
    for name in ("SPARK_EXECUTOR_DIRS", "LOCAL_DIRS", "SPARK_LOCAL_DIRS"):
        folder = os.environ.get(name, "").split(",")[0]  # noqa: TID251 - the executor's edge
        if folder and Path(folder).is_dir() and os.access(folder, os.W_OK):
            return folder
    return None


def _report(job: CompactJob, answers: Sequence[PartitionAnswer], seconds: float) -> UpkeepReport:
    totals: dict[str, Any] = {"dry_run": job.dry_run}
    for work in ("compacted", "merged"):
        done = [a.result[work] for a in answers if a.result.get(work)]
        totals[work] = {
            "partitions": len(done),
            "overtaken": sum(one["overtaken"] for one in done),
            **{
                name: sum(one[name] for one in done)
                for name in (
                    "rows_before",
                    "rows_after",
                    "bytes_before",
                    "bytes_after",
                    "objects_before",
                    "objects_after",
                )
            },
        }
    rows, kept = totals["compacted"]["rows_before"], totals["compacted"]["rows_after"]
    totals["rows_per_second"] = round(rate(rows, seconds), 1)
    verb = "would keep" if job.dry_run else "kept"
    summary = (
        f"{verb} {kept:,} of {rows:,} records of {totals['compacted']['partitions']:,} partitions, "
        f"{'would merge' if job.dry_run else 'merged'} {totals['merged']['objects_before']:,} "
        f"objects of {totals['merged']['partitions']:,}, in {seconds:.1f} s: "
        f"{rate(rows, seconds):,.0f} records/s"
    )
    lines = [line for answer in answers for line in _lines(answer, verb)]
    return UpkeepReport(summary, seconds, tuple(answers), totals, tuple(lines))


def _lines(answer: PartitionAnswer, verb: str) -> list[str]:
    lines = []
    name = f"  {answer.topic}-{answer.partition}:"
    for work in ("compacted", "merged"):
        one = answer.result.get(work)
        if one is None:
            continue
        if one["overtaken"]:
            lines.append(f"{name} not {work}, another job was faster")
            continue
        size = bytes_text(one["bytes_before"])
        after = f" into {one['objects_after']:,} ({bytes_text(one['bytes_after'])})"
        lines.append(
            f"{name} {work}: {verb} {one['rows_after']:,} of {one['rows_before']:,} records; "
            f"{one['objects_before']:,} objects ({size}){after if one['bytes_after'] else ''}"
        )
    return lines
