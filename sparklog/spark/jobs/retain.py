"""Retention as a Spark job: what `jobs/retain.py` does.

A task per share of the partitions moves log starts and deletes objects; what lies beside the
partitions is looked after by the driver. Runs beside brokers and writers, and never blocks them.

The module parses the command line of `jobs/retain.py` to a `RetainJob`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from sparklog.cluster import orphans
from sparklog.cluster.log import Log, log_config, open_log
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.named_snapshots import SnapshotRecords, snapshot_records
from sparklog.cluster.usage_reports import UsageUpkeep, sum_up
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.config.topic import parse_stored_topic_configs
from sparklog.core.entropy import SYSTEM_ENTROPY, new_nonce
from sparklog.core.errors import SparklogError
from sparklog.core.types import PartitionId
from sparklog.log.cleanup.garbage import (
    ORPHAN_AGE_MS,
    Garbage,
    GarbageRules,
    find_garbage,
    list_folder,
)
from sparklog.log.cleanup.record_age import WrittenTime, WrittenTimes
from sparklog.log.cleanup.retention import RetentionPolicy, raise_to_retained, retained_start
from sparklog.log.effects import run
from sparklog.log.layout import METADATA_TOPIC, METADATA_TOPIC_ID, topic_folder
from sparklog.log.manifest.change import absorb_tail, change
from sparklog.log.manifest.manifest import Manifest
from sparklog.log.manifest.quick_refresh import quick_refresh_at
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.segment.segment import CommitKey
from sparklog.spark.jobs.arguments import (
    JobParser,
    add_dry_run,
    add_upkeep_options,
    counting_number,
    log_root,
)
from sparklog.spark.jobs.job import OpenSession
from sparklog.spark.jobs.partition_tasks import (
    PartitionAnswer,
    PartitionWork,
    chosen_topics,
    run_tasks,
    with_pins,
    work_on,
)
from sparklog.spark.jobs.progress import JobProgress, StageSampler, bytes_text, watched
from sparklog.spark.jobs.report import UpkeepReport, total_of
from sparklog.spark.jobs.session import WAITING_JVM
from sparklog.store.base import ObjectInfo, ObjectStore

HOUR_MS = 3_600_000

_EXAMPLES = """
examples:
  spark-submit jobs/retain.py --root s3://bucket/log --dry-run
  spark-submit jobs/retain.py --root s3://bucket/log --topic clicks --topic orders --json
"""


@dataclass(frozen=True, slots=True)
class RetainJob:
    """The topics to retain, and the way to do it."""

    root: str
    topics: tuple[str, ...] = ()
    """None for all, and then what lies beside the topics, too."""
    dry_run: bool = False
    orphan_age_ms: int = ORPHAN_AGE_MS
    json: bool = False


def parse_retain(argv: Sequence[str]) -> RetainJob:
    """Return the job that the words describe; a wrong call ends the process with code 2."""
    parser = JobParser(
        "retain.py",
        "Expire the records that retention.ms, retention.bytes and DeleteRecords name. Delete\n"
        "the objects that nothing needs, file.delete.delay.ms after the log start moved, so in a\n"
        "later run.",
        _EXAMPLES,
    )
    add_upkeep_options(parser, all_topics="all, and what lies beside")
    add_dry_run(parser)
    parser.add_argument(
        "--orphan-hours", type=counting_number, default=ORPHAN_AGE_MS // HOUR_MS, metavar="N",
        help="age at which what no manifest ever named goes: more than the longest write takes "
        "(default: %(default)s)",
    )  # fmt: skip
    return parser.parsed(argv, _job)


def _job(given: argparse.Namespace) -> RetainJob:
    age_ms = given.orphan_hours * HOUR_MS
    return RetainJob(log_root(given), tuple(given.topic), given.dry_run, age_ms, given.json)


DELETES_AT_ONCE = 16
READS_AT_ONCE = 16
AMOUNTS = ("records_before", "records_after", "bytes_before", "bytes_after")


def retain(job: RetainJob, open_session: OpenSession, progress: JobProgress) -> UpkeepReport:
    """Apply retention, and return what was done.

    Raises:
        SparklogError: the registry, or a topic that does not exist. PySparkException: Spark.
    """
    with open_log(job.root) as log:
        now_ms = SYSTEM_CLOCK.now_ms()
        records = run(orphans.publication_records(now_ms), log.store)
        snapshots = run(snapshot_records(), log.store)
        wals = [] if job.topics else run(orphans.list_wals(), log.store)
        image = log.refresh()
        works = retained_works(image, job, records, snapshots)
        spark = open_session(WAITING_JVM)
        progress.start()
        with watched(progress, StageSampler(spark)):
            answers = run_tasks(spark, job.root, works, retained_by(job))
        beside, problems = retained_beside(log, job, image, records, snapshots, wals)
        problems += [f"a snapshot is damaged; drop it. object={key}" for key in snapshots.damaged]
        report = retain_report(job, answers, beside, problems, progress.elapsed_s())
        return replace(report, by_driver=log.requests())


def retained_works(
    image: MetadataImage,
    job: RetainJob,
    records: orphans.PublicationRecords,
    snapshots: SnapshotRecords,
) -> list[PartitionWork]:
    """Return the work on each partition of the job's topics. Raises as `chosen_topics`."""
    works = with_unpublished(work_on(chosen_topics(image, job.topics)), records)
    return with_pins(works, snapshots)


