"""The page about upkeep jobs, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from sparklog.core.clock import ManualClock
from sparklog.core.errors import Unavailable
from sparklog.spark.jobs.job import run_job
from sparklog.spark.jobs.report import UpkeepReport
from sparklog.spark.jobs.retain import RetainJob, parse_retain
from sparklog.spark.schedule.cron import parse_cron
from sparklog.spark.schedule.history import DONE, FAILED, JobRun
from sparklog.spark.schedule.metrics import JobMetrics, JobMetricsServer
from sparklog.spark.schedule.metrics_file import write_metrics_file
from sparklog.spark.schedule.schedule import Schedule, ScheduledJob

NOON_MS = 1_795_262_400_000
JOB = ScheduledJob("nightly", "retain", parse_cron("0 * * * *"))
RUN = JobRun(
    "a" * 32, "nightly", "retain", "schedule", NOON_MS, NOON_MS, NOON_MS + 2500, outcome=DONE,
    exit_code=0, duration_ms=2500, records_before=10, records_after=7,
)  # fmt: skip


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Return values by name and labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_page_shows_the_last_runs_and_the_next_ones() -> None:
    metrics = JobMetrics(Schedule("x", (JOB, replace(JOB, name="off", enabled=False))),
                         ManualClock(NOON_MS))  # fmt: skip
    metrics.began(RUN)
    page = JobMetricsServer(metrics, "127.0.0.1", 0)
    try:
        url = f"http://127.0.0.1:{page.port}/metrics"
        with urlopen(url) as answer:
            before = samples(answer.read().decode())
        metrics.ended(RUN)
        later = replace(RUN, heard_ms=NOON_MS + 9000, outcome=FAILED, exit_code=1)
        metrics.ended(later)
        with urlopen(url) as answer:
            found = samples(answer.read().decode())
    finally:
        page.close()
    assert before == {
        ("sparklog_job_running", "nightly"): 1,
        ("sparklog_job_next_run_timestamp_seconds", "nightly"): (NOON_MS + 3_600_000) / 1000,
    }
    assert found == {
        ("sparklog_job_runs_total", "nightly", "done"): 1,
        ("sparklog_job_runs_total", "nightly", "failed"): 1,
        ("sparklog_job_running", "nightly"): 0,
        ("sparklog_job_next_run_timestamp_seconds", "nightly"): (NOON_MS + 3_600_000) / 1000,
        ("sparklog_job_last_success_timestamp_seconds", "nightly"): NOON_MS / 1000 + 2.5,
        ("sparklog_job_last_run_timestamp_seconds", "nightly"): NOON_MS / 1000 + 9,
        ("sparklog_job_last_duration_seconds", "nightly"): 2.5,
        ("sparklog_job_last_exit_code", "nightly"): 1,
        ("sparklog_job_last_records_before", "nightly"): 10,
        ("sparklog_job_last_records_after", "nightly"): 7,
    }


def test_runs_of_one_job_that_overlap_are_counted_each() -> None:
    metrics = JobMetrics()
    asked = replace(RUN, run_id="b" * 32, trigger="by hand")
    registry = CollectorRegistry()
    registry.register(metrics)

    def running() -> float | None:
        return registry.get_sample_value("sparklog_job_running", {"job": "nightly"})

    seen = []
    for note, run in ((metrics.began, RUN), (metrics.began, asked), (metrics.ended, asked),
                      (metrics.ended, RUN)):  # fmt: skip
        note(run)
        seen.append(running())
    assert seen == [1, 2, 1, 0]


def test_job_outside_the_scheduler_leaves_a_metrics_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sparklog.prom"
    path.write_text("old")

    def job(job: RetainJob, open_session: object, progress: object) -> UpkeepReport:
        if job.topics:
            raise Unavailable("the store does not answer")
        return UpkeepReport("done", 1.0, (), {"records_before": 10, "records_after": 7})

    def run(argv: Sequence[str]) -> int:
        return run_job("sparklog retain", parse_retain, job, argv, write_metrics=write_metrics_file)

    words = ["--root", str(tmp_path), "--metrics-file", str(path)]
    assert run(words) == 0
    found = samples(path.read_text())
    assert found["sparklog_job_runs_total", "retain", "done"] == 1
    assert found["sparklog_job_last_records_after", "retain"] == 7
    assert found["sparklog_job_last_duration_seconds", "retain"] >= 0
    assert [one.name for one in tmp_path.iterdir()] == ["sparklog.prom"]
    assert run([*words, "--topic", "x"]) == 1
    failed = samples(path.read_text())
    assert failed["sparklog_job_last_exit_code", "retain"] == 1
    assert ("sparklog_job_last_success_timestamp_seconds", "retain") not in failed
    nowhere = ["--root", str(tmp_path), "--metrics-file", str(tmp_path / "none" / "x.prom")]
    assert run(nowhere) == 0
    assert "no metrics" in capsys.readouterr().err


def test_job_without_a_metrics_writer_warns_when_a_file_is_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def job(job: RetainJob, open_session: object, progress: object) -> UpkeepReport:
        return UpkeepReport("done", 1.0, (), {})

    words = ["--root", str(tmp_path), "--metrics-file", str(tmp_path / "x.prom")]
    assert run_job("sparklog retain", parse_retain, job, words) == 0
    assert "warning: no metrics: this program writes none" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
