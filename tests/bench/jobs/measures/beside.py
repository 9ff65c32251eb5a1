"""What brokers' clients notice of a compaction: waiting times with and without one beside them.

The job runs where the README has it run: in the application that serves (`serve --jobs`), whose
brokers, this benchmark's clients and the job share one machine. It is asked for as a person asks
for it (`sparklog jobs --run`), and only records that are sent while it runs count as beside it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

from sparklog.cluster.open import open_log
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.entropy import SYSTEM_ENTROPY, new_nonce
from sparklog.core.topic_defaults import CLEANER_RATE
from sparklog.spark.job_history import JobRequest, JobRun
from sparklog.spark.job_requests import Asking
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
        f"keyed-{number}-{at}"
        for number in range(1, plan.rounds + 1)
        for at, _ in enumerate(bounds)
    ]
    for topic in topics:
        fill(root, plan.compacted, topic)
    schedule = _schedule(folder, topics)
    with sparklog_cluster(folder, LAUNCHER, "--jobs", str(schedule)) as ours:
        ours.create(LOADED, 1, 3)
        _load(ours.bootstrap, plan)  # until it is warm
        for number in range(1, plan.rounds + 1):
            alone = _load(ours.bootstrap, plan)
            _add(run.results, "alone", alone, number)
            for at, (how, bound) in enumerate(bounds.items()):
                _bound(root, bound)
                job = _Job(root, f"keyed-{number}-{at}")
                beside = _load_beside(ours.bootstrap, plan, job)
                rows = job.report.get("compacted", {}).get("rows_before", 0)
                whole = plan.compacted.records
                run.results.check_equal(f"all of {job.name} was compacted", rows, whole)
                seconds = Measure(f"a compaction: {how}", "s")
                run.results.add(seconds, "sparklog", job.ended_s - job.began_s, number)
                _add(run.results, how, beside, number)
                _add_growth(run.results, how, alone, beside, number)


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


class _Job(Thread):
    """Asks the application for a job, and waits for its end."""

    def __init__(self, root: str, job: str) -> None:
        super().__init__(name=job, daemon=True)
        self._root = root
        self.began_s = self.ended_s = 0.0
        self.report: Mapping[str, Any] = {}

    def run(self) -> None:
        request = JobRequest(new_nonce(SYSTEM_ENTROPY), self.name, "bench", SYSTEM_CLOCK.now_ms())
        with open_log(self._root) as log:
            ended = Asking(log, request, self._said).run()
        self.ended_s = time.perf_counter()
        if isinstance(ended, JobRun):
            self.report = ended.report

    def _said(self, text: str) -> None:
        """Note when the application says that it runs the job."""
        self.began_s = self.began_s or time.perf_counter()


def _load(bootstrap: str, plan: JobsPlan, job: Thread | None = None) -> Latencies:
    """Load the topic for as long as planned, or until the job has ended if that is later."""
    return loaded(
        bootstrap,
        LOADED,
        plan.loaded_records_per_s,
        plan.loaded_bytes,
        lambda seconds: seconds < plan.loaded_seconds or (job is not None and job.is_alive()),
    )


def _load_beside(bootstrap: str, plan: JobsPlan, job: _Job) -> Latencies:
    """Load the topic while a job runs; what was sent before and after it is left out."""
    job.start()
    during = _load(bootstrap, plan, job)
    job.join()
    return during.between(job.began_s, job.ended_s)


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