def with_unpublished(
    works: Iterable[PartitionWork], records: orphans.PublicationRecords
) -> list[PartitionWork]:
    """Return the work with what each partition may still have to take from publication records."""
    unpublished = records.unpublished()
    return [
        replace(
            work,
            details={
                "keep_staged": bool(records.damaged),
                "unpublished": [
                    [key.writer, key.sequence, list(objects)]
                    for key, objects in unpublished.get(
                        PartitionId(work.topic_id, work.partition), []
                    )
                ],
            },
        )
        for work in works
    ]


class _Retain:
    """The work on one partition; sent to tasks."""

    def __init__(self, job: RetainJob, clock: Clock) -> None:
        self._job = job
        self._clock = clock

    def __call__(self, log: Log, work: PartitionWork) -> Mapping[str, Any]:
        policy = RetentionPolicy.of(parse_stored_topic_configs(work.configs))
        now_ms = self._clock.now_ms()
        listed = run(list_folder(work.layout), log.store)
        seen = run(quick_refresh_at(work.layout, listed), log.store)
        written = WrittenTimes(log.store, work.layout)
        found: Garbage | None = None
        if (
            seen is not None
            and retained_start(seen, policy, now_ms, written) <= seen.log_start_offset
        ):
            found = self._garbage(log, work, policy, seen, listed, now_ms)
            if not found.doomed and not found.problem:
                return _result(seen, seen, seen.log_start_offset, found, 0)
        seen = seen or PartitionView(work.layout)
        if self._job.dry_run:
            view = run(refresh(seen), log.store)
            before, after = view, retained_start(view, policy, now_ms, written)
        else:
            before, view = self._raised(log, work, policy, seen, now_ms, written)
            after = view.log_start_offset
        if found is None or view is not seen:
            found = self._garbage(log, work, policy, view, listed, now_ms)
        if not self._job.dry_run:
            delete_all(log.store, found.doomed)
        freed = [e for e in view.entries if e.end_offset <= after] if self._job.dry_run else []
        return _result(before, view, after, found, len(freed))

    def _garbage(
        self,
        log: Log,
        work: PartitionWork,
        policy: RetentionPolicy,
        view: PartitionView,
        listed: Sequence[ObjectInfo],
        now_ms: int,
    ) -> Garbage:
        """Return what may go of what was listed, as `view` has it."""
        rules = GarbageRules(
            now_ms,
            policy.file_delete_delay_ms,
            self._job.orphan_age_ms,
            _still_unpublished(view, work),
            _pins(work),
        )
        found = run(find_garbage(view, listed, rules), log.store)
        if not work.details["keep_staged"]:
            return found
        return replace(found, doomed=tuple(i for i in found.doomed if not _is_staged(i)))

    def _raised(
        self,
        log: Log,
        work: PartitionWork,
        policy: RetentionPolicy,
        known: PartitionView,
        now_ms: int,
        written: WrittenTime,
    ) -> tuple[PartitionView, PartitionView]:
        """Raise the log start, and return the partition before and after."""
        seen: list[PartitionView] = []
        absorbing = absorb_tail(1, now_ms - log_config(work.configs).writer_expiry_ms)

        def plan(now: PartitionView) -> Manifest | None:
            seen.append(now)
            # No manifest knows the objects that a segment of the tail points at. Released from
            # there, they would look like uploads that were never appended, and stay for a week.
            start = retained_start(now, policy, now_ms, written)
            in_tail = now.manifest.end_offset < start
            return (absorbing(now) if in_tail else None) or raising(now)

        raising = raise_to_retained(policy, now_ms, written)
        view = run(change(known, plan, new_nonce(SYSTEM_ENTROPY)), log.store)
        if retained_start(view, policy, now_ms, written) > view.log_start_offset:
            view = run(change(view, raising, new_nonce(SYSTEM_ENTROPY)), log.store)
        return seen[0], view


