"""Running a job's streaming query: wait for it, say what its batches did, stop it in good order."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from sparklog.spark.jobs.job import INTERRUPTED, TERMINATED
from sparklog.spark.jobs.progress import JobProgress, Tally

POLL_INTERVAL_S = 1
TOTALS = "sparklog_totals"
"""The name under which a job's rows and bytes are observed."""


@dataclass(frozen=True, slots=True)
class StreamPace:
    """The way a stream runs: until stopped, or until all records of its start are done."""

    available_now: bool = False
    interval: str | None = None
    """Between two batches, as Spark spells it: `10 seconds`. None: one after the other."""
    checkpoint: str | None = None


def observed(rows: DataFrame, size: Column, observation: Observation | str) -> DataFrame:
    """Return `rows`, counted on their way: their number and the sum of `size`."""
    totals = (sf.count(sf.lit(1)).alias("rows"), sf.sum(size).alias("bytes"))
    return rows.observe(observation, *totals)


def totals_of(metrics: dict[str, Any]) -> Tally:
    """Return what was observed."""
    return Tally(rows=int(metrics["rows"] or 0), size_bytes=int(metrics["bytes"] or 0))


def paced(writer: DataStreamWriter, pace: StreamPace) -> DataStreamWriter:
    """Return the writer with its trigger and its checkpoint."""
    if pace.checkpoint is not None:
        writer = writer.option("checkpointLocation", pace.checkpoint)
    if pace.available_now:
        return writer.trigger(availableNow=True)
    if pace.interval is not None:
        return writer.trigger(processingTime=pace.interval)
    return writer


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """A query's results, and the exit code if it was stopped from outside."""

    tally: Tally
    batches: int
    ended_by: int | None


class _Batches:
    """Adds up the batches of a query as it reports them."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._next_batch: int | None = None
        self.count = 0
        self.tally = Tally()

    def look(self) -> None:
        for one in self._query.recentProgress:
            if self._next_batch is not None and one.batchId < self._next_batch:
                continue
            metrics = one.observedMetrics.get(TOTALS)
            if metrics is None or not one.numInputRows:
                continue  # nothing new: Spark reports that now and then, under the same number
            done = totals_of(metrics.asDict())
            self.tally = Tally(self.tally.rows + done.rows, self.tally.size_bytes + done.size_bytes)
            self.count += 1
            self._next_batch = one.batchId + 1


class StopRequest:
    """Notes that the process is asked to end; raising would cut short a call to Java."""

    def __init__(self) -> None:
        """Begin without a wish."""
        self.exit_code: int | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        """Take the signals over."""
        if current_thread() is main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        """Give them back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.exit_code = INTERRUPTED if number == signal.SIGINT else TERMINATED


def await_query(query: StreamingQuery, progress: JobProgress) -> StreamEnd:
    """Wait until the query ends by itself, or stop it when the process is asked to end.

    Raises:
        StreamingQueryException: the query failed.
    """
    batches = _Batches(query)
    with StopRequest() as request:
        while not query.awaitTermination(POLL_INTERVAL_S):
            batches.look()
            progress.update(batches.tally)
            if request.exit_code is not None:
                query.stop()
                break
    batches.look()
    return StreamEnd(batches.tally, batches.count, request.exit_code)
