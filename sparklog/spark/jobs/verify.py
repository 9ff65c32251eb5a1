"""Verification as a Spark job: what `jobs/verify.py` does.

The module parses the command line of `jobs/verify.py` to a `VerifyJob`.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sparklog.cluster.log import Log, log_config, open_log
from sparklog.cluster.metadata.image import MetadataImage, Topic
from sparklog.cluster.named_snapshots import SnapshotRecords, snapshot_records
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import DataCorrupt, InvalidRequest
from sparklog.core.types import OffsetRange
from sparklog.log.cleanup.rewriter import Encoding
from sparklog.log.effects import run as run_protocol
from sparklog.log.layout import METADATA_TOPIC, METADATA_TOPIC_ID
from sparklog.log.repair.drop_damaged import Dropper, LeadNow
from sparklog.log.repair.repair import Repair, Repairer, RepairResult
from sparklog.log.repair.verify import Findings, examine
from sparklog.log.repair.wal_damage import DamagedWal
from sparklog.spark.jobs.arguments import JobParser, add_dry_run, add_upkeep_options, log_root
from sparklog.spark.jobs.job import MENDED, OpenSession
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
from sparklog.spark.jobs.verify_wals import damaged_wals, drop_wal_ranges, with_stakes
from sparklog.store.background_io import threads_of, throttled_by_priority

_RANGE = re.compile(r"([A-Za-z0-9._-]{1,249}):(\d{1,9}):(\d{1,19})-(\d{1,19})")
_EXAMPLES = """
examples:
  spark-submit jobs/verify.py --root s3://bucket/log --quick
  spark-submit jobs/verify.py --root s3://bucket/log --topic orders --json
  spark-submit jobs/verify.py --root s3://bucket/log --repair --dry-run
  spark-submit jobs/verify.py --root s3://bucket/log --drop-damaged orders:3:18000-18500
