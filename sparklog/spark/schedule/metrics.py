"""The page for Prometheus of the application that runs upkeep jobs, and a file with the same.

The page is the driver's, beside those of the brokers (`--jobs-metrics-port`). A job started
outside the schedule ends before a scrape: it leaves a file for node_exporter's textfile collector
(`--metrics-file`). Times are seconds, as Prometheus wants them.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sparklog.broker.network.listener_sockets import EVERY_INTERFACE
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.spark.jobs.job import JobReport
from sparklog.spark.schedule.history import DONE, REPAIRED, JobRun
from sparklog.spark.schedule.run import RunEnd, amounts_of, ending_of, outcome_of
from sparklog.spark.schedule.schedule import BY_HAND, Schedule

MS_PER_S: Final = 1000.0


class JobMetrics(Collector):
    """Metrics of jobs: the outcomes of the last runs, and the times of the next. Thread-safe."""

    def __init__(self, schedule: Schedule | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        """Begin without a run; of a schedule's jobs the next times are shown, too."""
        self._jobs = [job for job in schedule.jobs if job.enabled] if schedule is not None else []
        self._clock = clock
        self._lock = Lock()
        self._running: dict[str, JobRun] = {}
        """By run: one that was asked for may go on beside the job's own."""
        self._last: dict[str, JobRun] = {}
        self._good_ms: dict[str, int] = {}
        self._counts: dict[tuple[str, str], int] = {}

    def began(self, run: JobRun) -> None:
        """Note that a run has begun."""
        with self._lock:
            self._running[run.run_id] = run

    def ended(self, run: JobRun) -> None:
        """Note how a run has ended."""
        with self._lock:
            self._running.pop(run.run_id, None)
            self._last[run.job] = run
            key = (run.job, run.outcome)
            self._counts[key] = self._counts.get(key, 0) + 1
            if run.outcome in (DONE, REPAIRED):
                self._good_ms[run.job] = run.heard_ms

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        with self._lock:
            running, last = Counter(run.job for run in self._running.values()), dict(self._last)
            good_ms, counts = dict(self._good_ms), dict(self._counts)
        runs = CounterMetricFamily(
            "sparklog_job_runs", "Runs that ended", labels=("job", "outcome")
        )
        for (job, outcome), count in counts.items():
            runs.add_metric((job, outcome), count)
        yield runs
        names = {job.name for job in self._jobs} | set(last) | set(running)
        yield _gauge("running", "How many runs of a job go on", {n: running[n] for n in names})
        yield _gauge(
            "next_run_timestamp_seconds", "When a job is due next",
            {job.name: _seconds(job.cron.next_ms(self._clock.now_ms())) for job in self._jobs},
        )  # fmt: skip
        yield _gauge(
            "last_success_timestamp_seconds", "When a job was last done",
            {job: _seconds(at_ms) for job, at_ms in good_ms.items()},
        )  # fmt: skip
        ended = {job: _seconds(run.heard_ms) for job, run in last.items()}
        yield _gauge("last_run_timestamp_seconds", "When a job last ended", ended)
        took = {job: _seconds(run.duration_ms) for job, run in last.items()}
        yield _gauge("last_duration_seconds", "How long the last run took", took)
        codes = {job: run.exit_code for job, run in last.items()}
        yield _gauge("last_exit_code", "0 for a run that is done", codes)
        for what in ("records", "bytes"):
            for when in ("before", "after"):
                name = f"{what}_{when}"
                values = {job: getattr(run, name) for job, run in last.items()}
                yield _gauge(f"last_{name}", f"{what.capitalize()} {when} the last run", values)


class JobMetricsServer:
    """Serves metrics over HTTP, in a thread of its own."""

    def __init__(self, metrics: JobMetrics, host: str, port: int) -> None:
        """Listen at `host`, on every interface if it is empty, and `port`, a free one for 0.

        Raises:
            OSError: the address cannot be had.
        """
        if host in EVERY_INTERFACE:  # on Linux `::` is IPv4 as well
            host = "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104 - asked for
        server, _ = start_http_server(port, host, registry=_registry(metrics))
        self._server: Any = server
        self.port: int = server.server_port

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()


def leave_metrics(
    path: Path,
    job: str,
    code: int,
    report: JobReport | None,
    seconds: float,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """Write the metrics of one run that has ended as a file, whole or not at all.

    Args:
        `path`: the file; its folder must be there.
        `job`: its name.
        `code`: its exit code.
        `report`: None if it did not come to one.
        `seconds`: how long it took.
        `clock`: says when it ended.

    Raises:
        OSError: the folder does not take it.
    """
    now_ms = clock.now_ms()
    ending = ending_of(report) if report is not None else RunEnd(outcome_of(code), code, "")
    amounts = amounts_of(ending.report)
    duration_ms = round(seconds * MS_PER_S)
    metrics = JobMetrics()
    metrics.ended(
        JobRun(
            run_id="",
            job=job,
            kind=job,
            trigger=BY_HAND,
            scheduled_ms=now_ms - duration_ms,
            started_ms=now_ms - duration_ms,
            heard_ms=now_ms,
            outcome=ending.outcome,
            exit_code=code,
            duration_ms=duration_ms,
            records_before=amounts.records_before,
            records_after=amounts.records_after,
            bytes_before=amounts.bytes_before,
            bytes_after=amounts.bytes_after,
        )
    )
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_bytes(generate_latest(_registry(metrics)))
    draft.replace(path)


def _registry(metrics: JobMetrics) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(metrics)
    return registry


def _gauge(name: str, words: str, values: Mapping[str, float | None]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"sparklog_job_{name}", words, labels=("job",))
    for job, value in sorted(values.items()):
        if value is not None:
            family.add_metric((job,), value)
    return family


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / MS_PER_S
