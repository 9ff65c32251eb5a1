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
JOB = """
[jobs.{topic}]
kind = "compact"
cron = "@yearly"
arguments = ["--topic", "{topic}", "--force"]
"""


def measure_beside(run: Run[JobsPlan]) -> None:
    """Load a topic, in turns alone and while a large topic is compacted."""
    plan = run.plan
    folder = run.work / "beside"
    root = (folder / "log").as_uri()
    topics = [f"keyed-{number}" for number in range(1, plan.rounds + 1)]
    for topic in topics:
        fill(root, plan.compacted, topic)
    schedule = _schedule(folder, topics)
    with sparklog_cluster(folder, LAUNCHER, "--jobs", str(schedule)) as ours:
        ours.create(LOADED, 1, 3)
        _load(ours.bootstrap, plan)  # until it is warm
        for number, topic in enumerate(topics, 1):
            alone = _load(ours.bootstrap, plan)
            job = _Job(root, topic)
            job.start()
            during = _load(ours.bootstrap, plan, job)
            job.join()
            rows = job.report.get("compacted", {}).get("rows_before", 0)
            run.results.check_equal(f"all of {topic} was compacted", rows, plan.compacted.records)
            beside = during.between(job.began_s, job.ended_s)
            seconds = Measure("a compaction beside clients", "s")
            run.results.add(seconds, "sparklog", job.ended_s - job.began_s, number)
            _add(run.results, "produce", alone.produced, beside.produced, number)
            _add(run.results, "send to receipt", alone.received, beside.received, number)


def _schedule(folder: Path, topics: Sequence[str]) -> Path:
    """Write a schedule of jobs that run when they are asked for."""
    path = folder / "jobs.toml"
    path.write_text("".join(JOB.format(topic=topic) for topic in topics))
    return path


class _Job(Thread):
    """Asks the application for a job, and waits for its end."""

    def __init__(self, root: str, job: str) -> None:
        super().__init__(name="job", daemon=True)
        self._root = root
        self._job = job
        self.began_s = self.ended_s = 0.0
        self.report: Mapping[str, Any] = {}

    def run(self) -> None:
        request = JobRequest(new_nonce(SYSTEM_ENTROPY), self._job, "bench", SYSTEM_CLOCK.now_ms())
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


def _add(results: Results, what: str, alone: Waits, beside: Waits, number: int) -> None:
    for how, values in (("alone", alone), ("beside a compaction", beside)):
        results.add(Measure(f"p99 {what}, {how}", "ms", (), GROUP), "sparklog", p99(values), number)
    limit = CostAtMost(GROWTH_PERCENT, "%")
    growth = 100 * (p99(beside) / p99(alone) - 1)
    measure = Measure(f"p99 {what}: growth beside a compaction", "%", (limit,))
    results.add(measure, "sparklog", growth, number)
