"""The columns of a materialised table: what records bring, and what values grow into.

Pure: Spark's type objects and nothing that runs. A table has five columns of the record, and one
for each field of the value. Names of fields that look like a record's column get one more leading
underscore (`_offset` becomes `__offset`, `__offset` becomes `___offset`), so that no two meet.

  MATERIALIZE-SCHEMA-1: what a table has stays: a column never goes, is never renamed and never
      narrows
  MATERIALIZE-SCHEMA-2: names that differ in case only are one column to Delta. Of new ones in one
      batch the first in the alphabet has it (capitals come first), and then the one that the table
      has. A value that has two of them decides about none
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructField,
    StructType,
    TimestampNTZType,
)

from sparklog.core.errors import InvalidRequest

RECORD_COLUMNS: Final = {
    "_key": "key",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
    "_headers": "headers",
}
"""The table's columns of the record, and the source's."""
DATE_COLUMN: Final = "_date"
"""The day of `_timestamp` in UTC; there if the table is partitioned by it."""
CLASHES_NAMED: Final = 5
FIELDS_MAX: Final = 2000
"""More columns than this are no schema: fields are named by data, such as ids."""

_RESERVED: Final = re.compile(r"_+(key|partition|offset|timestamp|headers|date)", re.IGNORECASE)
_NEEDS_MAPPING: Final = re.compile(r"[ ,;{}()\n\t=]")
_WIDER: Final[dict[type[DataType], tuple[type[DataType], ...]]] = {
    ByteType: (ShortType, IntegerType, LongType, DoubleType),
    ShortType: (IntegerType, LongType, DoubleType),
    IntegerType: (LongType, DoubleType),
    FloatType: (DoubleType,),
    DateType: (TimestampNTZType,),
}
"""The types to which Delta widens a column without rewriting it. Source: Delta protocol, type
widening.
"""


@dataclass(frozen=True, slots=True)
class Growth:
    """A schema, and fields of it that cannot be columns."""

    schema: StructType
    clashes: tuple[str, ...] = ()
    """JSON paths of fields whose name is another's but for its case; their rows are parked."""

    def warning(self, rejected: str) -> str:
        """Return a warning about the clashes, of which there must be some."""
        named = ", ".join(self.clashes[:CLASHES_NAMED])
        more = len(self.clashes) - CLASHES_NAMED
        return (
            "warning: fields differ in case only from columns or from each other; the records with "
            f"them go to {rejected}. fields={named}{f' and {more} more' if more > 0 else ''}"
        )


def column_of(field: str) -> str:
    """Return the table's column for a field of the value."""
    return f"_{field}" if _RESERVED.fullmatch(field) else field


def value_fields(table: StructType) -> StructType:
    """Return the fields of the value that a table has columns of, by the fields' names."""
    record = {*RECORD_COLUMNS, DATE_COLUMN}
    return StructType(
        [
            StructField(
                name[1:] if _RESERVED.fullmatch(name) else name, _nullable(table[name].dataType)
            )
            for name in table.names
            if name not in record
        ]
    )


def grown(known: StructType, seen: StructType) -> Growth:
    """Return `known` with the fields that only `seen` has; of types, `known` keeps its own.

    Raises:
        InvalidRequest: more fields than a table should have.
    """
    clashes: list[str] = []
    schema = _grown_struct(known, seen, "$", clashes)
    if sum(1 for _ in _fields(schema)) > FIELDS_MAX:
        raise InvalidRequest(
            "values have more fields than a table should have columns; name the fields to take "
            f"with --schema, or keep values as they are with --format raw. fields_max={FIELDS_MAX}"
        )
    return Growth(schema, tuple(clashes))


def merged_given(known: StructType, given: StructType) -> StructType:
    """Return the schema of a table that had `known`, for values that are now read as `given`.

    Fields that are no longer given are left out; those given in a narrower type keep theirs.

    Raises:
        InvalidRequest: a field has a type now that its column cannot take (MATERIALIZE-SCHEMA-1).
    """
    return StructType([_given_field(known, field) for field in given.fields])


def needed_properties(known: StructType, wanted: StructType) -> dict[str, str]:
    """Return the table properties without which columns of `wanted` cannot be written.

    They ask more of other readers of the table, so they are set when they are needed, not before.
    """
    properties = {}
    if is_widened(known, wanted):
        properties["delta.enableTypeWidening"] = "true"
    if needs_mapping(wanted) and not needs_mapping(known):
        properties["delta.columnMapping.mode"] = "name"
    return properties


def is_widened(known: StructType, wanted: StructType) -> bool:
    """Return whether a column that both have is wider in `wanted`."""
    return any(
        name in wanted.names and _widens(field.dataType, wanted[name].dataType)
        for name, field in _by_name(known).items()
    )


