"""SchemaContent: a schema with its references, metadata and rules, and what identifies it.

Contents that are equal have one id in a context, and one GUID everywhere. The GUID derives from the
content, so registries that never met agree about it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeGuard
from uuid import UUID

from sparklog.core.bounded_json import parse_json
from sparklog.registry.model.refusal import (
    INVALID_SCHEMA,
    SCHEMA_TOO_LARGE,
    UNPROCESSABLE,
    RegistryRefused,
)
from sparklog.registry.model.subjects import checked_subject

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"
SCHEMA_TYPES: Final = (JSON, PROTOBUF, AVRO)
"""In the order in which Confluent's registry lists them."""
TEXT_BYTES_MAX: Final = 1_000_000
"""A record of the topic holds the text; Kafka's records have at most 1 MiB by default."""
EXTRA_BYTES_MAX: Final = 100_000
"""Limit for metadata, and for rules."""
REFERENCES_MAX: Final = 100
VERSION_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """The use of another schema: an import, a `$ref` or the name of a type."""

    name: str
    subject: str
    version: int

    def document(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


@dataclass(frozen=True)
class SchemaContent:
    """A schema, apart from its subject, version and id."""

    schema_type: str
    text: str
    references: tuple[SchemaReference, ...] = ()
    metadata: str | None = None
    """A JSON object as text; the registry keeps it and reads nothing from it."""
    rule_set: str | None = None
    """A JSON object as text; clients apply it."""

    @cached_property
    def guid(self) -> str:
        """Return the GUID, in the usual spelling of a UUID."""
        parts = [self.schema_type, self.text, self.metadata or "", self.rule_set or ""]
        parts += [f"{ref.name}\0{ref.subject}\0{ref.version}" for ref in self.references]
        digest = hashlib.md5(usedforsecurity=False)
        for part in parts:
            data = part.encode()
            digest.update(len(data).to_bytes(8, "big") + data)
        return str(UUID(bytes=digest.digest()))

    def document(self) -> dict[str, Any]:
        """Return the JSON object without subject, version and id."""
        found: dict[str, Any] = {"schemaType": self.schema_type}
        if self.references:
            found["references"] = [ref.document() for ref in self.references]
        if self.metadata is not None:
            found["metadata"] = parse_json(self.metadata, "metadata")
        if self.rule_set is not None:
            found["ruleSet"] = parse_json(self.rule_set, "ruleSet")
        found["schema"] = self.text
        return found


def compact_json(value: Any) -> str:
    """Return JSON without blanks, in the order given."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def read_content(document: Mapping[str, Any]) -> SchemaContent:
    """Return the content that a request or a record describes. The text is not parsed here.

    Raises:
        RegistryRefused: a field of a wrong type, or over a limit.
    """
    text = document.get("schema")
    if not isinstance(text, str) or not text.strip():
        raise RegistryRefused(UNPROCESSABLE, "Empty schema")
    schema_type = document.get("schemaType") or AVRO
    if schema_type not in SCHEMA_TYPES:
        raise RegistryRefused(INVALID_SCHEMA, f"Invalid schema type {str(schema_type)[:40]!r}")
    if len(text) > TEXT_BYTES_MAX or len(text.encode("utf-8", "replace")) > TEXT_BYTES_MAX:
        raise RegistryRefused(
            SCHEMA_TOO_LARGE, f"The schema is too large: at most {TEXT_BYTES_MAX} bytes"
        )
    if not is_text(document):
        raise RegistryRefused(UNPROCESSABLE, "The request is not UTF-8 text")
    return SchemaContent(
        schema_type,
        text,
        _references(document.get("references")),
        _extra(document, "metadata"),
        _extra(document, "ruleSet"),
    )


def _references(given: Any) -> tuple[SchemaReference, ...]:
    if given is None:
        return ()
    if not isinstance(given, list) or len(given) > REFERENCES_MAX:
        raise RegistryRefused(
            INVALID_SCHEMA, f"Invalid references: a list of at most {REFERENCES_MAX}"
        )
    found = []
    for one in given:
        if not isinstance(one, Mapping):
            raise RegistryRefused(INVALID_SCHEMA, "Invalid references: not objects")
        name, subject, version = (one.get(field) for field in ("name", "subject", "version"))
        if not (isinstance(name, str) and name and isinstance(subject, str)):
            raise RegistryRefused(INVALID_SCHEMA, "Invalid references: name and subject are texts")
        if not is_whole(version) or not (version == -1 or 1 <= version <= VERSION_MAX):
            raise RegistryRefused(INVALID_SCHEMA, "Invalid references: version is a number")
        found.append(SchemaReference(name, checked_subject(subject), version))
    return tuple(found)


def is_text(document: Mapping[str, Any]) -> bool:
    """Return False if a document has half a surrogate pair, which no bytes can store."""
    try:
        compact_json(document).encode()
    except UnicodeEncodeError:
        return False
    return True


def is_whole(value: Any) -> TypeGuard[int]:
    """Return True for a whole number of JSON; a boolean is none."""
    return isinstance(value, int) and not isinstance(value, bool)


def _extra(document: Mapping[str, Any], field: str) -> str | None:
    given = document.get(field)
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise RegistryRefused(UNPROCESSABLE, f"{field} is not an object")
    text = compact_json(given)
    if len(text) > EXTRA_BYTES_MAX:
        raise RegistryRefused(UNPROCESSABLE, f"{field} is too large: at most {EXTRA_BYTES_MAX}")
    return text if given else None


@dataclass(frozen=True, slots=True)
class SubjectVersion:
    """A version of a subject."""

    subject: str
    version: int
    schema_id: int
    content: SchemaContent
    deleted: bool = False

    def document(self) -> dict[str, Any]:
        """Return the JSON object of Confluent's API; `schemaType` is left out for Avro."""
        found = {
            "subject": self.subject,
            "version": self.version,
            "id": self.schema_id,
            "guid": self.content.guid,
            **self.content.document(),
        }
        return plain_avro(found)


def plain_avro(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document without `schemaType` where that is Avro, as old clients expect."""
    if document.get("schemaType") == AVRO:
        del document["schemaType"]
    return document
