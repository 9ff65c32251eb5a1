"""The view `registry.topic`: the fields of values that carry the id of a schema.

The fields are those of the subject `topic-value`, and of other schemas that some of the oldest and
newest values carry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from sparklog.core.errors import InvalidRequest
from sparklog.registry.formats.parsed import ParsedSchema
from sparklog.registry.model.refusal import RegistryRefused
from sparklog.registry.model.schema import PROTOBUF, SchemaContent
from sparklog.registry.model.subjects import DEFAULT_CONTEXT
from sparklog.registry.schema_source import SchemaSource
from sparklog.registry.wire_format import Schema, message_indexes, split_values
from sparklog.sql.decoded_views import OF_RECORD, column_names, quoted
from sparklog.sql.registry_columns import DECODE_ERROR, DECODED_KEY, DecodedColumns
from sparklog.sql.registry_fields import Fields, merged_fields

SCHEMAS_MAX: Final = 1_000
"""Schemas of one sample that are looked up."""
FIRST_MESSAGE: Final = (0,)

Used = tuple[SchemaContent, tuple[int, ...]]
"""A schema, and the indexes of a message in it."""


def used_fields(topic: str, values: pa.Array, headers: pa.Array, schemas: SchemaSource) -> Fields:
    """Return the fields of a topic's values.

    Args:
        topic: gives the name of the subject.
        values: some of its values.
        headers: of the same records.
        schemas: the registry.

    Raises:
        InvalidRequest: no schema gives fields. SparklogError: the registry cannot be read now.
    """
    contents = [(one, FIRST_MESSAGE) for one in schemas.contents_of_subject(f"{topic}-value")]
    used = dict.fromkeys((*contents, *_carried(values, headers, schemas)))
    fields = merged_fields(_parsed(used, schemas))
    if not fields:
        raise InvalidRequest(
            "no schema gives the table columns: the registry has no subject "
            f"{topic}-value, and no value that was looked at carries the id of a schema; read the "
            f"topic itself. topic={topic}"
        )
    return fields


def registry_view(source: str, columns: DecodedColumns) -> str:
    """Return the SELECT of `registry.topic` over the table with the decoded columns.

    Args:
        source: the table.
        columns: of the table.
    """
    own = ", ".join(map(quoted, OF_RECORD))
    names = column_names(columns.fields, {DECODED_KEY})
    typed = "".join(
        f"{column}{'::JSON' if columns.fields[field].is_json else ''} AS {quoted(names[field])}, "
        for column, field in columns.names.items()
    )
    return (
        f"SELECT {own}, {typed}headers, {DECODED_KEY}::JSON AS {DECODED_KEY}, {DECODE_ERROR} "  # noqa: S608 - quoted
        f"FROM main.{quoted(source)}"
    )


def _carried(values: pa.Array, headers: pa.Array, schemas: SchemaSource) -> Iterator[Used]:
    """Yield the registered schemas that values carry."""
    split = split_values(values, headers)
    for place, (schema, of_header) in enumerate(split.schemas[:SCHEMAS_MAX]):
        content = _content(schema, schemas)
        if content is None:
            continue
        if content.schema_type != PROTOBUF:
            yield content, FIRST_MESSAGE
            continue
        payloads = split.payloads.take(pa.array(split.rows_of(place)))
        for payload in [of_header] if of_header else payloads.to_pylist():
            try:
                yield content, message_indexes(payload)[0]
            except ValueError:
                continue


def _content(schema: Schema, schemas: SchemaSource) -> SchemaContent | None:
    if isinstance(schema, int):
        return schemas.content(DEFAULT_CONTEXT, schema)
    return schemas.content_of_guid(schema)


def _parsed(
    used: dict[Used, None], schemas: SchemaSource
) -> Iterator[tuple[ParsedSchema, tuple[int, ...]]]:
    for content, indexes in used:
        try:
            yield schemas.parsed(content), indexes
        except RegistryRefused:  # its values do not decode, each with the reason
            continue
