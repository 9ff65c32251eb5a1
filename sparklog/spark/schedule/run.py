"""One run of an upkeep job: the job's body, and the record of its outcome.

Any exception of a body becomes the run's outcome: a job never harms the application that runs it.
"""

from __future__ import annotations

import io
import logging
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import get_ident
from typing import Any, Final, Protocol, runtime_checkable

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sparklog.core.bounded_json import OBJECT_BYTES_MAX, parse_json
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.counters import Snapshot, to_document
from sparklog.spark.jobs.job import DONE as EXIT_DONE
from sparklog.spark.jobs.job import FAILED as EXIT_FAILED
from sparklog.spark.jobs.job import MENDED as EXIT_MENDED
from sparklog.spark.jobs.job import TERMINATED as EXIT_TERMINATED
from sparklog.spark.jobs.job import JobReport, OpenSession, failure_line
from sparklog.spark.jobs.low_priority import POOL
from sparklog.spark.jobs.progress import JobProgress
from sparklog.spark.schedule.history import DONE, FAILED, REPAIRED, TERMINATED
from sparklog.spark.schedule.job_kinds import kind_of


@dataclass(frozen=True, slots=True)
class Amounts:
    """Amounts before and after a job, if it reports them.

    They count what it changed, or all that it read.
    """

    records_before: int | None = None
    records_after: int | None = None
    bytes_before: int | None = None
    bytes_after: int | None = None


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The outcome of a run."""

    outcome: str
    exit_code: int
    message: str
    report: Mapping[str, Any] = field(default_factory=dict)
    log: str = ""
    """See `RunLog`."""
    requests: Mapping[str, Any] = field(default_factory=dict)
    """Requests to the store: see `counters.to_document`."""


@runtime_checkable
class CountingReport(Protocol):
    """A report that knows the requests of its job to the store."""

    @property
    def counted(self) -> Snapshot:
        """Return them by kind and topic."""


ENDED_WITH_APPLICATION: Final = RunEnd(TERMINATED, EXIT_TERMINATED, "ended with the application")


TOPICS_COUNTED_MAX: Final = 50
"""The history names this many topics of a run; the requests to the others are together."""
LOG_BYTES_MAX: Final = 4 * 1024
"""Of each run in the history, of which a page of the console reads half a year."""
LOG_LINES_MAX: Final = 200


class RunLog(io.StringIO):
    """Takes the progress and the warnings of a run, and keeps the last lines. Thread-safe."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        """Begin without a line."""
        super().__init__()
        self.line = ""
        """The last one."""
        self._clock = clock
        self._lines: deque[str] = deque(maxlen=LOG_LINES_MAX)

    @property
    def text(self) -> str:
        """Return the last lines, each with its time in UTC; at most `LOG_BYTES_MAX` bytes."""
        left, kept = LOG_BYTES_MAX, list[str]()
        for line in reversed(list(self._lines)):
            left -= len(line.encode(errors="replace")) + 1
            if left < 0:
                break
            kept.append(line)
        return "\n".join(reversed(kept))

    def write(self, text: str, /) -> int:
        """Keep the lines of a text."""
        at = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        for line in filter(None, map(str.strip, text.splitlines())):
            self.line = line
            self._lines.append(f"{at:%Y-%m-%d %H:%M:%S} {line[: LOG_BYTES_MAX // 4]}")
        return len(text)


class _WarningsOfThread(logging.Handler):
    """Writes the warnings of the thread that made it."""

    def __init__(self, log: RunLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._thread = get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a warning."""
        if record.thread == self._thread:
            self._log.write(f"{record.levelname.lower()}: {record.getMessage()}")


@contextmanager
def logged_warnings(log: RunLog) -> Iterator[None]:
    """Keep the warnings that this thread logs in the block."""
    handler, root = _WarningsOfThread(log), logging.getLogger("sparklog")
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


class PoolSession:
    """Opens sessions of an application for one run: in the jobs' pool, and to be cancelled."""

    def __init__(self, spark: SparkSession, run_id: str, description: str) -> None:
        """Run as `run_id`, a job group; nothing happens before it is called."""
        self._spark = spark
        self._run_id = run_id
        self._description = description
        self.ending = False
        """True once the application ends, so that a run elsewhere ends, too."""

    def __call__(self, conf: Mapping[str, str]) -> SparkSession:
        """Return a session with some settings; those of the whole application stay as they are."""
        context = self._spark.sparkContext
        context.setJobGroup(self._run_id, self._description, interruptOnCancel=True)
        context.setLocalProperty("spark.scheduler.pool", POOL)
        session = self._spark.newSession()
        for key, value in conf.items():
            if session.conf.isModifiable(key):
                session.conf.set(key, value)
        return session

    def end(self) -> None:
        """End the run with the application."""
        self.ending = True
        self.cancel()

    def cancel(self) -> None:
        """End what runs of it in Spark."""
        try:
            self._spark.sparkContext.cancelJobGroup(self._run_id)
        except (Py4JError, PySparkException, OSError, AttributeError):
            pass  # the session is gone, and the job with it


def run_body(
    kind: str,
    words: Sequence[str],
    open_session: OpenSession,
    progress: JobProgress,
    stopping: Callable[[], bool] = lambda: False,
) -> RunEnd:
    """Run a job and return how it went.

    `stopping`: whether it was asked to end; what it raises then is no failure.
    """
    try:
        job = kind_of(kind)
        return ending_of(job.body(job.parsed(words), open_session, progress))
    except Exception as error:  # any job, beside brokers that must go on serving
        if stopping():
            return ENDED_WITH_APPLICATION
        for line in traceback.format_exc().splitlines():
            progress.say(line)
        return RunEnd(FAILED, EXIT_FAILED, failure_line(error))


def ending_of(report: JobReport) -> RunEnd:
    """Return how a run went that ended with a report."""
    code = EXIT_DONE if report.ended_by is None else report.ended_by
    message = report.to_text().strip().partition("\n")[0]
    return RunEnd(
        outcome_of(code),
        code,
        message,
        parse_json(report.to_json(), "report of a job", bytes_max=OBJECT_BYTES_MAX),
        requests=to_document(report.counted, TOPICS_COUNTED_MAX)
        if isinstance(report, CountingReport)
        else {},
    )


def outcome_of(code: int) -> str:
    """Return what an exit code means."""
    known = {EXIT_DONE: DONE, EXIT_MENDED: REPAIRED, EXIT_TERMINATED: TERMINATED}
    return known.get(code, FAILED)


def amounts_of(report: Mapping[str, Any]) -> Amounts:
    """Return the amounts of a report: under their own names, or under those of each job."""
    works = [report[key] for key in ("compacted", "merged") if isinstance(report.get(key), dict)]

    def amount(name: str, *reads: str) -> int | None:
        for key in (name, *reads):  # what only reads leaves as much as it finds
            if _number(report.get(key)) is not None:
                return _number(report[key])
        own = name.replace("records", "rows")
        numbers = [_number(work.get(own)) for work in works]
        return sum(number or 0 for number in numbers) if numbers else None

    return Amounts(
        records_before=amount("records_before", "rows"),
        records_after=amount("records_after", "rows"),
        bytes_before=amount("bytes_before", "size_bytes", "bytes"),
        bytes_after=amount("bytes_after", "size_bytes", "bytes"),
    )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
