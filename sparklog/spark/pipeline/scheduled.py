"""A pipeline in a schedule: it runs in a Spark application of its own, on the driver's machine.

Settings of a pipeline are those of a whole application, and its failures then harm no broker.

SCHEDULED-1: the pipeline's process ends with the application that schedules it. That application
    sends SIGTERM when it ends in order. If it is killed, the process sees that it has another
    parent, and ends.
SCHEDULED-2: however much the process prints, only its newest line is kept.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import IO, Final

from sparklog.core.bounded_json import parse_json
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.errors import Unavailable
from sparklog.spark.jobs.arguments import JobParser, add_log_options
from sparklog.spark.jobs.job import OpenSession
from sparklog.spark.jobs.progress import JobProgress
from sparklog.spark.pipeline.project import read_project
from sparklog.spark.pipeline.run import (
    PARENT_VARIABLE,
    PipelineJob,
    PipelineReport,
)
from sparklog.spark.schedule.run import PoolSession

POLL_S: Final = 0.2
TERMINATE_S: Final = 8.0
"""Time for an update to end by itself; the next run repeats it otherwise."""
LINE_LENGTH_MAX: Final = 2000
REPORT_LENGTH_MAX: Final = 1 << 16


def parse_pipeline(argv: Sequence[str]) -> PipelineJob:
    """Return the job that the words of a schedule describe."""
    parser = JobParser(
        "pipeline", "Update the tables and topics of a pipeline.", "example: /srv/pipelines/orders"
    )
    parser.add_argument("folder", type=Path, help="the project's folder; its files name the log")
    parser.add_argument(
        "--continuous", type=_seconds, nargs="?", const=CONTINUOUS_S, metavar="SECONDS",
        help=f"update again after so many seconds (default {CONTINUOUS_S:g}), until the end",
    )  # fmt: skip
    add_log_options(parser)
    return parser.parsed(
        argv, lambda given: PipelineJob(given.folder, interval_s=given.continuous, json=given.json)
    )


def pipeline(job: PipelineJob, open_session: OpenSession, progress: JobProgress) -> PipelineReport:
    """Run a scheduled pipeline; the application that schedules it gives it no session.

    Raises:
        Unavailable: it failed; the message is its own.
    """
    project = read_project(job.folder)
    progress.start()
    words = [sys.executable, "-m", "sparklog.cli", "pipeline", "run", str(project.folder)]
    if job.interval_s is not None:
        words += ["--continuous", "--interval", f"{job.interval_s:g}"]
    process = subprocess.Popen(  # noqa: S603 - our own program
        [*words, "--json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=_own_environment(),
    )
    newest = _NewestLine(process.stderr, progress)
    try:
        _wait(process, open_session)
    finally:
        process.kill()  # nothing, if it has ended
        code = process.wait()
    assert process.stdout is not None
    with process.stdout:
        printed = process.stdout.read(REPORT_LENGTH_MAX) if not code else ""
    if code:
        raise Unavailable(
            f"the pipeline failed: {newest.line()} folder={project.folder} exit_code={code}"
        )
    found = parse_json(printed, "report of a pipeline")
    return PipelineReport(
        project.name, int(found["updates"]), int(found["flows"]), progress.elapsed_s()
    )


def _wait(process: subprocess.Popen[str], open_session: OpenSession) -> None:
    """Wait for the end of a process, and ask it to end when the application ends."""
    kill_s: float | None = None
    while process.poll() is None:
        now_s = SYSTEM_CLOCK.monotonic_s()
        if kill_s is None and isinstance(open_session, PoolSession) and open_session.ending:
            process.send_signal(signal.SIGTERM)
            kill_s = now_s + TERMINATE_S
        if kill_s is not None and now_s >= kill_s:
            return
        SYSTEM_CLOCK.sleep_s(POLL_S)


class _NewestLine:
    """Reads what a process prints about its progress, and keeps the newest line."""

    def __init__(self, lines: IO[str] | None, progress: JobProgress) -> None:
        assert lines is not None
        self._lines = lines
        self._progress = progress
        self._line = "it said nothing"
        self._thread = Thread(target=self._read, name="sparklog-pipeline-lines", daemon=True)
        self._thread.start()

    def line(self) -> str:
        """Return it, after the process' end."""
        self._thread.join(POLL_S)
        return self._line

    def _read(self) -> None:
        with self._lines:
            while line := self._lines.readline(LINE_LENGTH_MAX):
                if line.strip():
                    self._line = line.strip()
                    self._progress.say(self._line)


CONTINUOUS_S: Final = 5.0


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"must be seconds from 0: {text!r}")
    return seconds


def _own_environment() -> Mapping[str, str]:
    """Return the environment without the variables by which Spark ties a process to another JVM."""
    environment = os.environ  # noqa: TID251 - this is the edge
    kept = {name: v for name, v in environment.items() if not name.startswith("PYSPARK_GATEWAY")}
    return {**kept, PARENT_VARIABLE: str(os.getpid())}
