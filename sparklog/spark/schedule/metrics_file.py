"""Metrics file: a job that ends before a scrape leaves its metrics as a file.

Jobs pass `write_metrics_file` to `run_job`, so that `spark/jobs` does not import this package. The
collector and the metrics library load only when a file is wanted: they take 0.2 s of a job's start.
"""

from __future__ import annotations

from pathlib import Path

from sparklog.spark.jobs.job import JobReport


def write_metrics_file(
    path: Path, job: str, code: int, report: JobReport | None, seconds: float
) -> None:
    """Write the metrics of a run that has ended to `path`; see `leave_metrics`.

    Raises:
        OSError: the folder does not accept the file.
    """
    from sparklog.spark.schedule.metrics import leave_metrics  # noqa: PLC0415 - takes 0.2 s

    leave_metrics(path, job, code, report, seconds)
