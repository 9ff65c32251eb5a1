"""Compaction and merging as a Spark job: what `jobs/compact.py` does.

Each partition is compacted by one task, and published by it; a task that Spark runs twice, or that
is killed, does no harm. A large one is left, then copied by as many tasks as are free, and the
driver publishes it. Keys that do not fit a task's memory go to files where Spark puts its own.

The module parses the command line of `jobs/compact.py` to a `CompactJob`.

Several tasks compact each large partition: shares of one compaction, and one swap.

A task leaves a partition whose compaction writes more than a task's share. Here every free slot
takes a part of the copying. If one of the shares fails, nothing of the partition is published, and
the next run begins anew.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from sparklog.cluster.log import Log, log_config, open_log
from sparklog.cluster.metadata.records import EVERY_BROKER
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.config.topic import parse_stored_topic_configs
from sparklog.core.config.topic_defaults import cleaner_bytes_per_s
from sparklog.core.errors import SparklogError
from sparklog.log.cleanup.compaction_policy import CompactionPolicy
from sparklog.log.cleanup.compaction_shares import CompactionShare, CompactionShares, ShareOutcome
from sparklog.log.cleanup.compactor import Compactor
from sparklog.log.cleanup.rewriter import Encoding
from sparklog.spark.jobs.arguments import JobParser, add_dry_run, add_upkeep_options, log_root
from sparklog.spark.jobs.job import OpenSession
from sparklog.spark.jobs.partition_tasks import (
    PartitionAnswer,
    PartitionWork,
    chosen_topics,
    run_tasks,
    slots,
    work_on,
)
from sparklog.spark.jobs.progress import JobProgress, StageSampler, bytes_text, rate, watched
from sparklog.spark.jobs.report import UpkeepReport
from sparklog.spark.jobs.session import WAITING_JVM
from sparklog.store.background_io import (
    IoThrottle,
    ThrottledStore,
    threads_of,
    throttled_by_priority,
)

SHARE_BYTES: Final = 1 << 30
"""Bytes that a task copies by itself before another one, which must read all keys, too, is worth
it.
"""
SHARES: Final = "shares"
SHARE: Final = "share"


def share_works(
    works: Iterable[PartitionWork], answers: Iterable[PartitionAnswer], slots: int
) -> list[PartitionWork]:
    """Return the shares of the partitions that were left, as many as there are slots for.

    Args:
        works: of all partitions.
        answers: to them; those left have `shares` in their result.
        slots: tasks that run at once.
    """
    left = {(a.topic, a.partition): a.result[SHARES] for a in answers if a.result.get(SHARES)}
    found = []
    for work in works:
        shares = left.get((work.topic, work.partition))
        if shares is None:
            continue
        count = max(1, min(-(-int(shares["bytes_left"]) // SHARE_BYTES), slots // len(left)))
        found += [
            replace(work, details={SHARES: shares, SHARE: [number, count]})
            for number in range(count)
        ]
    return found


def joined(
    first: PartitionAnswer, parts: Sequence[PartitionAnswer], result: Mapping[str, Any], error: str
) -> PartitionAnswer:
    """Return one answer for a partition that several tasks worked on."""
    requests: dict[str, Sequence[int]] = dict(first.requests)
    for part in parts:
        for kind, (count, size_bytes) in part.requests.items():
            known = requests.get(kind, (0, 0))
            requests[kind] = (known[0] + count, known[1] + size_bytes)
    return PartitionAnswer(first.topic, first.partition, result, error, requests)


_EXAMPLES = """
examples:
  spark-submit jobs/compact.py --root s3://bucket/log --dry-run
  spark-submit jobs/compact.py --root s3://bucket/log --topic customers --force --json