exit codes: 0 nothing is damaged; 1 something is; 3 something was, and now nothing is
"""


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """Offsets that an operator gives up."""

    topic: str
    partition: int
    base_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class VerifyJob:
    """The topics to verify, and the thoroughness."""

    root: str
    topics: tuple[str, ...] = ()
    """None for all, the registry among them."""
    quick: bool = False
    json: bool = False
    repair: bool = False
    drops: tuple[DamagedRange, ...] = ()
    """The offsets to give up."""
    dry_run: bool = False

    @property
    def changes(self) -> bool:
        """Return whether anything is to be put right."""
        return self.repair or bool(self.drops)


def parse_verify(argv: Sequence[str]) -> VerifyJob:
    """Return the job that the words describe; a wrong call ends the process with code 2."""
    parser = JobParser(
        "verify.py",
        "Look every partition over: manifests, the chain of segments, leader epochs, checksums.\n"
        "Ends with code 1 if anything is damaged, and says what is lost. Changes nothing unless\n"
        "asked to by --repair or --drop-damaged.",
        _EXAMPLES,
    )
    add_upkeep_options(parser, all_topics="all, and the registry")
    parser.add_argument(
        "--quick", action="store_true", help="look at manifests and footers, not at the records"
    )
    changes = parser.add_mutually_exclusive_group()
    changes.add_argument(
        "--repair", action="store_true",
        help="put right what loses nothing: hints that are wrong, manifests that can be written "
        "anew, merged objects whose parts are still there",
    )  # fmt: skip
    changes.add_argument(
        "--drop-damaged", action="append", default=[], metavar="TOPIC:PARTITION:BASE-END",
        help="give up these offsets, as verify tells them, so that what is around them can be read "
        "again; what can be read of the object is kept; may be given more than once",
    )  # fmt: skip
    add_dry_run(parser, "say what --repair or --drop-damaged would do, do nothing")
    return parser.parsed(argv, _job)


def _job(given: argparse.Namespace) -> VerifyJob:
    if given.quick and given.drop_damaged:
        raise InvalidRequest("--drop-damaged reads all records of the object; leave out --quick")
    if given.drop_damaged and given.topic:
        raise InvalidRequest("--drop-damaged names its topics; leave out --topic")
    return VerifyJob(
        log_root(given),
        tuple(given.topic),
        given.quick,
        given.json,
        given.repair,
        tuple(_damaged_range(text) for text in given.drop_damaged),
        given.dry_run,
    )


def _damaged_range(text: str) -> DamagedRange:
    match = _RANGE.fullmatch(text)
    if match is None or int(match.group(3)) >= int(match.group(4)):
        raise InvalidRequest(f"--drop-damaged takes TOPIC:PARTITION:BASE-END, not {text!r}")
    topic, partition, base, end = match.groups()
    if topic == METADATA_TOPIC:
        raise InvalidRequest(
            f"without some of its records the registry is another one; bring {METADATA_TOPIC} "
            "back from a copy of the bucket"
        )
    return DamagedRange(topic, int(partition), int(base), int(end))


READ_THREADS = 8


def verify(job: VerifyJob, open_session: OpenSession, progress: JobProgress) -> UpkeepReport:
    """Look the partitions over, put right what was asked for, and return what was found.

    Raises:
        SparklogError: a topic does not exist. PySparkException: Spark.
    """
    with open_log(job.root) as log:
        works, problems, damaged = _works(job, log)
        by_driver = log.requests()
    spark = open_session(WAITING_JVM)
    progress.start()
    with watched(progress, StageSampler(spark)):
        answers = run_tasks(spark, job.root, works, verified_by(job))
    judged = with_stakes([_judged(a) for a in answers], damaged)
    report = verify_report(job, judged, progress.elapsed_s(), problems)
    return replace(report, by_driver=by_driver)


def _works(job: VerifyJob, log: Log) -> tuple[list[PartitionWork], list[str], list[DamagedWal]]:
    """Return what to look at, problems, and damaged write-ahead logs.

    The work is the registry alone when that cannot be read.
    """
    registry = PartitionWork(METADATA_TOPIC, METADATA_TOPIC_ID, 0, {})
    snapshots = run_protocol(snapshot_records(), log.store)
    problems = [f"a snapshot is damaged; drop it. object={key}" for key in snapshots.damaged]
    try:
        image = log.refresh()
    except DataCorrupt as error:
        if job.topics or job.drops:
            raise
        problem = f"only the registry was looked at, it cannot be read: {error}"
        return [registry], [*problems, problem], []
    if job.drops:
        given_up = drop_wal_ranges(log, image, _ranges(job), dry_run=job.dry_run)
        return _drop_works(job, image, given_up), problems, []
    damaged = damaged_wals(log, image)
    works = with_pins(work_on(chosen_topics(image, job.topics)), snapshots)
    if job.topics:
        return works, problems, damaged
    return [registry, *works, *_pinned_works(snapshots, works)], problems, damaged


def _pinned_works(
    snapshots: SnapshotRecords, works: Sequence[PartitionWork]
) -> list[PartitionWork]:
    """Return the partitions of deleted topics that snapshots have."""
    known = {(work.topic_id, work.partition) for work in works}
    found = {
        (one.topic_id, one.partition): PartitionWork(one.topic, one.topic_id, one.partition, {})
        for snapshot in snapshots.snapshots
        for one in snapshot.partitions
        if (one.topic_id, one.partition) not in known
    }
    return with_pins(found.values(), snapshots)


def _ranges(job: VerifyJob) -> dict[tuple[str, int], list[OffsetRange]]:
    """Return the ranges to give up, by topic and partition."""
    ranges: defaultdict[tuple[str, int], list[OffsetRange]] = defaultdict(list)
    for one in job.drops:
        ranges[one.topic, one.partition].append(OffsetRange(one.base_offset, one.end_offset))
    return dict(ranges)


def _drop_works(
    job: VerifyJob, image: MetadataImage, given_up: Collection[tuple[str, int]]
) -> list[PartitionWork]:
    """Return the partitions of which something is given up; `given_up`: done by the driver."""
    topics = chosen_topics(image, sorted({one.topic for one in job.drops}))
    wanted = _ranges(job)
    found = []
    for work in work_on(topics):
        ranges = wanted.get((work.topic, work.partition))
        if (work.topic, work.partition) in given_up:
            found.append(work)
        elif ranges:
            lead = _lead(image.topics[work.topic], work.partition)
            drops = [[one.base_offset, one.end_offset] for one in ranges]
            found.append(replace(work, details={"drops": drops, "lead": asdict(lead)}))
    if len(found) < len(wanted):
        raise InvalidRequest("--drop-damaged names a partition that its topic does not have")
    return found


def _lead(topic: Topic, partition: int) -> LeadNow:
    state = topic.partition_states[partition]
    return LeadNow(state.leader >= 0 or state.recovering, state.leader_epoch)


class _Verify:
    """The work on one partition; sent to tasks."""

    def __init__(self, job: VerifyJob, clock: Clock) -> None:
        self._job = job
        self._clock = clock

    def __call__(self, log: Log, work: PartitionWork) -> Mapping[str, Any]:
        with ThreadPoolExecutor(threads_of(READ_THREADS), "sparklog-verify") as pool:
            found = self._look(log, work, pool)
            done: list[RepairResult] = []
            if found.damages and (self._job.repair or work.details.get("drops")):
                done = self._repair(log, work, found, pool)
                found = self._look(log, work, pool) if done and not self._job.dry_run else found
            elif work.details.get("drops"):
                raise InvalidRequest("nothing is damaged there; nothing was given up")
        return {**asdict(found.verified), "mended": [asdict(one) for one in done]}

    def _look(self, log: Log, work: PartitionWork, pool: Executor) -> Findings:
        return examine(
            throttled_by_priority(log.store, self._clock),
            work.layout,
            pool,
            deep=not self._job.quick,
            now_ms=self._clock.now_ms(),
            pins=work.details.get("pins") or (),
        )

    def _repair(
        self, log: Log, work: PartitionWork, found: Findings, pool: Executor
    ) -> list[RepairResult]:
        config = log_config(work.configs)
        encoding = Encoding(config.codec, config.zstd_level, config.indexes_keys)
        repair = Repair(log.store, found, pool, encoding, self._job.dry_run)
        if self._job.repair:
            return Repairer(repair, self._clock.now_ms()).repair_all()
        dropper = Dropper(repair, LeadNow(**work.details["lead"]))
        return dropper.drop([OffsetRange(*one) for one in work.details["drops"]])


def verified_by(job: VerifyJob, clock: Clock = SYSTEM_CLOCK) -> _Verify:
    """Return the function that does one partition's work."""
    return _Verify(job, clock)


