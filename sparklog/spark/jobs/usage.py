"""Usage reports of jobs whose tasks return their requests, for runs that no history keeps."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from sparklog.cluster.log import open_log
from sparklog.cluster.usage_reporter import leave_report
from sparklog.core.counters import Snapshot
from sparklog.core.errors import SparklogError
from sparklog.spark.jobs.job import SparkStart
from sparklog.spark.jobs.progress import JobProgress
from sparklog.spark.jobs.report import UpkeepReport

logger = logging.getLogger("sparklog.usage")


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
        _leave(job.root, program, report.counted)
        return report

    return run


def _leave(root: str, program: str, counts: Snapshot) -> None:
    try:
        with open_log(root) as log:
            leave_report(log, program, counts)
    except SparklogError as error:
        logger.info("the bill lacks requests of this job. program=%s problem=%s", program, error)
