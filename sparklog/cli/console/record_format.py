"""RecordFormat: the console consumer's output, by the properties of Kafka's default formatter.

Source: the properties of Kafka's DefaultMessageFormatter, with its defaults and order of fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from sparklog.cli.arguments import check_known, is_true
from sparklog.cli.output import readable
from sparklog.core.types import TimestampType, TopicPartition

PRINT = ("timestamp", "partition", "offset", "headers", "key", "value")
"""Printable fields, in their order."""
SEPARATORS = {
    "key.separator": "\t",
    "line.separator": "\n",
    "headers.separator": ",",
    "null.literal": "null",
}
PROPERTIES = (*(f"print.{name}" for name in PRINT), *SEPARATORS)
JSON_COLUMNS = ("offset", "timestamp", "timestampType", "headers", "key", "value")

_TIMESTAMP_TYPES = {
    int(TimestampType.CREATE_TIME): "CreateTime",
    int(TimestampType.LOG_APPEND_TIME): "LogAppendTime",
}
_COLUMNS_OF = {
    "timestamp": ("timestamp", "timestampType"),
    "partition": (),
    "offset": ("offset",),
    "headers": ("headers",),
    "key": ("key",),
    "value": ("value",),
}


def timestamp_type_name(number: int) -> str:
    """Return Kafka's name of a timestamp type."""
    return _TIMESTAMP_TYPES[number]


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """The printed fields of a record, and their separators."""

    printed: tuple[str, ...]
    key_separator: bytes
    line_separator: bytes
    headers_separator: bytes
    null_literal: bytes

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns to read: only those of printed fields."""
        return tuple(column for name in self.printed for column in _COLUMNS_OF[name])

    def lines(self, tp: TopicPartition, batch: pa.RecordBatch) -> bytes:
        """Return the output for a batch that was read with `columns`."""
        if not self.printed:
            return b""
        fields = [list(self._field(name, tp, batch)) for name in self.printed]
        separator, end = self.key_separator, self.line_separator
        return b"".join(separator.join(row) + end for row in zip(*fields, strict=True))

    def _field(self, name: str, tp: TopicPartition, batch: pa.RecordBatch) -> Iterator[bytes]:
        match name:
            case "timestamp":
                stamps = batch.column("timestamp").cast(pa.int64()).to_pylist()
                kinds = batch.column("timestampType").to_pylist()
                for kind, stamp in zip(kinds, stamps, strict=True):
                    yield f"{timestamp_type_name(kind)}:{stamp}".encode()
            case "partition":
                yield from [f"Partition:{tp.partition}".encode()] * batch.num_rows
            case "offset":
                yield from (f"Offset:{n}".encode() for n in batch.column("offset").to_pylist())
            case "headers":
                yield from map(self._headers, batch.column("headers").to_pylist())
            case _:
                null = self.null_literal
                yield from (null if v is None else v for v in batch.column(name).to_pylist())

    def _headers(self, headers: list[dict[str, Any]] | None) -> bytes:
        if not headers:
            return b"NO_HEADERS"
        return self.headers_separator.join(
            f"{h['key']}:".encode() + (self.null_literal if h["value"] is None else h["value"])
            for h in headers
        )


def record_format(properties: Mapping[str, str]) -> RecordFormat:
    """Return the format for these properties.

    Raises:
        UsageError: an unknown property. There are no deserializers: bytes are printed unchanged.
    """
    check_known(properties, PROPERTIES, "--formatter-property")
    chosen = {"print.value": "true", **SEPARATORS, **properties}
    return RecordFormat(
        printed=tuple(name for name in PRINT if is_true(chosen.get(f"print.{name}", ""))),
        key_separator=_bytes(chosen["key.separator"]),
        line_separator=_bytes(chosen["line.separator"]),
        headers_separator=_bytes(chosen["headers.separator"]),
        null_literal=_bytes(chosen["null.literal"]),
    )


def record_documents(tp: TopicPartition, batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Yield the records of a batch that was read with `JSON_COLUMNS` as JSON values."""
    stamps = batch.column("timestamp").cast(pa.int64()).to_pylist()
    rows = batch.drop_columns(["timestamp"]).to_pylist()
    for row, stamp in zip(rows, stamps, strict=True):
        yield {
            "topic": tp.topic,
            "partition": tp.partition,
            "offset": row["offset"],
            "timestamp": stamp,
            "timestampType": timestamp_type_name(row["timestampType"]),
            "headers": [[h["key"], readable(h["value"])] for h in row["headers"] or ()],
            "key": readable(row["key"]),
            "value": readable(row["value"]),
        }


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
