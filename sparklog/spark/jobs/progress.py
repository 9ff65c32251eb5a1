"""Progress: a long job reports rows, bytes and rate while it runs, and a summary at its end.

On a terminal one line is written over; without one a line is written now and then. Batch work is
watched through Spark's status store, which knows the stages under way; a streaming query says
itself what each batch did.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from typing import Any, TextIO

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.counters import Snapshot
from sparklog.core.terminal_text import printable

TERMINAL_INTERVAL_S = 0.5
LINES_INTERVAL_S = 5.0
SAMPLE_INTERVAL_S = 0.5

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass(frozen=True, slots=True)
class Tally:
    """Work done so far. Zero tasks mean that the amount of work is unknown."""

    rows: int = 0
    size_bytes: int = 0
    tasks_done: int = 0
    tasks: int = 0


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """A job's results, for a person and for a program."""

    verb: str
    """`produced` or `consumed`."""
    topic: str
    rows: int
    size_bytes: int
    seconds: float
    details: Mapping[str, Any] = field(default_factory=dict)
    """More fields of the JSON form."""
    lines: tuple[str, ...] = ()
    """More lines of the text form."""
    printed: bool = False
    """Standard output holds the records themselves."""
    ended_by: int | None = None
    """The exit code when the work was ended from outside, None when it is complete."""
    counted: Snapshot = field(default_factory=dict)
    """Requests of the driver to the store, by kind and topic; those of tasks are not known."""

    def to_text(self) -> str:
        """Return the report as lines."""
        size = f" ({bytes_text(self.size_bytes)})" if self.size_bytes else ""
        first = f"{self.verb} {self.rows:,} records{size} of {self.topic} in {self.seconds:.1f} s"
        if not self.details.get("dry_run"):
            first += f": {rate(self.rows, self.seconds):,.0f} records/s"
        return "\n".join((first, *self.lines))

    def to_json(self) -> str:
        """Return the report as one JSON object."""
        document = {
            "topic": self.topic,
            "rows": self.rows,
            "bytes": self.size_bytes,
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(rate(self.rows, self.seconds), 1),
            **self.details,
        }
        return json.dumps(document, separators=(",", ":"))


def rate(amount: float, seconds: float) -> float:
    """Return `amount` per second; of no time nothing is known, and zero is said."""
    return amount / seconds if seconds > 0 else 0.0


def bytes_text(size_bytes: float) -> str:
    """Return a size as people read it: `3.2 MiB`."""
    size = float(size_bytes)
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


class JobProgress:
    """Says how far the work is. Thread-safe."""

    def __init__(self, stream: TextIO, clock: Clock = SYSTEM_CLOCK) -> None:
        """Write to `stream`."""
        self._stream = stream
        self._clock = clock
        self._terminal = stream.isatty()
        self._interval_s = TERMINAL_INTERVAL_S if self._terminal else LINES_INTERVAL_S
        self._lock = Lock()
        self._started_s = clock.monotonic_s()
        self._said_s = self._started_s
        self._width = 0

    def start(self) -> None:
        """Begin to measure: what came before (starting a session) is no work."""
        self._started_s = self._said_s = self._clock.monotonic_s()

    def elapsed_s(self) -> float:
        """Return the seconds since the start."""
        return self._clock.monotonic_s() - self._started_s

    def update(self, tally: Tally) -> None:
        """Say how far the work is, unless that was said a moment ago."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            if now_s - self._said_s < self._interval_s:
                return
            self._said_s = now_s
            self._write(progress_text(tally, now_s - self._started_s))

    def say(self, message: str) -> None:
        """Write a line that stays."""
        with self._lock:
            self._erase()
            print(printable(message), file=self._stream, flush=True)

    def close(self) -> None:
        """Leave a terminal's line as if nothing had been written."""
        with self._lock:
            self._erase()

    def _write(self, text: str) -> None:
        if not self._terminal:
            print(printable(text), file=self._stream, flush=True)
            return
        self._stream.write("\r" + text.ljust(self._width))
        self._stream.flush()
        self._width = len(text)

    def _erase(self) -> None:
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()
            self._width = 0


def progress_text(tally: Tally, seconds: float) -> str:
    """Return progress as one line."""
    parts = [f"{tally.rows:,} records"]
    if tally.size_bytes:
        parts.append(bytes_text(tally.size_bytes))
    if tally.rows and seconds > 0:
        parts.append(f"{rate(tally.rows, seconds):,.0f} records/s")
    if tally.tasks:
        parts.append(f"task {tally.tasks_done} of {tally.tasks}")
    parts.append(f"{seconds:.0f} s")
    return ", ".join(parts)


@contextmanager
def watched(progress: JobProgress, sample: Callable[[], Tally]) -> Iterator[None]:
    """Report `sample()` from time to time while the block runs."""
    ended = Event()

    def watch() -> None:
        while not ended.wait(SAMPLE_INTERVAL_S):
            try:
                progress.update(sample())
            except (Py4JError, PySparkException, OSError):
                return  # the session is going: the thread that waits for the work reports its end

    thread = Thread(target=watch, name="sparklog-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


class StageSampler:
    """Adds up what the stages of a session have done; nothing where Spark offers no view of it."""

    def __init__(self, spark: SparkSession) -> None:
        """Watch the stages that `spark` runs from now on."""
        try:
            context: Any = spark.sparkContext
            self._store = context._jsc.sc().statusStore()  # noqa: SLF001 - Python has no other way
        except PySparkException:  # Spark Connect shows no stages
            self._store = None
        self._seen: dict[int, Tally] = {}

    def __call__(self) -> Tally:
        """Return the totals so far."""
        if self._store is not None:
            stages = self._store.activeStages()
            for at in range(stages.size()):
                stage = stages.apply(at)
                self._seen[stage.stageId()] = Tally(
                    rows=max(stage.inputRecords(), stage.outputRecords()),
                    size_bytes=max(stage.inputBytes(), stage.outputBytes()),
                    tasks_done=stage.numCompleteTasks(),
                    tasks=stage.numTasks(),
                )
        seen = self._seen.values()
        return Tally(
            rows=max((one.rows for one in seen), default=0),
            size_bytes=max((one.size_bytes for one in seen), default=0),
            tasks_done=sum(one.tasks_done for one in seen),
            tasks=sum(one.tasks for one in seen),
        )