def _result(
    before: PartitionView, view: PartitionView, after: int, found: Garbage, freed: int
) -> Mapping[str, Any]:
    """Return the answer: the log start is `after` now, and `freed` objects wait for their time."""
    return {
        "log_start_offset": after,
        "log_end_offset": view.end_offset,
        "expired_offsets": after - before.log_start_offset,
        **_held(before, before.log_start_offset, "before"),
        **_held(before, after, "after"),
        "deleted_objects": len(found.doomed),
        "deleted_bytes": sum(info.size_bytes for info in found.doomed),
        "waiting_objects": found.waiting + freed,
        "problem": found.problem,
    }


def _held(view: PartitionView, log_start_offset: int, when: str) -> dict[str, int]:
    """Return what the objects with records from an offset on hold, whole objects."""
    held = [entry for entry in view.entries if entry.end_offset > log_start_offset]
    return {
        f"records_{when}": sum(entry.rows for entry in held),
        f"bytes_{when}": sum(entry.size_bytes for entry in held),
    }


def retained_by(job: RetainJob, clock: Clock = SYSTEM_CLOCK) -> _Retain:
    """Return the function that does one partition's work."""
    return _Retain(job, clock)


def delete_all(store: ObjectStore, doomed: Sequence[ObjectInfo]) -> None:
    """Delete objects, several at a time."""
    if not doomed:
        return
    with ThreadPoolExecutor(DELETES_AT_ONCE, "sparklog-delete") as pool:
        list(pool.map(store.delete, [info.key for info in doomed]))


def _still_unpublished(view: PartitionView, work: PartitionWork) -> frozenset[str]:
    return frozenset(
        name
        for writer, sequence, objects in work.details["unpublished"]
        if view.committed(CommitKey(writer, sequence)) is None
        for name in objects
    )


def _pins(work: PartitionWork) -> frozenset[str] | None:
    pins = work.details.get("pins")
    return None if pins is None else frozenset(pins)


def _is_staged(info: ObjectInfo) -> bool:
    return "/staged/" in info.key


