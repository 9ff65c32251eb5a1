"""Values of results as JSON and as text, for files, terminals and HTTP."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from sparklog.core.byte_text import readable_bytes
from sparklog.core.terminal_text import printable

_FORMULA: Final = re.compile(r"(^|;)(\s*+[\"']*+[=+\-@\uff1d\uff0b\uff0d\uff20])")
"""The begin of a formula, also in full-width forms. Source: OWASP, CSV Injection."""


def json_value(value: Any) -> Any:
    """Return a value of a result as JSON has it.

    Bytes that are not UTF-8 become base64, and numbers that JSON lacks become texts.
    """
    match value:
        case float() if not isfinite(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return readable_bytes(value)
        case dict():
            return {str(key): json_value(one) for key, one in value.items()}
        case list() | tuple():
            return [json_value(one) for one in value]
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case UUID() | timedelta():
            return str(value)
    return str(value)


def text_value(value: Any) -> str:
    """Return a value of a result as text; bytes that are not UTF-8 in hexadecimal digits."""
    match value:
        case str():
            return value
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return "\\x" + value.hex()
        case bool():
            return str(value).lower()
        case datetime():
            return value.isoformat(sep=" ")
        case dict() | list():
            return json.dumps(json_value(value), ensure_ascii=False)
    return str(value)


def shaped_rows(batch: pa.RecordBatch, shape: Callable[[Any], Any]) -> Iterator[list[Any]]:
    """Yield the rows of a batch, each value as `shape` returns it."""
    columns = [[shape(value) for value in column.to_pylist()] for column in batch.columns]
    return (list(row) for row in zip(*columns, strict=True))


def csv_bytes(batch: pa.RecordBatch, *, names: bool, for_spreadsheets: bool = False) -> bytes:
    """Return rows as CSV, after a line of the columns' names if wanted; null is empty.

    `for_spreadsheets` changes texts as `spreadsheet_text` does, and leaves numbers alone.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if names:
        own = batch.schema.names
        writer.writerow([spreadsheet_text(one) for one in own] if for_spreadsheets else own)
    cell = _spreadsheet_cell if for_spreadsheets else _cell
    writer.writerows(shaped_rows(batch, cell))
    return text.getvalue().encode("utf-8", "surrogateescape")


def _cell(value: Any) -> str:
    return "" if value is None else text_value(value)


def _spreadsheet_cell(value: Any) -> str:
    if value is None or isinstance(value, int | float | Decimal):
        return _cell(value)
    return spreadsheet_text(text_value(value))


def spreadsheet_text(text: str) -> str:
    """Return a cell for spreadsheets: control characters as escapes, and no begin of a formula.

    Some spreadsheets split the cells of CSV at semicolons, so a formula may begin behind one, too.
    """
    plain = printable(text).replace("\t", "\\t").replace("\n", "\\n")
    return _FORMULA.sub(r"\1'\2", plain)
