"""Views with decoded values: `json.topic` and `text.topic`, and functions for one value.

`registry_view` has a third one.

The columns of `json.topic` are the fields that some of the oldest and newest values have. A later
value may differ. A number that is not whole, in a column of whole numbers, is an error and is not
rounded. A value that is not JSON is an error, too. As an option, such fields are null, and
`decode_error` says why the value is not JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from sparklog.core.bounded_json import parse_json
from sparklog.core.errors import InvalidRequest
from sparklog.sql.columns import SCHEMA

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

FORMATS: Final = ("json", "text", "registry", "bare", "latest")
"""Schemas with a view of each topic."""
FIELDS_MAX: Final = 1_000
SAMPLE_ROWS: Final = 500
"""Records from each end of a partition that show the fields."""

MACROS: Final = """
CREATE MACRO text(v) AS decode(v);
CREATE MACRO try_text(v) AS try(decode(v));
CREATE MACRO decode_error(v) AS CASE
  WHEN v IS NULL THEN NULL
  WHEN try(decode(v)) IS NULL THEN 'not UTF-8'
  WHEN NOT json_valid(try(decode(v))) THEN 'not JSON' END;
CREATE MACRO as_json(v) AS decode(v)::JSON;
CREATE MACRO try_json(v) AS CASE WHEN json_valid(try(decode(v))) THEN decode(v)::JSON END;
CREATE MACRO header(h, name) AS list_filter(h, lambda one: one.key = name)[-1].value;
"""

OF_RECORD: Final = ("topic", "partition", "offset", "timestamp", "key")
"""Columns of the record that come first in such a view."""
_WHOLE: Final = ("BIGINT", "UBIGINT", "HUGEINT")


def fields_of(connection: DuckDBPyConnection, values: pa.Array) -> dict[str, str]:
    """Return the fields of the JSON objects among values, and the SQL type of each.

    Types are BIGINT, DOUBLE, BOOLEAN, VARCHAR or JSON.
    """
    connection.register("sparklog_sample", pa.table({"v": values}))
    try:
        rows = connection.execute(
            "SELECT json_group_structure(j) FROM (SELECT try_json(v) AS j FROM sparklog_sample) "
            "WHERE json_type(j) = 'OBJECT'"
        ).fetchall()
    finally:
        connection.unregister("sparklog_sample")
    structure = parse_json(rows[0][0] or "{}", "the structure of values")
    if not isinstance(structure, dict):
        return {}
    return {name: _sql_type(kind) for name, kind in list(structure.items())[:FIELDS_MAX]}


def json_view(table: str, fields: Mapping[str, str], *, strict: bool) -> str:
    """Return the SELECT of `json.topic`.

    Args:
        table: the name of the topic's table.
        fields: names and SQL types.
        strict: fail at a value that does not decode; else its fields are null.

    Raises:
        InvalidRequest: there are no fields.
    """
    if not fields:
        raise InvalidRequest(
            "none of the values that were looked at is a JSON object, so json has no columns; "
            f"read the topic itself. topic={table}"
        )
    source = f"main.{quoted(table)}"
    text = "decode(value)"
    if not strict:
        text = f"CASE WHEN decode_error(value) IS NULL THEN {text} END"
    extracts = ", ".join(
        f"json_extract(v, {literal(_pointer(name))}) AS f{number}"
        for number, name in enumerate(fields)
    )
    names = column_names(fields)
    typed = ", ".join(
        f"{_typed(f'f{number}', name, kind, table, strict=strict)} AS {quoted(names[name])}"
        for number, (name, kind) in enumerate(fields.items())
    )
    own = ", ".join(map(quoted, OF_RECORD))
    decoded = f"SELECT {own}, value, headers, {text} AS v FROM {source}"  # noqa: S608 - quoted
    parsed = f"SELECT {own}, value, headers, {extracts} FROM ({decoded})"  # noqa: S608 - quoted
    return (
        f"SELECT {own}, {typed}, headers, decode_error(value) AS decode_error "  # noqa: S608 - quoted
        f"FROM ({parsed})"
    )


def text_view(table: str, *, strict: bool) -> str:
    """Return the SELECT of `text.topic`: key and value as text."""
    function = "text" if strict else "try_text"
    columns = ", ".join(
        f"{function}({name}) AS {name}" if name in {"key", "value"} else quoted(name)
        for name in SCHEMA.names
    )
    return f"SELECT {columns} FROM main.{quoted(table)}"  # noqa: S608 - quoted


def latest_view(table: str) -> str:
    """Return the SELECT of `latest.topic`: the newest record of each key, if it has a value."""
    columns = ", ".join(map(quoted, SCHEMA.names))
    newest = 'row_number() OVER (PARTITION BY "partition", key ORDER BY "offset" DESC) = 1'
    return (
        f"SELECT {columns} FROM (SELECT *, {newest} AS is_newest FROM main.{quoted(table)} "  # noqa: S608 - quoted
        "WHERE key IS NOT NULL) WHERE is_newest AND value IS NOT NULL"
    )


def quoted(name: str) -> str:
    """Return a name as SQL spells it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text as SQL spells it."""
    return "'" + text.replace("'", "''") + "'"


def column_names(fields: Iterable[str], others: Iterable[str] = ()) -> dict[str, str]:
    """Return a column name for each field: SQL ignores case, and the record's columns stay.

    Args:
        fields: their names.
        others: more columns of the view.
    """
    taken = {*OF_RECORD, "headers", "decode_error", *others}
    names = {}
    for field in fields:
        name = field or "value"
        while name.lower() in taken:
            name = f"value_{name}"
        taken.add(name.lower())
        names[field] = name
    return names


def _sql_type(kind: object) -> str:
    if kind in _WHOLE:
        return "BIGINT"
    return str(kind) if kind in ("DOUBLE", "BOOLEAN", "VARCHAR") else "JSON"


def _typed(column: str, name: str, kind: str, table: str, *, strict: bool) -> str:
    if kind == "JSON":
        return f"CASE WHEN json_type({column}) <> 'NULL' THEN {column} END"
    if kind == "VARCHAR":
        return f"json_extract_string({column}, '$')"
    types = {"BIGINT": _WHOLE, "DOUBLE": (*_WHOLE, "DOUBLE"), "BOOLEAN": ("BOOLEAN",)}[kind]
    fits = f"json_type({column}) IN ({', '.join(map(literal, types))})"
    if not strict:
        return f"CASE WHEN {fits} THEN {column}::{kind} END"
    what = literal(f"a value of json.{table} is no {kind}. field={name} partition=")
    wrong = f"error({what} || \"partition\" || ' offset=' || \"offset\" || ' value=' || {column})"
    return (
        f"CASE WHEN {fits} THEN {column}::{kind} "
        f"WHEN {column} IS NULL OR json_type({column}) = 'NULL' THEN NULL ELSE {wrong} END"
    )


def _pointer(name: str) -> str:
    return "/" + name.replace("~", "~0").replace("/", "~1")
