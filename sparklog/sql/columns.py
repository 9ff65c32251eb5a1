"""The columns of a topic as a table: those of Spark's source, with its names.

`topic` is the first column, because DuckDB reads the first column to count rows, and the name costs
nothing. The other order would read every key.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa

from sparklog.log.schema import HEADERS

TIMESTAMP_US: Final = pa.timestamp("us", tz="UTC")

SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP_US),
        pa.field("timestampType", pa.int32()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
    ]
)
"""The columns of a query; one row is one record."""
OF_THE_PLACE: Final = ("topic", "partition")
"""Columns that the name of a partition gives."""


def stored_columns(names: Iterable[str]) -> list[str]:
    """Return the columns that are read from the log, in the order of the table."""
    wanted = set(names)
    return [n for n in SCHEMA.names if n in wanted and n not in OF_THE_PLACE]


def named_columns(text: str, columns: Iterable[str] = SCHEMA.names) -> set[str]:
    """Return those of some columns that a text may name; never too few."""
    return {name for name in columns if name in text}
