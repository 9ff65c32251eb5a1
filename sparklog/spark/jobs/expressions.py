"""SQL expressions as a command line carries them: cut at commas, and turned into record columns.

Knows how to cut text and which Spark types become bytes how; what the expressions mean is Spark's.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampType,
    VariantType,
)

from sparklog.core.errors import InvalidRequest

_OPENING = {"(": ")", "[": "]", "<": ">"}
_QUOTES = "'\"`"


def split_expressions(text: str) -> list[str]:
    """Cut `text` at the commas that are outside quotes and brackets; the parts are stripped.

    Raises:
        InvalidRequest: a quote or bracket is not closed, or nothing is between two commas.
    """
    parts: list[str] = []
    part: list[str] = []
    open_brackets: list[str] = []
    quote = ""
    escaped = False
    for char in text:
        part.append(char)
        if quote:
            # A backslash protects the next character; a doubled quote closes and opens again.
            if escaped:
                escaped = False
            elif char == "\\" and quote != "`":
                escaped = True
            elif char == quote:
                quote = ""
        elif char in _QUOTES:
            quote = char
        elif char in "([":
            open_brackets.append(_OPENING[char])
        elif open_brackets and char == open_brackets[-1]:
            open_brackets.pop()
        elif char == "," and not open_brackets:
            part.pop()
            parts.append("".join(part))
            part = []
    parts.append("".join(part))
    if quote or open_brackets:
        missing = quote or open_brackets[-1]
        raise InvalidRequest(f"an expression lacks a closing {missing} at its end. given={text!r}")
    stripped = [one.strip() for one in parts]
    if not all(stripped):
        raise InvalidRequest(f"there is nothing before or after a comma. given={text!r}")
    return stripped


def split_named(text: str) -> list[tuple[str, str]]:
    """Cut `name=expression,name=expression` into pairs; names may repeat.

    Raises:
        InvalidRequest: a part without a name or without an expression.
    """
    pairs = []
    for part in split_expressions(text):
        name, _, expression = part.partition("=")
        if not name.strip() or not expression.strip():
            raise InvalidRequest(f"a header is name=expression. given={part!r}")
        pairs.append((name.strip(), expression.strip()))
    return pairs


def type_of(rows: DataFrame, expression: str) -> DataType:
    """Return the type of an expression over `rows`; Spark's own error when it does not fit."""
    return rows.select(sf.expr(expression)).schema[0].dataType


def as_payload(rows: DataFrame, expression: str) -> Column:
    """Return a key or value: bytes and text as they are, nested values as JSON, others as text."""
    kind = type_of(rows, expression)
    column = sf.expr(expression)
    if isinstance(kind, BinaryType | StringType):
        return column
    if isinstance(kind, StructType | MapType | ArrayType | VariantType):
        return sf.to_json(column)
    return column.cast("string")


def as_header_value(rows: DataFrame, expression: str) -> Column:
    """Return a header's value, which is bytes in any case."""
    return as_payload(rows, expression).cast("binary")


def as_timestamp(rows: DataFrame, expression: str) -> Column:
    """Return an event time: whole numbers are milliseconds, as in Kafka, text is cast by Spark.

    Raises:
        InvalidRequest: neither time nor text nor a number.
    """
    kind = type_of(rows, expression)
    column = sf.expr(expression)
    if isinstance(kind, TimestampType):
        return column
    if isinstance(kind, NumericType):
        return sf.timestamp_millis(column.cast("bigint"))
    if isinstance(kind, StringType | DateType) or kind.typeName() == "timestamp_ntz":
        return column.cast("timestamp")
    raise InvalidRequest(
        "a timestamp is a time, a date, text that holds one, or a number of milliseconds. "
        f"expression={expression!r} type={kind.simpleString()}"
    )