def _judged(answer: PartitionAnswer) -> PartitionAnswer:
    """Make a partition with damage one that failed."""
    damages = answer.result.get("damages")
    if not damages:
        return answer
    return replace(answer, error=f"{len(damages)} damages, see above")


def verify_report(
    job: VerifyJob,
    answers: Sequence[PartitionAnswer],
    seconds: float,
    problems: Sequence[str] = (),
) -> UpkeepReport:
    """Return what is said at the end."""
    damages = [(a, d) for a in answers for d in a.result.get("damages", ())]
    mended = [(a, m) for a in answers for m in a.result.get("mended", ())]
    verb = "planned: " if job.dry_run else ""
    lines = [
        *(f"  {a.topic}-{a.partition}: {verb}{m['what']}. object={m['object']}" for a, m in mended),
        *(_line(answer, damage) for answer, damage in damages),
    ]
    foreign = [key for a in answers for key in a.result.get("foreign", ())]
    rows, size = total_of(answers, "rows"), total_of(answers, "size_bytes")
    lost = sum(d["lost_end"] - d["lost_base"] for _, d in damages)
    summary = (
        f"verified {len(answers):,} partitions, {total_of(answers, 'objects'):,} objects, "
        f"{rows:,} records ({bytes_text(size)}) in {seconds:.1f} s: {len(damages):,} damages"
    )
    if job.changes:
        summary += f", {len(mended):,} {'to be ' if job.dry_run else ''}put right"
    totals = {
        "rows": rows,
        "size_bytes": size,
        "damages": len(damages),
        "lost_offsets": lost,
        "orphans": total_of(answers, "orphans"),
        "mended": len(mended),
        "dry_run": job.dry_run,
    }
    findings = [*problems, *(f"an object is none of sparklog's. object={key}" for key in foreign)]
    code = MENDED if mended and not job.dry_run else None
    return UpkeepReport(
        summary, seconds, tuple(answers), totals, tuple(lines), tuple(findings), done_code=code
    )


def _line(answer: PartitionAnswer, damage: Mapping[str, Any]) -> str:
    base, end = damage["lost_base"], damage["lost_end"]
    lost = f"offsets {base:,} to {end:,} lost" if end > base else "no record lost"
    if not damage["end_known"]:
        lost = f"offsets from {base:,} on lost"
    if damage["rows"] and end > base:
        lost += f" ({damage['rows']:,} records)"
    if damage["max_timestamp_ms"] >= 0 and end > base:
        oldest, newest = _time(damage["min_timestamp_ms"]), _time(damage["max_timestamp_ms"])
        lost += f", of {oldest} to {newest}"
    if damage["unreachable_end"] > end:
        lost += f", {end:,} to {damage['unreachable_end']:,} not reached"
    return f"  {answer.topic}-{answer.partition}: {lost}: {damage['what']}"


def _time(timestamp_ms: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):  # a producer may write any number
        return f"{timestamp_ms} ms"
