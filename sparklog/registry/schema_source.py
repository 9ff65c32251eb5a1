"""SchemaSource: gives a decoder its schemas, from a log or from another registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sparklog.registry.formats.parsed import ParsedSchema
    from sparklog.registry.model.schema import SchemaContent


class SchemaSource(Protocol):
    """Gives schemas by id, by GUID and by subject. Thread-safe."""

    def content(self, context: str, schema_id: int) -> SchemaContent | None:
        """Return the schema of an id, or None. Raises SparklogError: it cannot be read now."""

    def content_of_guid(self, guid: str) -> SchemaContent | None:
        """Return the schema of a GUID, or None. Raises as `content`."""

    def contents_of_subject(self, subject: str) -> Sequence[SchemaContent]:
        """Return the schemas of a subject's versions, in order. Raises as `content`."""

    def parsed(self, content: SchemaContent) -> ParsedSchema:
        """Return a schema, parsed. Raises RegistryRefused: it is not valid; and as `content`."""

    def referred(self, content: SchemaContent) -> dict[str, str]:
        """Return the texts that a schema needs, by name. Raises as `parsed`."""

    def close(self) -> None:
        """Release connections."""
