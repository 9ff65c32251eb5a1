"""ValueDecoder: framed values of several schemas to Python values, or to texts of JSON.

Values are split by `wire_format` and decoded schema by schema, each by its writer's schema or, for
Avro, resolved to a reader's. A value that does not decode is None, with the reason beside it.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import numpy as np
import pyarrow as pa

from sparklog.core.bounded_json import parse_json
from sparklog.core.errors import SparklogError
from sparklog.registry.formats.avro_limits import check_decodable, is_shallow
from sparklog.registry.model.schema import AVRO, JSON, PROTOBUF, SchemaContent
from sparklog.registry.model.subjects import DEFAULT_CONTEXT
from sparklog.registry.schema_source import SchemaSource
from sparklog.registry.wire_format import (
    VALUE_HEADER,
    Schema,
    SplitValues,
    message_indexes,
    split_values,
)

UNFRAMED: Final = "the value carries no id of a schema"
REASON_LENGTH_MAX: Final = 300
VALUE_BYTES_MAX: Final = 16 << 20
UNKNOWN_MAX: Final = 100
"""Ids without a schema that are looked up for one column: any bytes may claim to be an id."""

Decode = Callable[[bytes], Any]


class ValueDecoder:
    """Decodes columns of keys or values, and keeps a decoder for each schema. Not thread-safe."""

    def __init__(
        self,
        registry: SchemaSource,
        *,
        reader: SchemaContent | None = None,
        context: str = DEFAULT_CONTEXT,
        split: Callable[..., SplitValues] = split_values,
    ) -> None:
        """Read schemas from `registry`.

        Args:
            registry: where the schemas are.
            reader: an Avro schema that all Avro values are resolved to; None: each its own.
            context: the context of the ids.
            split: finds the schema and the payload of each value, with arguments as
                `wire_format.split_values`.
        """
        self._registry = registry
        self._reader = reader
        self._context = context
        self._split = split
        self._made: dict[tuple[Schema, bytes], Decode | str] = {}
        self._unknown = 0

    def values(
        self, values: pa.Array, headers: pa.Array | None = None, *, name: str = VALUE_HEADER
    ) -> tuple[list[Any], list[str | None]]:
        """Return the Python value of each row, and the reason of each that did not decode.

        A null has neither. Arguments as those of `wire_format.split_values`.

        Raises:
            SparklogError: the registry cannot be read now.
        """
        split = self._split(values, headers, name=name)
        self._unknown = 0
        found: list[Any] = [None] * len(values)
        reasons: list[str | None] = [None] * len(values)
        for row in np.flatnonzero((split.places < 0) & np.asarray(values.is_valid())).tolist():
            reasons[row] = UNFRAMED
        for place, schema in enumerate(split.schemas):
            rows = split.rows_of(place)
            decode = self._decoder(schema)
            payloads = split.payloads.take(pa.array(rows)).to_pylist()
            for row, payload in zip(rows.tolist(), payloads, strict=True):
                if payload is None:
                    continue
                if isinstance(decode, str):
                    reasons[row] = decode
                    continue
                try:
                    found[row] = decode(payload)
                except Exception as error:  # a library's, for bytes from outside
                    reasons[row] = f"{type(error).__name__}: {error}"[:REASON_LENGTH_MAX]
        return found, reasons

    def json_texts(
        self, values: pa.Array, headers: pa.Array | None = None, *, name: str = VALUE_HEADER
    ) -> tuple[pa.Array, pa.Array]:
        """Return the JSON text of each row, and the reasons, as columns of text. See `values`."""
        found, reasons = self.values(values, headers, name=name)
        texts = []
        for row, (value, valid) in enumerate(
            zip(found, values.is_valid().to_pylist(), strict=True)
        ):
            try:
                text = json_text(value) if valid and reasons[row] is None else None
            except (TypeError, ValueError, RecursionError) as error:
                text, reasons[row] = None, f"no JSON: {error}"[:REASON_LENGTH_MAX]
            texts.append(text)
        return pa.array(texts, pa.string()), pa.array(reasons, pa.string())

    def _decoder(self, schema: tuple[Schema, bytes]) -> Decode | str:
        known = self._made.get(schema)
        if known is None:
            content = self._content(schema[0]) if self._unknown < UNKNOWN_MAX else None
            if content is None:  # it may be registered yet, so it is not kept
                self._unknown += 1
                return f"no schema is registered: {schema[0]}"
            try:
                known = self._built(content, schema[1])
            except SparklogError as error:
                known = str(error)[:REASON_LENGTH_MAX]
            except Exception as error:  # a library's, for a schema from outside
                known = f"the schema cannot be used: {error}"[:REASON_LENGTH_MAX]
            self._made[schema] = known
        return known

    def _content(self, schema: Schema) -> SchemaContent | None:
        if isinstance(schema, int):
            return self._registry.content(self._context, schema)
        return self._registry.content_of_guid(schema)

    def _built(self, content: SchemaContent, indexes: bytes) -> Decode:
        if content.schema_type == JSON:
            return lambda data: parse_json(data, "a value", bytes_max=VALUE_BYTES_MAX)
        if content.schema_type == PROTOBUF:
            return _protobuf_decoder(self._registry, content, indexes)
        chosen = self._reader
        resolved = chosen if chosen is not None and chosen.schema_type == AVRO else None
        kinds = [self._registry.parsed(one).schema.type for one in (content, resolved) if one]
        for kind in kinds:
            check_decodable(kind)
        return _avro_decoder(
            avro_schema(self._registry, content),
            None if resolved is None else avro_schema(self._registry, resolved),
            is_shallow=all(map(is_shallow, kinds)),
        )


def avro_schema(registry: SchemaSource, content: SchemaContent) -> Any:
    """Return an Avro schema as fastavro parses it, with the types it refers to.

    Raises:
        RegistryRefused: a reference leads nowhere.
    """
    from fastavro import parse_schema  # noqa: PLC0415 - of the extra `registry`

    names: dict[str, Any] = {}
    for text in registry.referred(content).values():
        parse_schema(parse_json(text, "an Avro schema"), named_schemas=names)
    return parse_schema(parse_json(content.text, "an Avro schema"), named_schemas=names)


def _avro_decoder(writer: Any, reader: Any, *, is_shallow: bool) -> Decode:
    """Return a decoder. Deep values need Python's own reader, which raises RecursionError."""
    if is_shallow:
        from fastavro import schemaless_reader  # noqa: PLC0415
    else:
        from fastavro._read_py import schemaless_reader  # noqa: PLC0415

    def decode(data: bytes) -> Any:
        given = io.BytesIO(data)
        found = schemaless_reader(given, writer, reader)
        if given.tell() != len(data):
            raise ValueError(f"{len(data) - given.tell()} bytes follow the value")
        return found

    return decode


