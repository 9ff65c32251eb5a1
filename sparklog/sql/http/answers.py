"""Results as bodies of HTTP: JSON, CSV, or a stream of Arrow, in pieces."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import pyarrow as pa

from sparklog.core.errors import InvalidRequest
from sparklog.sql.engine import Query
from sparklog.sql.result_values import csv_bytes, json_value, shaped_rows

ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"


class BodyEncoder(Protocol):
    """Makes the pieces of one body."""

    media_type: str

    def piece(self, batch: pa.RecordBatch) -> bytes:
        """Return the bytes of a batch; the first one has the columns, and may have no rows."""

    def end(self, query: Query) -> bytes:
        """Return the last bytes."""


class JsonBody:
    """One object: `columns`, `rows`, and what the query cost."""

    media_type = "application/json"

    def __init__(self) -> None:
        """Start before the first batch."""
        self._has_columns = False
        self._has_rows = False

    def piece(self, batch: pa.RecordBatch) -> bytes:
        """See `BodyEncoder`."""
        parts = []
        if not self._has_columns:
            self._has_columns = True
            parts.append(f'{{"columns":{compact_text(columns_of(batch.schema))},"rows":[')
        if batch.num_rows:
            rows = compact_text(list(shaped_rows(batch, json_value)))[1:-1]
            parts.append(f",{rows}" if self._has_rows else rows)
            self._has_rows = True
        return "".join(parts).encode("utf-8", "backslashreplace")

    def end(self, query: Query) -> bytes:
        """See `BodyEncoder`."""
        spent = query.spent()
        facts = {
            "truncated": query.is_truncated,
            "requests": spent.requests,
            "bytes": spent.bytes,
        }
        return f"],{compact_text(facts)[1:]}\n".encode()


class CsvBody:
    """CSV with a line of names."""

    media_type = "text/csv; charset=utf-8"

    def __init__(self) -> None:
        """Start before the first batch."""
        self._has_names = False

    def piece(self, batch: pa.RecordBatch) -> bytes:
        """See `BodyEncoder`."""
        found = csv_bytes(batch, names=not self._has_names)
        self._has_names = True
        return found

    def end(self, query: Query) -> bytes:
        """See `BodyEncoder`."""
        return b""


class ArrowBody:
    """Arrow's IPC stream."""

    media_type = ARROW_TYPE

    def __init__(self) -> None:
        """Start before the first batch."""
        self._sink = io.BytesIO()
        self._writer: Any = None

    def piece(self, batch: pa.RecordBatch) -> bytes:
        """See `BodyEncoder`."""
        if self._writer is None:
            self._writer = pa.ipc.new_stream(self._sink, batch.schema)
        if batch.num_rows:
            self._writer.write_batch(batch)
        return self._taken()

    def end(self, query: Query) -> bytes:
        """See `BodyEncoder`."""
        if self._writer is not None:
            self._writer.close()
        return self._taken()

    def _taken(self) -> bytes:
        found = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return found


BODIES: Final[Mapping[str, Callable[[], BodyEncoder]]] = {
    "json": JsonBody,
    "csv": CsvBody,
    "arrow": ArrowBody,
}


def body_for(form: str | None, accept: str) -> BodyEncoder:
    """Return the encoder of a format by its name, or by an `Accept` header.

    Raises:
        InvalidRequest: an unknown format.
    """
    if form is None:
        form = "csv" if "text/csv" in accept else "arrow" if ARROW_TYPE in accept else "json"
    if form not in BODIES:
        raise InvalidRequest(f"no such format: {form[:40]!r}; one of {', '.join(BODIES)}")
    return BODIES[form]()


def columns_of(schema: pa.Schema) -> list[dict[str, str]]:
    """Return the names and Arrow types of columns."""
    return [{"name": field.name, "type": str(field.type)} for field in schema]


def compact_text(value: Any) -> str:
    """Return JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
