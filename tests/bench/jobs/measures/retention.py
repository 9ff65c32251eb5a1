"""Retention over many segments: what it asks the storage for, and what when nothing is to do."""

from __future__ import annotations

import pyarrow as pa

from sparklog.cluster.log import open_log
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.log.schema import COLUMN_TYPES
from tests.bench.common.command import Run
from tests.bench.common.results import Measure
from tests.bench.common.targets import CostAtMost
from tests.bench.jobs.job_process import run_job_process
from tests.bench.jobs.plan import JobsPlan

TOPIC = "many-segments"
RETENTION_MS = 3_600_000
HANDFUL = 8
LISTED_PER_REQUEST = 1000
"""As S3 does; listings are counted so."""


def measure_retention(run: Run[JobsPlan]) -> None:
    """Let half of a partition's segments go, delete their objects, then run with nothing to do."""
    segments = run.plan.retained_segments
    folder = run.work / "retention"
    root = (folder / "log").as_uri()
    _fill(root, segments)
    words = ("--root", root, "--topic", TOPIC)
    first = run_job_process("retain", folder, *words).report
    second = run_job_process("retain", folder, *words).report
    idle = run_job_process("retain", folder, *words).report
    run.results.check_equal("half of the segments go", first["expired_offsets"], segments // 2)
    deleted = sum(report["requests"].get("delete", 0) for report in (first, second))
    run.results.check("so do their objects", deleted >= segments // 2, f"{deleted:,} deleted")
    pages = -(-2 * segments // LISTED_PER_REQUEST)
    what = f"retention over {segments:,} segments"
    reads = sum(count for kind, count in first["requests"].items() if kind in ("get", "list"))
    _add(run, f"{what}: reads and listings to decide", reads, HANDFUL + pages)
    _add(run, f"{what}: requests when nothing is to do", sum(idle["requests"].values()),
         HANDFUL + pages // 2)  # fmt: skip


def _add(run: Run[JobsPlan], name: str, value: int, limit: int) -> None:
    targets = (CostAtMost(limit, "requests", "a listing takes one for 1,000 names"),)
    run.results.add(Measure(name, "requests", targets), "sparklog", value)


def _fill(root: str, segments: int) -> None:
    now_ms = SYSTEM_CLOCK.now_ms()
    configs = {"retention.ms": str(RETENTION_MS), "file.delete.delay.ms": "0"}
    with open_log(root) as log:
        log.create_topic(TOPIC, 1, configs)
        partition = log.partition(TOPIC, 0)
        for number in range(segments):
            age_ms = 2 * RETENTION_MS if number < segments // 2 else 0
            stamps = pa.array([now_ms - age_ms], pa.int64()).view(COLUMN_TYPES["timestamp"])
            columns = {"timestamp": stamps, "value": pa.array([b"record"], pa.binary())}
            partition.append([pa.RecordBatch.from_pydict(columns)])
        partition.absorb_tail()
