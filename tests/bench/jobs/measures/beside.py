"""What brokers' clients notice of a compaction: waiting times with and without one beside them.

The job has the lowest priority of the machine, which brokers, clients and it share: on a cluster it
would have executors of its own.
"""

from __future__ import annotations

from pathlib import Path
from threading import Thread

from tests.bench.common.clusters import sparklog_cluster
from tests.bench.common.command import Run
from tests.bench.common.results import Measure, Results
from tests.bench.common.targets import CostAtMost
from tests.bench.jobs.job_process import Done, run_job_process
from tests.bench.jobs.keyed_rows import fill
from tests.bench.jobs.load import Latencies, loaded, p99
from tests.bench.jobs.plan import JobsPlan

GROUP = "clients beside a compaction, ms"
GROWTH_PERCENT = 20
LOWEST_PRIORITY = 19
LOADED = "loaded"


def measure_beside(run: Run[JobsPlan]) -> None:
    """Load a topic, in turns alone and while a large topic is compacted."""
    plan = run.plan
    folder = run.work / "beside"
    root = (folder / "log").as_uri()
    topics = [f"keyed-{number}" for number in range(1, plan.rounds + 1)]
    for topic in topics:
        fill(root, plan.compacted, topic)
    with sparklog_cluster(folder) as ours:
        ours.create(LOADED, 1, 3)
        _load(ours.bootstrap, plan)  # until it is warm
        for number, topic in enumerate(topics, 1):
            alone = _load(ours.bootstrap, plan)
            job = _Job(folder, "--root", root, "--topic", topic, "--force")
            job.start()
            beside = _load(ours.bootstrap, plan, job)
            job.join()
            rows = job.done[0].report["compacted"]["rows_before"] if job.done else 0
            run.results.check_equal(f"all of {topic} was compacted", rows, plan.compacted.records)
            _add(run.results, "produce", alone.produced_ms, beside.produced_ms, number)
            _add(run.results, "send to receipt", alone.received_ms, beside.received_ms, number)


class _Job(Thread):
    """A compaction in a process of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        super().__init__(name="job", daemon=True)
        self._folder = folder
        self._words = words
        self.done: list[Done] = []

    def run(self) -> None:
        self.done.append(
            run_job_process("compact", self._folder, *self._words, niceness=LOWEST_PRIORITY)
        )


def _load(bootstrap: str, plan: JobsPlan, job: Thread | None = None) -> Latencies:
    """Load the topic for as long as planned, or until the job has ended if that is later."""
    return loaded(
        bootstrap,
        LOADED,
        plan.loaded_records_per_s,
        plan.loaded_bytes,
        lambda seconds: seconds < plan.loaded_seconds or (job is not None and job.is_alive()),
    )


def _add(results: Results, what: str, alone: list[float], beside: list[float], number: int) -> None:
    for how, values in (("alone", alone), ("beside a compaction", beside)):
        results.add(Measure(f"p99 {what}, {how}", "ms", (), GROUP), "sparklog", p99(values), number)
    limit = CostAtMost(GROWTH_PERCENT, "%")
    growth = 100 * (p99(beside) / p99(alone) - 1)
    measure = Measure(f"p99 {what}: growth beside a compaction", "%", (limit,))
    results.add(measure, "sparklog", growth, number)
