"""Results of queries as a table, CSV, JSON lines, or a Parquet file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

import pyarrow as pa

from sparklog.cli.arguments import UsageError
from sparklog.cli.output import Output
from sparklog.sql.result_values import csv_bytes, json_value, shaped_rows, text_value

FORMATS: Final = ("table", "csv", "json", "parquet")
TABLE_ROWS: Final = 1_000
"""Rows that share the widths of columns."""
WIDTH_MAX: Final = 200
"""Characters of a cell in a table; the rest is left out."""
_EXPLAINED: Final = ["explain_key", "explain_value"]


class ResultOutput(Protocol):
    """Writes batches of one schema."""

    def put(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch; the first may be empty, and shows the columns."""

    def finish(self) -> None:
        """Write the rest."""


def result_output(form: str, output: Output, file: Path | None) -> ResultOutput:
    """Return the output for a format.

    Raises:
        UsageError: Parquet without a file, or a file for another format than Parquet.
    """
    if form == "parquet":
        if file is None:
            raise UsageError("--output parquet needs --file FILE")
        return ParquetOutput(file)
    if file is not None:
        raise UsageError("--file goes with --output parquet; others go to standard output")
    outputs: dict[str, Callable[[Output], ResultOutput]] = {
        "table": TableOutput,
        "csv": CsvOutput,
        "json": JsonOutput,
    }
    return outputs[form](output)


class TableOutput:
    """A table of text, with a line of names."""

    def __init__(self, output: Output) -> None:
        """Write to `output`."""
        self._output = output
        self._widths: list[int] = []

    def put(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch."""
        if batch.schema.names == _EXPLAINED:
            for row in batch.to_pylist():
                self._output.line(f"{row['explain_key']}:\n{row['explain_value']}")
            return
        for at in range(0, max(1, batch.num_rows), TABLE_ROWS):
            self._rows(batch.schema.names, list(shaped_rows(batch.slice(at, TABLE_ROWS), _cell)))

    def _rows(self, names: Sequence[str], rows: list[list[str]]) -> None:
        shows_names = not self._widths and bool(rows)
        if shows_names:
            cells = zip(*rows, strict=True)
            self._widths = [
                max(len(name), *map(len, column)) for name, column in zip(names, cells, strict=True)
            ]
            self._output.line(self._line(names))
            self._output.line("-+-".join("-" * width for width in self._widths))
        for row in rows:
            self._output.line(self._line(row))

    def finish(self) -> None:
        """Do nothing: every row is written."""

    def _line(self, cells: Sequence[str]) -> str:
        padded = (cell.ljust(width) for cell, width in zip(cells, self._widths, strict=True))
        return " | ".join(padded).rstrip()


class CsvOutput:
    """CSV with a header; null is an empty field."""

    def __init__(self, output: Output, *, for_spreadsheets: bool = False) -> None:
        """Write to `output`; `for_spreadsheets` lets no text begin a formula."""
        self._output = output
        self._for_spreadsheets = for_spreadsheets
        self._has_names = False

    def put(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch."""
        names = not self._has_names
        self._output.raw(csv_bytes(batch, names=names, for_spreadsheets=self._for_spreadsheets))
        self._has_names = True

    def finish(self) -> None:
        """Do nothing: every row is written."""


class JsonOutput:
    """One JSON object per row."""

    def __init__(self, output: Output) -> None:
        """Write to `output`."""
        output.as_json = True
        self._output = output

    def put(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch."""
        names = batch.schema.names
        for row in shaped_rows(batch, json_value):
            self._output.document(dict(zip(names, row, strict=True)))

    def finish(self) -> None:
        """Do nothing: every row is written."""


class ParquetOutput:
    """A Parquet file, compressed with zstd."""

    def __init__(self, file: Path | BinaryIO) -> None:
        """Write to `file`; one of a path is replaced."""
        self._file = file
        self._writer: Any = None

    def put(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch. Raises OSError."""
        if self._writer is None:
            from pyarrow import parquet  # noqa: PLC0415 - slow to import, seldom used

            self._writer = parquet.ParquetWriter(self._file, batch.schema, compression="zstd")
        self._writer.write_batch(batch)

    def note(self, notes: Mapping[str, str]) -> None:
        """Add to the metadata of a file that has rows, or an empty batch."""
        self._writer.add_key_value_metadata(dict(notes))

    def finish(self) -> None:
        """Write the file's footer."""
        if self._writer is not None:
            self._writer.close()


def _cell(value: Any) -> str:
    text = "null" if value is None else text_value(value).replace("\n", " ").replace("\t", " ")
    return text if len(text) <= WIDTH_MAX else f"{text[: WIDTH_MAX - 1]}…"