def needs_mapping(schema: StructType) -> bool:
    """Return whether a name can be a column only where Delta maps names (column mapping)."""
    return any(_NEEDS_MAPPING.search(name) for name in _fields(schema))


def _nullable(kind: DataType) -> DataType:
    """Return the type without its nullability, which tables keep and values do not promise."""
    if isinstance(kind, StructType):
        return StructType([StructField(f.name, _nullable(f.dataType)) for f in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(_nullable(kind.keyType), _nullable(kind.valueType))
    return kind


def _grown_struct(known: StructType, seen: StructType, path: str, clashes: list[str]) -> StructType:
    fields = list(known.fields)
    spelling = {name.lower(): number for number, name in enumerate(known.names)}
    for field in seen.fields:
        here = _child(path, field.name)
        number = spelling.get(field.name.lower())
        if number is None:
            spelling[field.name.lower()] = len(fields)
            kind = _grown_type(_nothing_like(field.dataType), field.dataType, here, clashes)
            fields.append(StructField(field.name, kind))
        elif fields[number].name != field.name:
            clashes.append(here)
        else:
            kind = _grown_type(fields[number].dataType, field.dataType, here, clashes)
            fields[number] = StructField(field.name, kind)
    return StructType(fields)


def _grown_type(known: DataType, seen: DataType, path: str, clashes: list[str]) -> DataType:
    if isinstance(known, StructType) and isinstance(seen, StructType):
        return _grown_struct(known, seen, path, clashes)
    if isinstance(known, ArrayType) and isinstance(seen, ArrayType):
        # A path into an array finds nothing: what is wrong in there is wrong with all of it.
        inner: list[str] = []
        element = _grown_type(known.elementType, seen.elementType, path, inner)
        if inner:
            clashes.append(path)
        return ArrayType(element)
    return known


def _nothing_like(seen: DataType) -> DataType:
    """Return what a new field begins from, so that it is looked through as known ones are."""
    if isinstance(seen, StructType):
        return StructType([])
    if isinstance(seen, ArrayType):
        return ArrayType(_nothing_like(seen.elementType))
    return seen


def _child(path: str, name: str) -> str:
    return path if '"' in name else f'{path}["{name}"]'


def _given_field(known: StructType, given: StructField) -> StructField:
    before = {name.lower(): field for name, field in _by_name(known).items()}.get(
        given.name.lower()
    )
    if before is None:
        return StructField(given.name, _nullable(given.dataType))
    if before.name != given.name:
        raise InvalidRequest(
            "the table has this field in another spelling; fields are taken by their exact name. "
            f"field={given.name} column={before.name}"
        )
    return StructField(given.name, _given_type(before.dataType, given.dataType, given.name))


def _given_type(known: DataType, given: DataType, name: str) -> DataType:
    if isinstance(known, StructType) and isinstance(given, StructType):
        return StructType([_given_field(known, field) for field in given.fields])
    if isinstance(known, ArrayType) and isinstance(given, ArrayType):
        return ArrayType(_given_type(known.elementType, given.elementType, name))
    if isinstance(known, MapType) and isinstance(given, MapType):
        values = _given_type(known.valueType, given.valueType, name)
        return MapType(_given_type(known.keyType, given.keyType, name), values)
    given = _nullable(given)
    if known == given or _widens(known, given):
        return given
    if _widens(given, known):
        return known
    raise InvalidRequest(
        "the table's column has another type, which cannot become the given one without writing "
        f"the table anew. field={name} column={known.simpleString()} given={given.simpleString()}"
    )


def _widens(known: DataType, wanted: DataType) -> bool:
    if isinstance(known, StructType) and isinstance(wanted, StructType):
        return is_widened(known, wanted)
    if isinstance(known, ArrayType) and isinstance(wanted, ArrayType):
        return _widens(known.elementType, wanted.elementType)
    if isinstance(known, MapType) and isinstance(wanted, MapType):
        return _widens(known.keyType, wanted.keyType) or _widens(known.valueType, wanted.valueType)
    if isinstance(known, DecimalType) and isinstance(wanted, DecimalType):
        scale = wanted.scale - known.scale
        return known != wanted and 0 <= scale <= wanted.precision - known.precision
    return isinstance(wanted, _WIDER.get(type(known), ()))


def _by_name(schema: StructType) -> dict[str, StructField]:
    return {field.name: field for field in schema.fields}


def _fields(kind: DataType) -> Iterator[str]:
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield field.name
            yield from _fields(field.dataType)
    elif isinstance(kind, ArrayType):
        yield from _fields(kind.elementType)
    elif isinstance(kind, MapType):
        yield from _fields(kind.keyType)
        yield from _fields(kind.valueType)
