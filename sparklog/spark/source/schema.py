"""The columns of a read: those of Spark's Kafka source, in its order and with its types.

A user's schema picks columns: any of them, in any order, and nothing else. Knows how columns look
to Spark and to Arrow; knows nothing of where they come from.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparklog.core.errors import InvalidRequest
from sparklog.log.schema import HEADERS
from sparklog.spark.sink.options import HEADERS_TYPE

SPARK_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS_TYPE,
}
ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
}
"""The schema on which Spark insists, to the letter, in the batches a source yields."""

_MAY_BE_NULL: Final = ("key", "value", "headers")


def full_schema(*, include_headers: bool) -> StructType:
    """Return the schema of a read that asks for no columns of its own."""
    names = [name for name in SPARK_TYPES if name != "headers" or include_headers]
    return StructType([StructField(name, SPARK_TYPES[name]) for name in names])


def columns_of(schema: StructType) -> tuple[str, ...]:
    """Return the columns that a read's schema asks for, as the source spells them.

    Raises:
        InvalidRequest: an unknown column, one asked for twice, a wrong type, or a promise that a
            column holds no nulls which a record can break.
    """
    spelling = {name.lower(): name for name in SPARK_TYPES}
    columns: list[str] = []
    for field in schema.fields:
        name = spelling.get(field.name.lower())
        if name is None:
            close = get_close_matches(field.name.lower(), spelling, n=1)
            hint = f"did you mean {spelling[close[0]]}?" if close else "cast or compute it instead."
            raise InvalidRequest(
                f"the sparklog source has no such column; {hint} It has "
                f"{', '.join(SPARK_TYPES)}. column={field.name}"
            )
        if name in columns:
            raise InvalidRequest(f"a column is asked for twice. column={name}")
        _check_type(name, field)
        columns.append(name)
    return tuple(columns)


def _check_type(name: str, field: StructField) -> None:
    wanted = SPARK_TYPES[name]
    if field.dataType != wanted:
        raise InvalidRequest(
            "a column of the sparklog source has another type; read it as it is and cast it. "
            f"column={name} type={wanted.simpleString()} asked={field.dataType.simpleString()}"
        )
    if not field.nullable and name in _MAY_BE_NULL:
        raise InvalidRequest(f"a record may have none: ask for it without NOT NULL. column={name}")


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return how batches of a checked `schema` look to Arrow."""
    spelling = {name.lower(): name for name in SPARK_TYPES}
    return pa.schema(
        [
            pa.field(field.name, ARROW_TYPES[spelling[field.name.lower()]], field.nullable)
            for field in schema.fields
        ]
    )
