"""Job: the common part of all jobs (a session, one line for an error, exit codes).

  - 0: done
  - 1: failed; one line on standard error says why and what to do
  - 2: called wrongly; the usage is on standard error
  - 3: something was damaged, and all of it was put right (verification)
  - 130: interrupted
  - 141: the reader of the output went away
  - 143: terminated

Results go to standard output, everything said about them to standard error (which spark-submit
passes on as standard output, too).
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Protocol, TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sparklog.core.errors import SparklogError
from sparklog.core.terminal_text import printable
from sparklog.spark.jobs.jvm_shutdown import JvmShutdown, terminate_main_thread
from sparklog.spark.jobs.metrics_option import metrics_file
from sparklog.spark.jobs.progress import JobProgress
from sparklog.spark.jobs.session import SETTINGS, stay_on_loopback, use_this_python
from sparklog.spark.jobs.started_jvm import jvm_runs, start_jvm
from sparklog.spark.jobs.work_folder import serve_folder

DONE = 0
FAILED = 1
MISUSED = 2
MENDED = 3
INTERRUPTED = 130
READER_GONE = 141
TERMINATED = 143
MESSAGE_LENGTH_MAX = 2000
END_TIMEOUT_S = 30
"""The longest delay of the end of a JVM, until its job has stopped in good order."""

_OWN_ERROR = re.compile(r"sparklog\.core\.errors\.(\w+): (.+)")
_JAVA_ERROR = re.compile(r"^: [\w.$]+: (.+)$", re.MULTILINE)

SESSION_CONF = {
    **SETTINGS,
    # A submitted job would otherwise log every step of every task.
    "spark.log.level": "WARN",
    # Jobs say themselves how far they are; Spark's bar would write over it.
    "spark.ui.showConsoleProgress": "false",
}

OpenSession = Callable[[Mapping[str, str]], SparkSession]
"""Returns the session, started with some configuration; nothing starts before it is called."""


class SparkStart:
    """Starts Spark for a job, at the first call, and stops it after the job. An `OpenSession`."""

    def __init__(
        self,
        name: str,
        log: Callable[[], Path | None],
        submitted_with: Callable[[SparkContext], None],
    ) -> None:
        """Start nothing yet.

        Args:
            name: of the application.
            log: returns the file for the output of a JVM that is to start; None: no file.
            submitted_with: called with the context that starts under spark-submit.
        """
        self._name = name
        self._log = log
        self._submitted_with = submitted_with
        self._context: SparkContext | None = None
        self._session: SparkSession | None = None

    def __call__(self, conf: Mapping[str, str]) -> SparkSession:
        """Return the session, started with some configuration."""
        started = self._context is not None
        self._session = job_session(self._name, conf, None if started else self._log())
        if not started:
            self._has_started(self._session.sparkContext)
        return self._session

    def context(
        self, conf: Mapping[str, str], secrets: Mapping[str, str] | None = None
    ) -> SparkContext:
        """Return the context alone, started with some configuration.

        A session has its JVM load Spark SQL, which takes a start of brokers three seconds. The
        JVM gets `secrets` after its start, so the list of processes does not show them.
        """
        context = job_context(self._name, conf, self._log(), secrets)
        self._has_started(context)
        return context

    def stop(self) -> None:
        """Stop Spark, if it has started."""
        running = self._session or self._context
        if running is None:
            return
        try:
            running.stop()
        except (Py4JError, PySparkException, OSError):
            pass  # the JVM is gone already, for example by the same Ctrl-C

    def _has_started(self, context: SparkContext) -> None:
        self._context = context
        if submitted():
            self._submitted_with(context)


class JobArguments(Protocol):
    """The common fields of every job's parsed command line."""

    @property
    def json(self) -> bool:
        """Return whether the report is wanted as JSON."""
        ...


class JobReport(Protocol):
    """A job's report at its end, for a person and for a program."""

    @property
    def printed(self) -> bool:
        """Return whether standard output holds results already."""
        ...

    @property
    def ended_by(self) -> int | None:
        """Return the exit code when the work was ended from outside, None when it is complete."""
        ...

    def to_text(self) -> str:
        """Return it as lines."""
        ...

    def to_json(self) -> str:
        """Return it as one JSON object."""
        ...


Job = TypeVar("Job", bound=JobArguments)


WriteMetrics = Callable[[Path, str, int, JobReport | None, float], None]
"""Writes a file with the metrics of a run: its path, the job, exit code, report and seconds."""


class JobTerminated(Exception):
    """A signal asked the process to end."""


