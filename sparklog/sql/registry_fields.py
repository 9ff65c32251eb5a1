"""The columns that schemas of a registry give a table, and decoded values as such columns. Pure.

A table has the fields of all schemas that its topic uses. A field whose types differ between
schemas becomes a wider number, or JSON. Records, lists, maps and mixed unions are JSON.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from sparklog.registry.decoder import REASON_LENGTH_MAX, json_text
from sparklog.registry.formats.avro import AvroType
from sparklog.registry.formats.parsed import ParsedSchema
from sparklog.registry.model.schema import AVRO, JSON

WHOLE_VALUE: Final = ""
"""The field of a value that is no record: a number, a text or a list."""
FIELDS_MAX: Final = 1_000
_DECIMAL_DIGITS_MAX: Final = 38

INT: Final = pa.int64()
UNSIGNED: Final = pa.uint64()
FLOAT: Final = pa.float64()
BOOL: Final = pa.bool_()
TEXT: Final = pa.string()
BYTES: Final = pa.binary()
DATE: Final = pa.date32()
TIME: Final = pa.time64("us")
INSTANT: Final = pa.timestamp("us", tz="UTC")
LOCAL: Final = pa.timestamp("us")


@dataclass(frozen=True, slots=True)
class DecodedField:
    """The type of a field."""

    type: pa.DataType
    is_json: bool = False
    """A text of JSON."""
    is_spelled: bool = False
    """Values may come as texts, as JSON spells those of Protobuf."""


AS_JSON: Final = DecodedField(TEXT, is_json=True)
Fields = dict[str, DecodedField]


def merged_fields(schemas: Iterable[tuple[ParsedSchema, tuple[int, ...]]]) -> Fields:
    """Return the fields that values of some schemas have, in the order of the schemas.

    Args:
        schemas: each with the indexes of its message, which count for Protobuf.
    """
    found: Fields = {}
    for schema, indexes in schemas:
        for name, field in _fields_of(schema, indexes):
            known = found.get(name)
            if known is None and len(found) >= FIELDS_MAX:
                continue
            found[name] = field if known is None else _wider(known, field)
    return found


def field_column(
    field: DecodedField, values: Sequence[Any], failed: Callable[[int, str], None]
) -> pa.Array:
    """Return decoded values as a column.

    Args:
        field: the type.
        values: of the field; None for a record without it.
        failed: is called with the row and the reason for a value that does not have the type.
    """
    exact = _EXACT.get(field.type, frozenset())
    convert = _converter(field)
    try:
        if not field.is_json and set(map(type, values)) <= exact:
            return pa.array(values, field.type)
        return pa.array([None if one is None else convert(one) for one in values], field.type)
    except _MISFITS:
        pass  # some value does not fit; find it
    fitted: list[Any] = []
    for row, value in enumerate(values):
        try:
            one = pa.scalar(None if value is None else convert(value), field.type)
        except _MISFITS as error:
            failed(row, f"no {field.type}: {error}"[:REASON_LENGTH_MAX])
            one = pa.scalar(None, field.type)
        fitted.append(one.as_py())
    return pa.array(fitted, field.type)


def values_of_field(name: str, decoded: Sequence[Any]) -> list[Any]:
    """Return one field of each decoded value; None where a value does not have it."""
    if name == WHOLE_VALUE:
        return [None if isinstance(value, Mapping) else value for value in decoded]
    return [value.get(name) if isinstance(value, dict) else None for value in decoded]


def _fields_of(
    schema: ParsedSchema, indexes: tuple[int, ...]
) -> Iterator[tuple[str, DecodedField]]:
    if schema.schema_type == AVRO:
        return _avro_fields(schema.schema.type)
    if schema.schema_type == JSON:
        return _json_fields(schema.schema.document)
    return _protobuf_fields(schema.schema.file, indexes)


def _wider(one: DecodedField, other: DecodedField) -> DecodedField:
    if one == other:
        return one
    spelled = one.is_spelled or other.is_spelled
    if one.type == other.type and one.is_json == other.is_json:
        return DecodedField(one.type, one.is_json, spelled)
    if not (one.is_json or other.is_json) and {one.type, other.type} == {INT, FLOAT}:
        return DecodedField(FLOAT, is_spelled=spelled)
    return AS_JSON


def _avro_fields(kind: AvroType) -> Iterator[tuple[str, DecodedField]]:
    for branch in kind.branches or (kind,):
        if branch.kind == "record":
            for field in branch.fields:
                yield field.name, _avro_field(field.type)
        elif branch.kind != "null":
            yield WHOLE_VALUE, _avro_field(branch)


def _avro_field(kind: AvroType) -> DecodedField:
    branches = [one for one in kind.branches if one.kind != "null"]
    if kind.kind == "union":
        return _avro_field(branches[0]) if len(branches) == 1 else AS_JSON
    if kind.decimal is not None and kind.logical == "decimal":
        precision, scale = kind.decimal
        fits = 0 < precision <= _DECIMAL_DIGITS_MAX
        return DecodedField(pa.decimal128(precision, scale)) if fits else AS_JSON
    found = _AVRO_LOGICAL.get((kind.kind, kind.logical)) or _AVRO.get(kind.kind)
    return AS_JSON if found is None else DecodedField(found)


def _json_fields(document: Any) -> Iterator[tuple[str, DecodedField]]:
    if not isinstance(document, Mapping):
        return
    properties = document.get("properties")
    if not isinstance(properties, Mapping):
        if document.get("type") not in (None, "object"):
            yield WHOLE_VALUE, _json_field(document)
        return
    for name, schema in properties.items():
        yield name, _json_field(schema)


def _json_field(schema: Any) -> DecodedField:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if isinstance(kind, list):
        others = [one for one in kind if one != "null"]
        kind = others[0] if len(others) == 1 else None
    found = _JSON.get(kind) if isinstance(kind, str) else None
    return AS_JSON if found is None else DecodedField(found)


def _protobuf_fields(file: Any, indexes: tuple[int, ...]) -> Iterator[tuple[str, DecodedField]]:
    message, inner = None, file.message_type
    for index in indexes:
        if not 0 <= index < len(inner):
            return
        message, inner = inner[index], inner[index].nested_type
    if message is None:
        return
    for field in message.field:
        repeated = field.label == field.LABEL_REPEATED
        name = field.type_name.lstrip(".") or field.Type.Name(field.type).removeprefix("TYPE_")
        found = None if repeated else _PROTOBUF.get(name)
        if found is None and field.type == field.TYPE_ENUM and not repeated:
            found = TEXT
        yield field.name, AS_JSON if found is None else DecodedField(found, is_spelled=True)


def _converter(field: DecodedField) -> Callable[[Any], Any]:
    if field.is_json:
        return json_text
    convert = _CONVERT.get(field.type.id, _as_is)
    if field.is_spelled or field.type == TEXT:
        return convert

    def strictly(value: Any) -> Any:
        if isinstance(value, str):
            raise TypeError("a text")
        return convert(value)

    return strictly


def _as_is(value: Any) -> Any:
    return value


def _as_int(value: Any) -> int:
    number = int(value) if isinstance(value, (float, str)) else value
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{type(value).__name__} is no whole number")
    if isinstance(value, float) and number != value:
        raise ValueError(f"{value} is no whole number")
    return number


def _as_float(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError("bool is no number")
    return float(value)


def _as_text(value: Any) -> str:
    if isinstance(value, (bytes, bool, int, float, list, dict)):
        raise TypeError(f"{type(value).__name__} is no text")
    return str(value)


def _as_bytes(value: Any) -> bytes:
    return base64.b64decode(value, validate=True) if isinstance(value, str) else bytes(value)


def _as_time(value: Any) -> Any:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


_CONVERT: Final[dict[int, Callable[[Any], Any]]] = {
    INT.id: _as_int,
    UNSIGNED.id: _as_int,
    FLOAT.id: _as_float,
    TEXT.id: _as_text,
    BYTES.id: _as_bytes,
    INSTANT.id: _as_time,
}
_MISFITS: Final = (pa.ArrowException, TypeError, ValueError, OverflowError, RecursionError)
_NONE: Final = type(None)
_EXACT: Final[dict[pa.DataType, frozenset[type]]] = {
    INT: frozenset({int, _NONE}),
    FLOAT: frozenset({float, int, _NONE}),
    BOOL: frozenset({bool, _NONE}),
    TEXT: frozenset({str, _NONE}),
    BYTES: frozenset({bytes, _NONE}),
    INSTANT: frozenset({datetime, _NONE}),
    LOCAL: frozenset({datetime, _NONE}),
}
"""Python's types that Arrow converts exactly."""
_AVRO: Final = {
    "boolean": BOOL, "int": INT, "long": INT, "float": FLOAT, "double": FLOAT,
    "bytes": BYTES, "fixed": BYTES, "string": TEXT, "enum": TEXT,
}  # fmt: skip
_AVRO_LOGICAL: Final = {
    ("int", "date"): DATE,
    ("int", "time-millis"): TIME,
    ("long", "time-micros"): TIME,
    ("long", "timestamp-millis"): INSTANT,
    ("long", "timestamp-micros"): INSTANT,
    ("long", "local-timestamp-millis"): LOCAL,
    ("long", "local-timestamp-micros"): LOCAL,
}
_JSON: Final = {"integer": INT, "number": FLOAT, "boolean": BOOL, "string": TEXT}
_PROTOBUF: Final = {
    **dict.fromkeys(
        ["INT32", "INT64", "UINT32", "SINT32", "SINT64", "FIXED32", "SFIXED32", "SFIXED64"], INT
    ),
    "UINT64": UNSIGNED,
    "FIXED64": UNSIGNED,
    "DOUBLE": FLOAT,
    "FLOAT": FLOAT,
    "BOOL": BOOL,
    "STRING": TEXT,
    "BYTES": BYTES,
    "google.protobuf.Timestamp": INSTANT,
    "google.protobuf.StringValue": TEXT,
    "google.protobuf.BytesValue": BYTES,
    "google.protobuf.BoolValue": BOOL,
    "google.protobuf.DoubleValue": FLOAT,
    "google.protobuf.FloatValue": FLOAT,
    "google.protobuf.Int32Value": INT,
    "google.protobuf.Int64Value": INT,
    "google.protobuf.UInt32Value": INT,
    "google.protobuf.UInt64Value": UNSIGNED,
}
