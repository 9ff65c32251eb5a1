"""BareSchema: the one schema of values that carry no id, which a person gives.

It is a source of schemas with a single one, for a decoder that takes each value as a payload.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from sparklog.core.errors import InvalidRequest
from sparklog.registry.formats.parsed import ParsedSchema, parse_schema
from sparklog.registry.model.schema import AVRO, JSON, PROTOBUF, SchemaContent, read_content
from sparklog.registry.protobuf_message import only_message, path_of
from sparklog.registry.wire_format import (
    NO_SCHEMA,
    VALUE_HEADER,
    SplitValues,
    encoded_indexes,
)

TYPE_OF_SUFFIX: Final = {".avsc": AVRO, ".json": JSON, ".proto": PROTOBUF}
_ID: Final = 0
"""Stands for the schema inside a decoder; no value carries it."""


class BareSchema:
    """A `SchemaSource` with one schema, and the split of values that all have it."""

    def __init__(self, schema_type: str, text: str, message: str | None = None) -> None:
        """Parse a schema.

        Args:
            schema_type: AVRO, JSON or PROTOBUF.
            text: the schema, without references to others.
            message: the full name of the Protobuf message; None is the only one of the schema.

        Raises:
            RegistryRefused: no valid schema. InvalidRequest: no such message, or several.
        """
        self._content = read_content({"schemaType": schema_type, "schema": text})
        self._parsed = parse_schema(self._content, {})
        self.path: tuple[int, ...] = (0,)
        """The indexes of the message in a Protobuf schema."""
        if schema_type == PROTOBUF:
            name = only_message(self._parsed.schema) if message is None else message
            path = path_of(self._parsed.schema, name)
            if path is None:
                raise InvalidRequest(f"the schema has no such message. message={name[:200]}")
            self.path = path
        elif message is not None:
            raise InvalidRequest(f"only Protobuf has messages. message={message[:200]}")

    def close(self) -> None:
        """Do nothing: there are no connections."""

    def content(self, context: str, schema_id: int) -> SchemaContent | None:
        """Return the schema."""
        return self._content

    def content_of_guid(self, guid: str) -> SchemaContent | None:
        """Return the schema."""
        return self._content

    def contents_of_subject(self, subject: str) -> Sequence[SchemaContent]:
        """Return the schema."""
        return [self._content]

    def parsed(self, content: SchemaContent) -> ParsedSchema:
        """Return the schema, parsed."""
        return self._parsed

    def referred(self, content: SchemaContent) -> dict[str, str]:
        """Return nothing: it refers to no others."""
        return {}

    def split(
        self,
        values: pa.Array,
        headers: pa.Array | None = None,
        *,
        name: str = VALUE_HEADER,
    ) -> SplitValues:
        """Return the values as payloads of the schema. Arguments as those of `split_values`."""
        places = np.where(np.asarray(values.is_valid()), 0, NO_SCHEMA).astype(np.int32)
        return SplitValues(((_ID, encoded_indexes(self.path)),), places, values)


def read_bare_schema(place: str) -> BareSchema:
    """Return the schema of a file: `orders.avsc`, `orders.json`, `orders.proto#shop.Order`.

    Raises:
        InvalidRequest: no such file, or another ending. RegistryRefused: no valid schema.
    """
    name, _, message = place.partition("#")
    path = Path(name)
    schema_type = TYPE_OF_SUFFIX.get(path.suffix.lower())
    if schema_type is None:
        raise InvalidRequest(
            "the file of a schema ends in .avsc (Avro), .json (JSON Schema) or .proto (Protobuf). "
            f"file={name[:200]}"
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the schema cannot be read: {error}") from error
    return BareSchema(schema_type, text, message or None)
