"""Effect of a compaction on clients: waiting times with and without one beside them.

The job runs as in the README: in the application that serves (`serve --jobs`). Its brokers, this
benchmark's clients and the job share one machine. The benchmark requests it as a user does
(`sparklog jobs --run`). Only records that are sent while it runs count as beside it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from sparklog.cluster.log import open_log
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.config.topic_defaults import CLEANER_RATE
from sparklog.core.entropy import SYSTEM_ENTROPY, new_nonce
from sparklog.spark.schedule.history import JobRequest, JobRun
from sparklog.spark.schedule.requests import JobRequests
from tests.bench.common.clusters import sparklog_cluster
from tests.bench.common.command import Run
from tests.bench.common.results import Measure, Results
from tests.bench.common.targets import CostAtMost
from tests.bench.jobs.keyed_rows import fill
from tests.bench.jobs.load import Latencies, Waits, loaded, p99
from tests.bench.jobs.plan import JobsPlan
from tests.peers.sparklog import LAUNCHER

GROUP = "clients beside a compaction, ms"
GROWTH_PERCENT = 20
LOADED = "loaded"
BOUNDED = "beside a compaction with a bound"
"""Kafka's `log.cleaner.io.max.bytes.per.second`, as who shares machines and disks would set it."""
JOB = """
[jobs.{topic}]
kind = "compact"
cron = "@yearly"
arguments = ["--topic", "{topic}", "--force"]
"""


def measure_beside(run: Run[JobsPlan]) -> None:
    """Load a topic alone, while a large topic is compacted, and while that may take less."""
    plan = run.plan
    folder = run.work / "beside"
    root = (folder / "log").as_uri()
    bounds = {"beside a compaction": None, BOUNDED: plan.cleaner_bytes_per_s}
    topics = [
        f"keyed-{number}-{at}" for number in range(1, plan.rounds + 1) for at in range(len(bounds))
    ]
    for topic in topics:
        fill(root, plan.compacted, topic)
    schedule = _schedule(folder, topics)
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as asking,
        sparklog_cluster(folder, LAUNCHER, "--jobs", str(schedule)) as ours,
    ):
        asking.submit(_ready).result()
        jobs = iter(topics)
        ours.create(LOADED, 1, 3)
        _load(ours.bootstrap, plan)  # until it is warm
        for number in range(1, plan.rounds + 1):
            alone = _load(ours.bootstrap, plan)
            _add(run.results, "alone", alone, number)
            for how, bound in bounds.items():
                _bound(root, bound)
                job = asking.submit(_ask, root, next(jobs))
                beside = _load_beside(ours.bootstrap, plan, job)
                _check(run, job.result(), how, number)
                _add(run.results, how, beside, number)
                _add_growth(run.results, how, alone, beside, number)


def _check(run: Run[JobsPlan], job: _Ended, how: str, number: int) -> None:
    rows = job.report.get("compacted", {}).get("rows_before", 0)
    run.results.check_equal(f"all was compacted {how}", rows, run.plan.compacted.records)
    seconds = Measure(f"a compaction: {how}", "s")
    run.results.add(seconds, "sparklog", job.ended_s - job.began_s, number)


def _ready() -> None:
    """Do nothing: a worker that has called this has imported all it needs."""


def _bound(root: str, bytes_per_s: int | None) -> None:
    """Have compactions that begin from now on read and write so much at most; None: no bound."""
    with open_log(root) as log:
        if bytes_per_s is not None:
            log.alter_topic_defaults({CLEANER_RATE.name: str(bytes_per_s)})
        elif CLEANER_RATE.name in log.topic_defaults():
            log.alter_topic_defaults(remove=[CLEANER_RATE.name])


def _schedule(folder: Path, topics: Sequence[str]) -> Path:
    """Write a schedule of jobs that run when they are asked for."""
    path = folder / "jobs.toml"
    path.write_text("".join(JOB.format(topic=topic) for topic in topics))
    return path


@dataclass(frozen=True)
class _Ended:
    """A job that was asked for."""

    began_s: float
    """When the application said that it runs it, on the clock of `time.perf_counter`."""
    ended_s: float
    report: Mapping[str, Any]


def _ask(root: str, job: str) -> _Ended:
    """Ask the application for a job, and wait for its end.

    In a process of its own: what this one counts would wait for the other's Python.
    """
    began_s: list[float] = []

    def said(text: str) -> None:
        began_s.append(time.perf_counter())

    request = JobRequest(new_nonce(SYSTEM_ENTROPY), job, "bench", SYSTEM_CLOCK.now_ms())
    with open_log(root) as log:
        ended = JobRequests(log, request, said).run()
    assert began_s, f"the application does not run {job}"
    report = ended.report if isinstance(ended, JobRun) else {}
    return _Ended(began_s[0], time.perf_counter(), report)


def _load(bootstrap: str, plan: JobsPlan, job: Future[_Ended] | None = None) -> Latencies:
    """Load the topic for as long as planned, or until the job has ended if that is later."""
    return loaded(
        bootstrap,
        LOADED,
        plan.loaded_records_per_s,
        plan.loaded_bytes,
        lambda seconds: seconds < plan.loaded_seconds or (job is not None and not job.done()),
    )


def _load_beside(bootstrap: str, plan: JobsPlan, job: Future[_Ended]) -> Latencies:
    """Load the topic while a job runs; what was sent before and after it is left out."""
    during = _load(bootstrap, plan, job)
    ended = job.result()
    return during.between(ended.began_s, ended.ended_s)


def _waits(of: Latencies) -> dict[str, Waits]:
    return {"produce": of.produced, "send to receipt": of.received}


def _add(results: Results, how: str, found: Latencies, number: int) -> None:
    for what, values in _waits(found).items():
        results.add(Measure(f"p99 {what}, {how}", "ms", (), GROUP), "sparklog", p99(values), number)


def _add_growth(
    results: Results, how: str, alone: Latencies, beside: Latencies, number: int
) -> None:
    before = _waits(alone)
    for what, values in _waits(beside).items():
        growth = 100 * (p99(values) / p99(before[what]) - 1)
        measure = Measure(f"p99 {what}: growth {how}", "%", (CostAtMost(GROWTH_PERCENT, "%"),))
        results.add(measure, "sparklog", growth, number)
