"""The views `registry.topic` and `bare.topic`: the fields of values that have schemas.

The fields of `registry.topic` are those of the subject `topic-value`, and of other schemas that
some of the oldest and newest values carry.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from sparklog.core.errors import InvalidRequest
from sparklog.registry.bare_schema import BareSchema
from sparklog.registry.decoder import ValueDecoder
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


def registry_columns(
    topic: str, sample: pa.RecordBatch, schemas: SchemaSource, *, strict: bool
) -> DecodedColumns:
    """Return the columns of `registry.topic`.

    Args:
        topic: the topic.
        sample: values and headers of some records.
        schemas: the registry.
        strict: see `DecodedColumns`.

    Raises:
        InvalidRequest: no schema gives fields. SparklogError: the registry cannot be read now.
    """
    fields = used_fields(topic, sample.column("value"), sample.column("headers"), schemas)
    return DecodedColumns(f"registry.{topic}", fields, lambda: ValueDecoder(schemas), strict=strict)


def bare_columns(topic: str, schema: BareSchema, *, strict: bool) -> DecodedColumns:
    """Return the columns of `bare.topic`, whose values have one schema and carry no id.

    Raises:
        InvalidRequest: the schema has no fields.
    """
    (content,) = schema.contents_of_subject(topic)
    fields = merged_fields([(schema.parsed(content), schema.path)])
    if not fields:
        raise InvalidRequest(f"the schema gives the table no columns. topic={topic}")
    return DecodedColumns(
        f"bare.{topic}",
        fields,
        lambda: ValueDecoder(schema, split=schema.split),
        strict=strict,
        has_keys=False,
    )


def registry_view(source: str, columns: DecodedColumns) -> str:
    """Return the SELECT of a view over the table with the decoded columns.

    Args:
        source: the table.
        columns: of the table.
    """
    own = ", ".join(map(quoted, OF_RECORD))
    names = column_names(columns.fields, {DECODED_KEY} if columns.has_keys else ())
    keys = f"{DECODED_KEY}::JSON AS {DECODED_KEY}, " if columns.has_keys else ""
    typed = "".join(
        f"{column}{'::JSON' if columns.fields[field].is_json else ''} AS {quoted(names[field])}, "
        for column, field in columns.names.items()
    )
    return (
        f"SELECT {own}, {typed}headers, {keys}{DECODE_ERROR} "  # noqa: S608 - quoted
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
