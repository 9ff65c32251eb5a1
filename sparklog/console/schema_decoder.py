"""SchemaDecoding: framed keys and values of records by the schemas that their ids name.

The registry's own decoder does the work. A value over `DECODED_BYTES_MAX` is not decoded. Without a
registry, or without the packages of its formats, a page shows the bytes and says why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.core.errors import SparklogError
from sparklog.registry.decoder import ValueDecoder, json_text
from sparklog.registry.model.subjects import DEFAULT_CONTEXT
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.wire_format import KEY_HEADER, VALUE_HEADER, Schema, split_values

logger = logging.getLogger(__name__)

DECODED_BYTES_MAX: Final = 64 * 1024
_HEADERS: Final = {"key": KEY_HEADER, "value": VALUE_HEADER}


@dataclass(frozen=True, slots=True)
class DecodedPart:
    """A framed key or value."""

    schema: Schema
    """The id, or the GUID of a header."""
    kind: str
    """`avro`, `json` or `protobuf`; empty if nothing was decoded."""
    text: str
    """JSON."""
    problem: str
    """The reason if nothing was decoded."""


class SchemaDecoding:
    """Decodes records for one request. Not thread-safe."""

    def __init__(self, registry: Callable[[], SchemaRegistry]) -> None:
        """Use the registry that `registry` returns, once a record is framed."""
        self._lookup = registry
        self._registry: SchemaRegistry | None = None
        self._decoder: ValueDecoder | None = None
        self._trouble = ""

    def parts(self, batch: pa.RecordBatch, name: str) -> list[DecodedPart | None]:
        """Return what the column `name`, `key` or `value`, has in each row; None if unframed."""
        given, headers = batch.column(name), batch.column("headers")
        small = pc.less_equal(pc.binary_length(given), DECODED_BYTES_MAX)
        column = pc.if_else(small, given, pa.scalar(None, given.type))
        split = split_values(column, headers, name=_HEADERS[name])
        if not split.schemas:
            return [None] * batch.num_rows
        values, reasons = self._values(column, headers, _HEADERS[name])
        found: list[DecodedPart | None] = []
        kinds = [self._kind(schema) for schema, _ in split.schemas]
        for row, place in enumerate(split.places.tolist()):
            if place < 0 or not column[row].is_valid:
                found.append(None)
                continue
            schema = split.schemas[place][0]
            found.append(_part(schema, kinds[place], values[row], reasons[row]))
        return found

    def _values(
        self, column: pa.Array, headers: pa.Array, header: str
    ) -> tuple[list[Any], list[str | None]]:
        try:
            if not self._trouble:
                if self._decoder is None:
                    self._registry = self._lookup()
                    self._decoder = ValueDecoder(self._registry)
                return self._decoder.values(column, headers, name=header)
        except SparklogError as error:
            self._trouble = f"the schemas cannot be read: {error}"
        except ImportError as error:
            logger.warning("schemas cannot be used. error=%r", error)
            self._trouble = "decoding needs pip install 'sparklog[registry]'"
        return [None] * len(column), [self._trouble] * len(column)

    def _kind(self, schema: Schema) -> str:
        if self._registry is None or self._trouble:
            return ""
        try:
            if isinstance(schema, int):
                content = self._registry.content(DEFAULT_CONTEXT, schema)
            else:
                content = self._registry.content_of_guid(schema)
        except SparklogError:
            return ""
        return "" if content is None else content.schema_type.lower()


def _part(schema: Schema, kind: str, value: Any, reason: str | None) -> DecodedPart:
    if reason is None:
        try:
            return DecodedPart(schema, kind, json_text(value), "")
        except (TypeError, ValueError, RecursionError) as error:
            reason = f"no JSON: {error}"
    return DecodedPart(schema, "", "", reason)
