"""Framed values of Protobuf as one message, in the fields of one schema of their subject.

Values of other versions are read as Protobuf does, by the numbers of fields. All that a task needs
for that is one value, which can be sent to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from sparklog.core.errors import InvalidRequest
from sparklog.registry.decoder import UNFRAMED
from sparklog.registry.formats.protobuf import ProtobufSchema, pool_of
from sparklog.registry.formats.protobuf_columns import MessageColumns
from sparklog.registry.wire_format import Schema, message_indexes, split_values

NO_SCHEMA: Final = "the value carries the id of no schema of the subject"
UNREADABLE: Final = "the newest schema cannot read values of this version"
OTHER_MESSAGE: Final = "the value is another message of its schema"
VALUE_BYTES_MAX: Final = 16 << 20
KEPT_MAX: Final = 4
"""Readings whose descriptors are kept."""

Path = tuple[int, ...]
"""The indexes of a message in its file, as values carry them."""


@dataclass(frozen=True, slots=True)
class VersionPath:
    """The place of the message in a version of the subject."""

    keys: tuple[str, ...]
    """The ids of the version that values carry, in hexadecimal digits."""
    path: Path | None
    """None: it has no such message."""
    readable: bool
    """False if the schema that gives the fields cannot read its values."""


@dataclass(frozen=True, slots=True)
class ProtobufReading:
    """The message to read, and the versions that values may have."""

    file: bytes
    """The serialized descriptor of the schema that gives the fields."""
    referred: tuple[bytes, ...]
    """Those of the files that it imports from other subjects, each after those it needs."""
    message: str
    """The full name."""
    versions: tuple[VersionPath, ...]

    def columns(self) -> MessageColumns:
        """Return the columns of the message. Raises RegistryRefused: no fields, or too many."""
        return _columns_of(self)


def reading_of(
    schema: ProtobufSchema, message: str, versions: tuple[VersionPath, ...]
) -> ProtobufReading:
    """Return how to read `message` in the fields of a parsed schema."""
    referred = tuple(one.SerializeToString() for one in schema.referred)
    return ProtobufReading(schema.file.SerializeToString(), referred, message, versions)


def version_key(schema: Schema) -> str:
    """Return an id or a GUID as values carry it, in hexadecimal digits."""
    return f"00{schema:08X}" if isinstance(schema, int) else f"01{UUID(schema).hex.upper()}"


def only_message(schema: ProtobufSchema) -> str:
    """Return the full name of the one message that is no part of another in its file.

    Raises:
        InvalidRequest: there are several, or none.
    """
    messages = _top_messages(schema)
    used = {
        kind
        for name, message in messages.items()
        for field in _fields_in(message)
        if (kind := field.type_name.lstrip(".")) != name
    }
    found = [name for name in messages if name not in used]
    if len(found) != 1:
        raise InvalidRequest(
            "the schema has several messages; name that of the values (--message NAME, FILE#NAME). "
            f"messages={','.join(found or messages)[:1000]}"
        )
    return found[0]


def path_of(schema: ProtobufSchema, message: str) -> Path | None:
    """Return the indexes of a message by its full name, or None."""
    package = f"{schema.file.package}." if schema.file.package else ""
    if not message.startswith(package):
        return None
    path: list[int] = []
    inner = list(schema.file.message_type)
    for name in message.removeprefix(package).split("."):
        found = next((n for n, one in enumerate(inner) if one.name == name), None)
        if found is None:
            return None
        path.append(found)
        inner = list(inner[found].nested_type)
    return tuple(path)


def read_messages(
    reading: ProtobufReading, values: pa.Array, headers: pa.Array | None
) -> tuple[pa.Array, list[str | None]]:
    """Return the fields of each value as a struct, and the reason of each value without.

    A null has neither. Arguments as those of `wire_format.split_values`.
    """
    split = split_values(values, headers)
    bodies: list[bytes | None] = [None] * len(values)
    reasons: list[str | None] = [None] * len(values)
    for row in (split.places < 0).nonzero()[0].tolist():
        if values[row].is_valid:
            reasons[row] = UNFRAMED
    versions = {key: one for one in reading.versions for key in one.keys}
    for place, (schema, of_header) in enumerate(split.schemas):
        rows = split.rows_of(place)
        body = _body_reader(versions.get(version_key(schema)), of_header)
        payloads = split.payloads.take(pa.array(rows)).to_pylist()
        for row, payload in zip(rows.tolist(), payloads, strict=True):
            if payload is not None:
                bodies[row], reasons[row] = body(payload)
    fields, wrong = reading.columns().read(bodies)
    return fields, [one or other for one, other in zip(reasons, wrong, strict=True)]


def _body_reader(
    version: VersionPath | None, of_header: bytes
) -> Callable[[bytes], tuple[bytes | None, str | None]]:
    """Return a function that returns a value's message, or the reason why there is none."""
    if version is None or not version.readable:
        reason = NO_SCHEMA if version is None else UNREADABLE
        return lambda _: (None, reason)
    wanted = version.path

    def body(payload: bytes) -> tuple[bytes | None, str | None]:
        if len(payload) > VALUE_BYTES_MAX:
            return None, "the value is too large"
        try:
            path, start = message_indexes(of_header or payload)
        except ValueError as error:
            return None, str(error)
        if path != wanted:
            return None, OTHER_MESSAGE
        return (payload if of_header else payload[start:]), None

    return body


@lru_cache(KEPT_MAX)
def _columns_of(reading: ProtobufReading) -> MessageColumns:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # noqa: PLC0415 - of an extra

    read = FileDescriptorProto.FromString
    schema = ProtobufSchema(read(reading.file), tuple(map(read, reading.referred)), "")
    return MessageColumns(pool_of(schema).FindMessageTypeByName(reading.message))


def _top_messages(schema: ProtobufSchema) -> dict[str, Any]:
    package = f"{schema.file.package}." if schema.file.package else ""
    return {f"{package}{one.name}": one for one in schema.file.message_type}


def _fields_in(message: Any) -> Iterator[Any]:
    """Yield the fields of a message, and those of the messages that are declared in it."""
    yield from message.field
    for one in message.nested_type:
        yield from _fields_in(one)