"""


@dataclass(frozen=True, slots=True)
class CompactJob:
    """The topics to compact, and the way to do it."""

    root: str
    topics: tuple[str, ...] = ()
    dry_run: bool = False
    force: bool = False
    merges: bool = True
    json: bool = False


def parse_compact(argv: Sequence[str]) -> CompactJob:
    """Return the job that the words describe; a wrong call ends the process with code 2."""
    parser = JobParser(
        "compact.py",
        "Keep the newest record of each key in topics with cleanup.policy=compact, and make large\n"
        "objects of small ones in all topics. Brokers and writers go on meanwhile.",
        _EXAMPLES,
    )
    add_upkeep_options(parser, all_topics="all")
    add_dry_run(parser)
    parser.add_argument(
        "--force", action="store_true", help="compact whatever min.cleanable.dirty.ratio says"
    )
    parser.add_argument("--no-merge", action="store_true", help="leave small objects as they are")
    return parser.parsed(argv, _job)


def _job(given: argparse.Namespace) -> CompactJob:
    return CompactJob(
        log_root(given),
        tuple(given.topic),
        given.dry_run,
        given.force,
        not given.no_merge,
        given.json,
    )


READ_THREADS = 8


def compact(job: CompactJob, open_session: OpenSession, progress: JobProgress) -> UpkeepReport:
    """Compact and merge, and return what was done.

    Raises:
        SparklogError: the registry, or a topic that does not exist. PySparkException: Spark.
    """
    with open_log(job.root) as log:
        image = log.refresh()
        works = work_on(chosen_topics(image, job.topics))
        bytes_per_s = cleaner_bytes_per_s(image.broker_configs.get(EVERY_BROKER, {}))
        spark = open_session(WAITING_JVM)
        progress.start()
        with watched(progress, StageSampler(spark)):
            free = slots(spark)
            share_bytes = SHARE_BYTES if free > 1 and not job.dry_run else None

            def compacting(tasks: int) -> _Compact:
                limit = None if bytes_per_s is None else bytes_per_s / max(1, min(free, tasks))
                return compacted_by(job, share_bytes=share_bytes, bytes_per_s=limit)

            answers = run_tasks(spark, job.root, works, compacting(len(works)))
            parts = share_works(works, answers, free)
            if parts:
                shared = run_tasks(spark, job.root, parts, compacting(len(parts)))
                answers = published(log, compacting(1), works, answers, shared)
        report = compact_report(job, answers, progress.elapsed_s())
        return replace(report, by_driver=log.requests())


class _Compact:
    """The work on one partition, or on a share of it; sent to tasks."""

    def __init__(
        self, job: CompactJob, clock: Clock, share_bytes: int | None, bytes_per_s: float | None
    ) -> None:
        self._job = job
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._share_bytes = share_bytes

    def __call__(self, log: Log, work: PartitionWork) -> Mapping[str, Any]:
        started_s = self._clock.monotonic_s()
        with ThreadPoolExecutor(threads_of(READ_THREADS), "sparklog-compact") as pool:
            compactor = self.compactor(log, work, pool)
            if SHARE in work.details:
                done = compactor.share(
                    CompactionShares(**work.details[SHARES]), *work.details[SHARE]
                )
                fields: dict[str, Any] = {SHARE: None if done is None else done.to_json()}
            else:
                fields = self._whole(compactor)
        return {**fields, "seconds": round(self._clock.monotonic_s() - started_s, 3)}

    def compactor(self, log: Log, work: PartitionWork, pool: Executor) -> Compactor:
        """Return what compacts the partition."""
        stored = log_config(work.configs)
        store = throttled_by_priority(log.store, self._clock)
        if self._bytes_per_s is not None:
            store = ThrottledStore(store, IoThrottle(self._bytes_per_s, self._clock).passed)
        return Compactor(
            store,
            work.layout,
            CompactionPolicy.of(parse_stored_topic_configs(work.configs)),
            Encoding(stored.codec, stored.zstd_level, stored.indexes_keys),
            pool,
            keys_folder=_local_folder(),
            clock=self._clock,
        )

    def _whole(self, compactor: Compactor) -> dict[str, Any]:
        job = self._job
        recent_view = compactor.quick_view()
        compacted = compactor.compact_or_share(
            self._share_bytes, force=job.force, dry_run=job.dry_run, recent_view=recent_view
        )
        if isinstance(compacted, CompactionShares):  # small objects are merged by the next run
            return {"compacted": None, "merged": None, SHARES: asdict(compacted)}
        same = recent_view if compacted is None else None
        merged = compactor.merge(dry_run=job.dry_run, recent_view=same) if job.merges else None
        return {"compacted": _as_json(compacted), "merged": _as_json(merged)}


def compacted_by(
    job: CompactJob,
    clock: Clock = SYSTEM_CLOCK,
    *,
    share_bytes: int | None = None,
    bytes_per_s: float | None = None,
) -> _Compact:
    """Return the function that does one partition's work.

    It leaves partitions that would write more than `share_bytes`, to be done in shares; None
    leaves nothing. A task reads and writes `bytes_per_s` at most; None sets no limit.
    """
    return _Compact(job, clock, share_bytes, bytes_per_s)


def published(
    log: Log,
    compacting: _Compact,
    works: Iterable[PartitionWork],
    answers: Iterable[PartitionAnswer],
    shared: Iterable[PartitionAnswer],
) -> list[PartitionAnswer]:
    """Publish what was compacted in shares, and return one answer for each partition."""
    of = {(work.topic, work.partition): work for work in works}
    parts: dict[tuple[str, int], list[PartitionAnswer]] = {}
    for part in shared:
        parts.setdefault((part.topic, part.partition), []).append(part)
    found = []
    for answer in answers:
        if answer.result.get(SHARES):
            key = answer.topic, answer.partition
            answer = _published(log, compacting, of[key], answer, parts[key])  # noqa: PLW2901
        found.append(answer)
    return found


def _published(
    log: Log,
    compacting: _Compact,
    work: PartitionWork,
    first: PartitionAnswer,
    parts: Sequence[PartitionAnswer],
) -> PartitionAnswer:
    errors = [part.error for part in parts if part.error]
    done = [part.result[SHARE] for part in parts if part.result.get(SHARE)]
    if errors:
        return joined(first, parts, {}, errors[0])
    outcome = ShareOutcome(overtaken=True)
    seconds = first.result["seconds"] + max(part.result.get("seconds", 0) for part in parts)
    try:
        if len(done) == len(parts):
            with ThreadPoolExecutor(READ_THREADS, "sparklog-compact") as pool:
                outcome = compacting.compactor(log, work, pool).publish(
                    CompactionShares(**first.result[SHARES]),
                    [CompactionShare.from_json(one) for one in done],
                )
    except (SparklogError, OSError) as error:
        return joined(first, parts, {}, f"{type(error).__name__}: {error}")
    fields = {
        "compacted": _as_json(outcome),
        "merged": None,
        "shares": len(parts),
        "seconds": seconds,
    }
    return joined(first, parts, fields, "")


def _as_json(outcome: ShareOutcome | None) -> dict[str, Any] | None:
    return None if outcome is None else asdict(outcome)


def _local_folder() -> str | None:
    """Return the first of Spark's own folders for temporary files, if this process may use it."""
    for name in ("SPARK_EXECUTOR_DIRS", "LOCAL_DIRS", "SPARK_LOCAL_DIRS"):
        folder = os.environ.get(name, "").split(",")[0]  # noqa: TID251 - the executor's edge
        if folder and Path(folder).is_dir() and os.access(folder, os.W_OK):
            return folder
    return None


def compact_report(
    job: CompactJob, answers: Sequence[PartitionAnswer], seconds: float
) -> UpkeepReport:
    """Return the report of a compaction."""
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