def retained_beside(
    log: Log,
    job: RetainJob,
    image: MetadataImage,
    records: orphans.PublicationRecords,
    snapshots: SnapshotRecords,
    wals: Sequence[ObjectInfo],
    clock: Clock = SYSTEM_CLOCK,
) -> tuple[dict[str, int], list[str]]:
    """Look after what lies beside the partitions, if the job is for all topics.

    Returns:
        amounts for the report, and problems.
    """
    if job.topics:
        return {}, []
    now_ms = clock.now_ms()
    problems = [f"a publication record is damaged. object={key}" for key in records.damaged]
    doomed = [*records.doomed, *run(orphans.old_registry_snapshots(), log.store)]
    left = orphans.left_wals(wals, image, now_ms, job.orphan_age_ms)
    pins, pinned_before_ms = snapshots.all_pins(), now_ms - job.orphan_age_ms
    known = {topic_folder(t.name, t.topic_id) for t in image.topics.values()}
    known.add(topic_folder(METADATA_TOPIC, METADATA_TOPIC_ID))
    for folder in orphans.unknown_folders(log.store, known):
        found = run(orphans.strays(folder, pins, pinned_before_ms), log.store)
        doomed += found.doomed
        problems += found.problems
        problems += [f"a topic's folder is in no registry. folder={f}" for f in found.unknown]
    if not job.dry_run:
        delete_all(log.store, doomed)
        for layout in left:
            try:
                run(orphans.clear_wal(layout, new_nonce(SYSTEM_ENTROPY)), log.store)
            except SparklogError as error:
                problems.append(str(error))
    usage, summed_days, usage_problems = _retained_usage(log.store, now_ms, dry_run=job.dry_run)
    doomed += usage
    return {
        "deleted_objects": len(doomed),
        "deleted_bytes": sum(info.size_bytes for info in doomed),
        "cleared_wals": len(left),
        "summed_usage_days": summed_days,
    }, problems + usage_problems


def _retained_usage(
    store: ObjectStore, now_ms: int, *, dry_run: bool
) -> tuple[tuple[ObjectInfo, ...], int, list[str]]:
    """Sum up the usage reports of past days, and delete those that a sum replaces.

    The log does not depend on them, so an error is a problem in the report.

    Returns:
        the deleted objects, the number of days that have their sum now, and problems.
    """
    found = UsageUpkeep()
    deleted: tuple[ObjectInfo, ...] = ()
    problems: list[str] = []
    try:
        with ThreadPoolExecutor(READS_AT_ONCE, "sparklog-usage") as pool:
            found = run(sum_up(now_ms, dry_run=dry_run), store, pool)
        if not dry_run:
            delete_all(store, found.doomed)
        deleted = found.doomed
    except SparklogError as error:
        problems.append(f"usage reports wait for the next run. problem={error}")
    problems += [f"a usage report is damaged; the bill lacks it. object={k}" for k in found.damaged]
    return deleted, len(found.summed), problems


def _puzzles(answers: Iterable[PartitionAnswer]) -> list[str]:
    return [
        f"{one.topic}-{one.partition}: {one.result['problem']}"
        for one in answers
        if one.result.get("problem")
    ]


def retain_report(
    job: RetainJob,
    answers: Sequence[PartitionAnswer],
    beside: Mapping[str, int],
    problems: Sequence[str],
    seconds: float,
) -> UpkeepReport:
    """Return the report of retention, with what was deleted `beside` partitions."""
    deleted = total_of(answers, "expired_offsets")
    objects = total_of(answers, "deleted_objects") + beside.get("deleted_objects", 0)
    size = total_of(answers, "deleted_bytes") + beside.get("deleted_bytes", 0)
    verbs = ("would expire", "would delete") if job.dry_run else ("expired", "deleted")
    lines = [
        f"  {one.topic}-{one.partition}: {verbs[0]} {one.result['expired_offsets']:,} offsets, "
        f"log start {one.result['log_start_offset']:,}; "
        f"{verbs[1]} {one.result['deleted_objects']:,} objects"
        for one in answers
        if one.result.get("expired_offsets") or one.result.get("deleted_objects")
    ]
    summary = (
        f"{verbs[0]} {deleted:,} offsets and {verbs[1]} {objects:,} objects "
        f"({bytes_text(size)}) of {len(answers):,} partitions in {seconds:.1f} s"
    )
    totals = {
        "dry_run": job.dry_run,
        "expired_offsets": deleted,
        "deleted_objects": objects,
        "deleted_bytes": size,
        "cleared_wals": beside.get("cleared_wals", 0),
        "summed_usage_days": beside.get("summed_usage_days", 0),
        **{name: total_of(answers, name) for name in AMOUNTS},
    }
    found = (*problems, *_puzzles(answers))
    return UpkeepReport(summary, seconds, tuple(answers), totals, tuple(lines), found)
