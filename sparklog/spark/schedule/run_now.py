"""One run of a scheduled job in this process: `sparklog jobs --run` where no application takes it.

It is kept in the history like the runs of applications, and claims no time: the next one runs, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import SparkSession

from sparklog.cluster.log import open_log
from sparklog.cluster.usage_reporter import reported_usage
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.spark.jobs.job import INTERRUPTED as EXIT_INTERRUPTED
from sparklog.spark.jobs.job import TERMINATED as EXIT_TERMINATED
from sparklog.spark.jobs.job import JobTerminated, OpenSession, failure_line, run_job
from sparklog.spark.jobs.progress import JobProgress
from sparklog.spark.schedule.claims import ScheduleClaims, going_on
from sparklog.spark.schedule.history import FAILED, RUNNING, TERMINATED, read_history
from sparklog.spark.schedule.job_kinds import kind_of
from sparklog.spark.schedule.requests import application_name
from sparklog.spark.schedule.run import RunEnd, RunLog, ending_of
from sparklog.spark.schedule.schedule import SILENT_MS, ScheduledJob

MASTER: Final = "local[*]"


def run_by_hand(job: ScheduledJob, root: str, *, master: str | None, as_json: bool) -> int:
    """Run a job, say how it goes as its own command would, and return its exit code."""
    kind = kind_of(job.kind)
    words = [*job.words(root), *(["--json"] if as_json else [])]

    def body(given: Any, open_session: OpenSession, progress: JobProgress) -> Any:
        def session(conf: Mapping[str, str]) -> SparkSession:
            return open_session({"spark.master": master or MASTER, **conf})

        with open_log(root) as log, reported_usage(log, "sparklog jobs"):
            last = read_history(log).last_run(job.name)
            if last is not None and last.outcome == RUNNING:
                age_ms = SYSTEM_CLOCK.now_ms() - last.heard_ms
                if age_ms < SILENT_MS:
                    progress.say(f"note: it runs already, at {last.application}; no harm is done")
            looking = ScheduleClaims(log, application_name(), lambda event: None)
            run = looking.by_hand(job)
            looking.begin(run)
            try:
                with going_on(looking, run, RunLog()):
                    report = kind.body(given, session, progress)
            except BaseException as error:
                looking.end(run, _cut_short(error))
                raise
            looking.end(run, ending_of(report))
            return report

    return run_job(f"sparklog {job.kind}", lambda _: kind.parsed(words), body, [])


def _cut_short(error: BaseException) -> RunEnd:
    if isinstance(error, JobTerminated):
        return RunEnd(TERMINATED, EXIT_TERMINATED, "terminated")
    if isinstance(error, KeyboardInterrupt):
        return RunEnd(TERMINATED, EXIT_INTERRUPTED, "interrupted")
    return RunEnd(FAILED, 1, failure_line(error))
