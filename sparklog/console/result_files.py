"""Results of SQL as files: CSV, JSON lines or Parquet, piece by piece.

A result that a run holds whole is written from there. Of another one the query runs again, without
a limit of rows, and its rows go to the response as they come.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa

from sparklog.cli.console.result_output import (
    CsvOutput,
    JsonOutput,
    ParquetOutput,
    ResultOutput,
)
from sparklog.cli.output import Output
from sparklog.console.export import PieceQueue
from sparklog.console.query_runs import MEMORY_BYTES, RULES, THREADS, QueryRun, QueryRuns
from sparklog.console.resources import BoundedValues, FieldSpec
from sparklog.core.errors import InvalidRequest
from sparklog.sql.engine import Query, QueryLimits

PIECE_ROWS: Final = 1_000
SECONDS_MAX: Final = 3600.0
MEDIA_TYPES: Final = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
}
SUFFIXES: Final = {"csv": "csv", "json": "jsonl", "parquet": "parquet"}
RESULT_PARAMETERS: Final = (
    FieldSpec("run", "the id of a run of this session", required=True, length_max=64),
    FieldSpec("format", "the format of the file", choices=tuple(MEDIA_TYPES), default="csv"),
)


def write_result(queries: QueryRuns, values: BoundedValues, pieces: PieceQueue) -> None:
    """Write a run's whole result. Raises as `Query.batches`; ResourceNotFound: no such run."""
    run = queries.find(values.session_id, values.text("run"))
    if run.state == "running":
        raise InvalidRequest("the query still runs; export it when it has ended")
    if run.result is not None and not run.truncated:
        write_batches(run.result.to_batches(), values.text("format"), pieces)
        return
    _run_again(queries, run, values.text("format"), pieces)


def _run_again(queries: QueryRuns, run: QueryRun, form: str, pieces: PieceQueue) -> None:
    limits = QueryLimits(SECONDS_MAX, MEMORY_BYTES, threads=THREADS)
    with queries.topics() as topics, Query(topics, run.statement, limits, RULES) as query:
        write_batches(query.batches(), form, pieces)


def write_batches(batches: Iterable[pa.RecordBatch], form: str, pieces: PieceQueue) -> None:
    """Write batches of one schema into pieces, until the reader leaves."""
    file = PieceFile(form, pieces)
    for batch in batches:
        for at in range(0, max(1, batch.num_rows), PIECE_ROWS):
            if not file.put(batch.slice(at, PIECE_ROWS)):
                return
    file.finish()


class PieceFile:
    """A file of rows that goes piece by piece to the reader of an export."""

    def __init__(self, form: str, pieces: PieceQueue) -> None:
        """Write a file of a format of `MEDIA_TYPES` to `pieces`."""
        self._buffer = _Taken()
        self._output = _output(form, self._buffer)
        self._pieces = pieces

    def put(self, batch: pa.RecordBatch) -> bool:
        """Write rows; return False after the reader left."""
        self._output.put(batch)
        return not self._pieces.stopped and self._pass_on()

    def finish(self, notes: Mapping[str, str] | None = None) -> None:
        """Write the rest; a Parquet file gets the notes as metadata."""
        if notes and isinstance(self._output, ParquetOutput):
            self._output.note(notes)
        self._output.finish()
        self._pass_on()

    def _pass_on(self) -> bool:
        data = self._buffer.take()
        return not data or self._pieces.put(data)


class _Taken(io.BytesIO):
    """A stream whose bytes are taken away while it is written; its position goes on."""

    def __init__(self) -> None:
        super().__init__()
        self._before = 0

    def tell(self) -> int:
        return self._before + super().tell()

    def take(self) -> bytes:
        found = self.getvalue()
        self._before += len(found)
        self.seek(0)
        self.truncate()
        return found


def _output(form: str, buffer: _Taken) -> ResultOutput:
    if form == "parquet":
        return ParquetOutput(buffer)
    output = Output(buffer, as_json=form == "json")
    return JsonOutput(output) if form == "json" else CsvOutput(output, for_spreadsheets=True)