def run_job(
    name: str,
    parse: Callable[[Sequence[str]], Job],
    body: Callable[[Job, SparkStart, JobProgress], JobReport],
    argv: Sequence[str] | None = None,
    *,
    ends_with_jvm: bool = True,
    write_metrics: WriteMetrics | None = None,
) -> int:
    """Run a job from its command line to its exit code.

    Under spark-submit the JVM gets the signal to end. Then it waits up to `END_TIMEOUT_S` for the
    job, which gets SIGTERM.

    Args:
        name: of the application.
        parse: reads the command line.
        body: the work.
        argv: the command line, or None for the process's.
        ends_with_jvm: False if the body awaits the JVM's end.
        write_metrics: writes the file of `--metrics-file`; None for a program without that option.
    """
    # Py4J logs a call that Ctrl-C cut short, with its trace; the interrupt itself says enough.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    progress = JobProgress(sys.stderr)
    words = sys.argv[1:] if argv is None else argv
    report: JobReport | None = None
    code = FAILED
    previous = signal.signal(signal.SIGTERM, _terminate)
    ends, folders = ExitStack(), ExitStack()

    def submitted_with(context: SparkContext) -> None:
        if ends_with_jvm:
            ends.enter_context(JvmShutdown(context, END_TIMEOUT_S, terminate_main_thread))

    spark = SparkStart(
        name, lambda: _spark_log(folders, lambda: code == FAILED, progress), submitted_with
    )
    try:
        job = parse(words)
        report = body(job, spark, progress)
        progress.close()
        # spark-submit mixes standard error into the output: there, records are left alone.
        if not (report.printed and submitted()):
            tell_report(report, as_json=job.json)
        code = DONE if report.ended_by is None else report.ended_by
    except SystemExit as stop:  # argparse has said all there is to say
        code = stop.code if isinstance(stop.code, int) else FAILED
    except KeyboardInterrupt:
        code = INTERRUPTED
    except JobTerminated:
        code = TERMINATED
    except BrokenPipeError:
        code = READER_GONE
        # Python flushes standard output once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (SparklogError, PySparkException, Py4JError, OSError) as error:
        progress.close()
        print(printable(f"error: {failure_line(error)}"), file=sys.stderr, flush=True)
        code = FAILED
    finally:
        progress.close()
        signal.signal(signal.SIGTERM, previous)
        ends.close()
    spark.stop()
    folders.close()
    path = None if code == MISUSED else metrics_file(words)
    if path is not None:
        _leave_metrics(write_metrics, path, name, code, report, progress.elapsed_s())
    return code


def _spark_log(
    folders: ExitStack, failed: Callable[[], bool], progress: JobProgress
) -> Path | None:
    """Return the file for the output of a JVM that is to start, which stays if the job fails."""
    if submitted() or jvm_runs():
        return None
    log = folders.enter_context(serve_folder(failed=failed)).log
    progress.say(f"starting Spark, whose log is {log}")
    return log


def job_session(name: str, conf: Mapping[str, str], log: Path | None = None) -> SparkSession:
    """Return the session of a job: the one spark-submit prepared, or one made here.

    Settings of spark-submit's command line go before a job's own choice. A JVM that is made here
    writes its output to `log`; None leaves that to the terminal.
    """
    builder = SparkSession.builder.appName(name)
    for key, value in _job_settings(conf, log).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def job_context(
    name: str,
    conf: Mapping[str, str],
    log: Path | None = None,
    secrets: Mapping[str, str] | None = None,
) -> SparkContext:
    """Return the context of a job without a session, with settings as `job_session`'s.

    The JVM gets `secrets` after its start, unless Spark's files have them.
    """
    settings = _job_settings(conf, log)
    files = SparkConf()
    late = secrets or {}
    settings |= {key: value for key, value in late.items() if not files.contains(key)}
    return SparkContext.getOrCreate(SparkConf().setAppName(name).setAll(list(settings.items())))


def _job_settings(conf: Mapping[str, str], log: Path | None) -> dict[str, str]:
    """Start the JVM, if none runs, and return the settings of the job's context."""
    settings = {**SESSION_CONF, **conf}
    use_this_python()
    if submitted():
        given = submitted_conf()
        settings = {key: value for key, value in settings.items() if not given.contains(key)}
    else:
        given = start_jvm(settings, log)
    if SparkContext._active_spark_context is None:  # noqa: SLF001 - Python has no other way
        master = settings.get("spark.master") or given.get("spark.master", "local[*]")
        settings |= stay_on_loopback(str(master), given)
    return settings


def failure_line(error: BaseException) -> str:
    """Return an error as one line: what sparklog said where it said something, else Spark's words.

    Spark wraps what a data source raises into a trace of its own.
    """
    text = str(error)
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename else ""
        text = f"{error.strerror}{where}"
    own = _OWN_ERROR.findall(text)
    if own:
        text = own[-1][1]
    elif isinstance(error, Py4JError):
        found = _JAVA_ERROR.search(text)
        text = found.group(1) if found else text
    text = text.split("JVM stacktrace:")[0].split("\n\tat ")[0]
    text = " ".join(text.split()) or type(error).__name__
    return text if len(text) <= MESSAGE_LENGTH_MAX else text[:MESSAGE_LENGTH_MAX] + " …"


def tell_report(report: JobReport, *, as_json: bool) -> None:
    """Print a report, as one object for programs or as lines for people."""
    if as_json:
        print(report.to_json(), file=sys.stderr if report.printed else sys.stdout, flush=True)
    else:
        print(printable(report.to_text()), file=sys.stderr, flush=True)


def submitted_conf() -> SparkConf:
    """Return the settings that spark-submit got, on its command line and in its files."""
    # Before Python knows the JVM that spark-submit started, a SparkConf is silently empty.
    SparkContext._ensure_initialized()  # noqa: SLF001 - Python has no other way
    return SparkConf()


def submitted() -> bool:
    """Return whether spark-submit started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ  # noqa: TID251 - this is the edge


def _terminate(number: int, frame: FrameType | None) -> None:
    raise JobTerminated


def _leave_metrics(
    write: WriteMetrics | None,
    path: Path,
    name: str,
    code: int,
    report: JobReport | None,
    seconds: float,
) -> None:
    try:
        if write is None:
            raise OSError("this program writes none; pass write_metrics to run_job")
        write(path, name.removeprefix("sparklog "), code, report, seconds)
    except OSError as error:
        print(f"warning: no metrics: {failure_line(error)}", file=sys.stderr, flush=True)
