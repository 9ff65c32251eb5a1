"""ParsedSchema: a schema of any format, parsed, and the comparison of two of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sparklog.registry.formats.avro import parse_avro
from sparklog.registry.formats.avro_compatibility import avro_differences
from sparklog.registry.formats.difference import Difference
from sparklog.registry.formats.json_compatibility import json_differences
from sparklog.registry.formats.json_schema import parse_json_schema
from sparklog.registry.formats.protobuf import parse_protobuf
from sparklog.registry.formats.protobuf_compatibility import protobuf_differences
from sparklog.registry.model.schema import AVRO, JSON, PROTOBUF, SchemaContent

_DIFFERENCES: Final[Mapping[str, Callable[[Any, Any], list[Difference]]]] = {
    AVRO: avro_differences,
    JSON: json_differences,
    PROTOBUF: protobuf_differences,
}


@dataclass(frozen=True, slots=True)
class ParsedSchema:
    """A parsed schema."""

    schema_type: str
    schema: Any
    """An AvroSchema, JsonSchema or ProtobufSchema."""
    canonical: str
    """The text that the registry stores: without what means nothing, such as blanks."""
    normalized: str
    """A text that schemas of one meaning share, as far as their order goes."""


def parse_schema(content: SchemaContent, referred: Mapping[str, str]) -> ParsedSchema:
    """Return a parsed schema.

    Args:
        content: the schema.
        referred: the texts of all schemas it refers to, directly or not, by the name of the
            reference. Each stands after those it needs.

    Raises:
        RegistryRefused: no valid schema.
    """
    if content.schema_type == AVRO:
        avro = parse_avro(content.text, list(referred.values()))
        return ParsedSchema(AVRO, avro, avro.canonical, avro.normalized)
    if content.schema_type == JSON:
        found = parse_json_schema(content.text, referred)
        return ParsedSchema(JSON, found, found.canonical, found.normalized)
    protobuf = parse_protobuf(content.text, referred)
    return ParsedSchema(PROTOBUF, protobuf, protobuf.canonical, protobuf.canonical)


def differences(reader: ParsedSchema, writer: ParsedSchema) -> list[Difference]:
    """Return why data of `writer` is not readable with `reader`; empty if it is.

    Raises:
        RegistryRefused: the schemas are too deep or too complex to be compared.
    """
    if reader.schema_type != writer.schema_type:
        text = f"The format has changed from {writer.schema_type} to {reader.schema_type}"
        return [Difference("SCHEMA_TYPE_CHANGED", "/", text)]
    return _DIFFERENCES[reader.schema_type](reader.schema, writer.schema)
