"""Usage reports of jobs whose tasks return their requests, for runs that no history keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from sparklog.cluster.log import open_log
from sparklog.cluster.usage_reporter import UsageReporter
from sparklog.spark.jobs.job import SparkStart
from sparklog.spark.jobs.progress import JobProgress
from sparklog.spark.jobs.report import UpkeepReport


class RootJob(Protocol):
    """A job on one root."""

    @property
    def root(self) -> str:
        """Return the root."""

    @property
    def json(self) -> bool:
        """Return whether the report is wanted as JSON."""


Job = TypeVar("Job", bound=RootJob)
Body = Callable[[Job, SparkStart, JobProgress], UpkeepReport]


def reported(program: str, body: Body[Job]) -> Body[Job]:
    """Return a job's body that reports the requests of the job under a program's name."""

    def run(job: Job, spark: SparkStart, progress: JobProgress) -> UpkeepReport:
        report = body(job, spark, progress)
        with open_log(job.root) as log:
            UsageReporter(log, program, counted=report.counted).end()
        return report

    return run
