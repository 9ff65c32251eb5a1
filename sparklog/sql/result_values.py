"""Values of results as JSON and as text, for files, terminals and HTTP."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any
from uuid import UUID

import pyarrow as pa

from sparklog.core.byte_text import readable_bytes


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


def csv_bytes(batch: pa.RecordBatch, *, names: bool) -> bytes:
    """Return rows as CSV, after a line of the columns' names if wanted; null is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if names:
        writer.writerow(batch.schema.names)
    writer.writerows(shaped_rows(batch, lambda value: "" if value is None else text_value(value)))
    return text.getvalue().encode("utf-8", "surrogateescape")