def _protobuf_decoder(registry: SchemaSource, content: SchemaContent, indexes: bytes) -> Decode:
    from google.protobuf import json_format, message_factory  # noqa: PLC0415 - of the extra

    from sparklog.registry.formats.protobuf import pool_of  # noqa: PLC0415

    schema = registry.parsed(content).schema
    file = pool_of(schema).FindFileByName(schema.file.name)
    top = list(file.message_types_by_name.values())
    classes: dict[tuple[int, ...], Any] = {}

    def message_class(path: tuple[int, ...]) -> Any:
        if path not in classes:
            found = top[path[0]]
            for index in path[1:]:
                found = found.nested_types[index]
            classes[path] = message_factory.GetMessageClass(found)
        return classes[path]

    def decode(data: bytes) -> Any:
        path, start = message_indexes(indexes or data)
        if any(index < 0 for index in path):
            raise ValueError("a message index is negative")
        message = message_class(path)()
        message.ParseFromString(data if indexes else data[start:])
        return json_format.MessageToDict(
            message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )

    return decode


def json_text(value: Any) -> str:
    """Return a decoded value as JSON: bytes in base64, times in ISO 8601, decimals as texts."""
    return json.dumps(
        value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain
    )


def _plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    raise TypeError(f"not a value of JSON: {type(value).__name__}")
