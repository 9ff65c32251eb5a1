"""Decodes a peer's bytes to kio entities. On any bytes, it returns an entity or raises.

A decoder is a tree of closures compiled once per entity type. One `struct` reads each run of
fixed-width fields. Record bytes stay bytes.

MESSAGES-DECODER-1: A claimed length never reserves memory: it is compared with the remaining
    bytes.
MESSAGES-DECODER-2: The number of array elements of one message is bounded, for any message size.
MESSAGES-DECODER-3: The only exception is `Malformed`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from itertools import groupby
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from sparklog.protocol.messages.schema import FIXED, EntityShape, FieldShape, Version, shape_of

ELEMENTS_MAX: Final = 250_000
"""Array elements of one message:

over a hundred thousand partitions, decoded in about a second. Kafka sets no such limit; a 100 MiB
frame of empty strings would need gigabytes here.
"""
TEXT_BYTES_MAX: Final = 0x7FFF
"""Longest text of a message, also where its length field could hold more: Kafka rejects it too."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NO_UUID: Final = bytes(16)
_NO_TAGS: Final = b"\0"
_UUIDS_KEPT: Final = 4096
_ERROR_CODES: Final = {int(code): code for code in ErrorCode}
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_VARINT_BITS_MAX: Final = 35


class Malformed(ValueError):
    """The bytes are not the expected message."""


class Cursor:
    """Bytes and the read position."""

    __slots__ = ("at", "data", "elements", "elements_max")

    def __init__(self, data: bytes, at: int = 0, elements_max: int = ELEMENTS_MAX) -> None:
        """Read `data` from `at` on; its arrays have at most `elements_max` elements together."""
        self.data = data
        self.at = at
        self.elements = 0
        self.elements_max = elements_max

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        start = self.at
        end = start + size
        if size < 0 or end > len(self.data):
            raise Malformed(
                f"the message ends before its field does. at={start} needed={size} "
                f"size={len(self.data)}"
            )
        self.at = end
        return self.data[start:end]

    def varint(self) -> int:
        """Return the next unsigned varint of at most 32 bits."""
        data, at = self.data, self.at
        value = shift = 0
        try:
            if data[at] < 0x80:  # the usual case
                self.at = at + 1
                return data[at]
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift >= _VARINT_BITS_MAX:
                    raise Malformed(f"a varint is longer than five bytes. at={self.at}")
        except IndexError:
            raise Malformed(f"the message ends inside a varint. at={self.at}") from None
        self.at = at
        return value

    def count(self, claimed: int) -> int:
        """Return an array's claimed length if the message can hold it."""
        left = len(self.data) - self.at
        if not 0 <= claimed <= left:
            raise Malformed(f"an array is longer than its message. claimed={claimed} left={left}")
        self.elements += claimed
        if self.elements > self.elements_max:
            raise Malformed(
                f"the message has too many array elements; send less at once. "
                f"elements={self.elements} limit={self.elements_max}"
            )
        return claimed


Decode = Callable[[Cursor], Any]


@cache
def decoder(entity_type: Any, version: Version | None = None) -> Decode:
    """Return the function that decodes one entity of a type; it raises only `Malformed`.

    `version` is None for kio's types, of which each is one version.
    """
    shape = shape_of(entity_type, version)
    steps = _steps(shape, version)
    first_tagged = len(shape.fields)
    tagged = {
        f.tag: (first_tagged + i, _field_decoder(f, version, flexible=True))
        for i, f in enumerate(shape.tagged)
    }
    unsent = [*(f.default for f in shape.tagged), *(value for _, value in shape.absent)]
    flexible = shape.flexible
    # A frozen dataclass sets its fields by name, one call each: setting slots costs half as much.
    make = entity_type.__new__
    names = [f.name for f in (*shape.fields, *shape.tagged)] + [name for name, _ in shape.absent]
    slots = [getattr(entity_type, name).__set__ for name in names]

    def decode(cursor: Cursor) -> Any:
        values: list[Any] = []
        for step in steps:
            step(cursor, values)
        if unsent:
            values += unsent
        if flexible:
            if cursor.data[cursor.at : cursor.at + 1] == _NO_TAGS:
                cursor.at += 1
            else:
                _read_tags(cursor, tagged, values)
        entity = make(entity_type)
        for put, value in zip(slots, values, strict=True):
            put(entity, value)
        return entity

    return decode


def _steps(
    shape: EntityShape, version: Version | None
) -> list[Callable[[Cursor, list[Any]], None]]:
    """Return one step per run of fixed-width fields, and one per other field."""
    steps: list[Callable[[Cursor, list[Any]], None]] = []
    for fixed, run in groupby(shape.fields, key=lambda f: f.struct_code is not None):
        members = tuple(run)
        if fixed:
            steps.append(_fixed_step(members))
        else:
            steps.extend(_field_step(f, version, flexible=shape.flexible) for f in members)
    return steps


def _fixed_step(run: tuple[FieldShape, ...]) -> Callable[[Cursor, list[Any]], None]:
    layout = struct.Struct(">" + "".join(f.struct_code or "" for f in run))
    codes = tuple(i for i, f in enumerate(run) if f.kafka_type == "error_code")

    size, unpack_from = layout.size, layout.unpack_from

    def read(cursor: Cursor, values: list[Any]) -> None:
        start = cursor.at
        if start + size > len(cursor.data):
            cursor.take(size)
        cursor.at = start + size
        found = unpack_from(cursor.data, start)
        if codes:
            found = tuple(_error_code(v) if i in codes else v for i, v in enumerate(found))
        values.extend(found)

    return read


def _field_step(
    field: FieldShape, version: Version | None, *, flexible: bool
) -> Callable[[Cursor, list[Any]], None]:
    decode = _field_decoder(field, version, flexible=flexible)

    def read(cursor: Cursor, values: list[Any]) -> None:
        values.append(decode(cursor))

    return read


def _read_tags(cursor: Cursor, known: dict[int | None, Any], values: list[Any]) -> None:
    for _ in range(cursor.count(cursor.varint())):
        tag, size = cursor.varint(), cursor.varint()
        end = cursor.at + size
        if end > len(cursor.data):
            raise Malformed(f"a tagged field is longer than its message. tag={tag} size={size}")
        if tag in known:
            place, decode = known[tag]
            values[place] = decode(cursor)
            if cursor.at != end:
                raise Malformed(f"a tagged field is not as long as it says. tag={tag} size={size}")
        cursor.at = end


def _field_decoder(field: FieldShape, version: Version | None, *, flexible: bool) -> Decode:
    if field.structure is not None:
        element = decoder(field.structure, version)
        if field.nullable and not field.is_array:
            element = _nullable_structure(element)
    else:
        nullable = field.nullable and not field.is_array
        element = _element_decoder(field.kafka_type, flexible=flexible, nullable=nullable)
    return _array(element, field, flexible=flexible) if field.is_array else element


def _nullable_structure(element: Decode) -> Decode:
    def decode(cursor: Cursor) -> Any:
        return element(cursor) if cursor.take(1)[0] < 0x80 else None

    return decode


def _array(element: Decode, field: FieldShape, *, flexible: bool) -> Decode:
    def decode(cursor: Cursor) -> tuple[Any, ...] | None:
        claimed = cursor.varint() - 1 if flexible else _old_length(cursor, _INT32)
        if claimed == -1:
            if field.nullable:
                return None
            raise Malformed(f"an array is null that may not be. field={field.name}")
        return tuple([element(cursor) for _ in range(cursor.count(claimed))])

    return decode


def _old_length(cursor: Cursor, layout: struct.Struct) -> int:
    return int(layout.unpack(cursor.take(layout.size))[0])


def _element_decoder(kafka_type: str, *, flexible: bool, nullable: bool) -> Decode:
    if kafka_type == "string":
        return _text(flexible=flexible, nullable=nullable)
    if kafka_type in ("bytes", "records"):
        return _bytes(flexible=flexible, nullable=nullable)
    if kafka_type == "error_code":
        return lambda cursor: _error_code(_INT16.unpack(cursor.take(2))[0])
    if kafka_type in _CONVERTED:
        return _CONVERTED[kafka_type]
    layout = struct.Struct(">" + FIXED[kafka_type])
    return lambda cursor: layout.unpack(cursor.take(layout.size))[0]


def _bytes(*, flexible: bool, nullable: bool, legacy: struct.Struct = _INT32) -> Decode:
    def decode(cursor: Cursor) -> bytes | None:
        size = cursor.varint() - 1 if flexible else _old_length(cursor, legacy)
        if size == -1 and nullable:
            return None
        return cursor.take(size)

    return decode


def _text(*, flexible: bool, nullable: bool) -> Decode:
    read = _bytes(flexible=flexible, nullable=nullable, legacy=_INT16)

    def decode(cursor: Cursor) -> str | None:
        data = read(cursor)
        if data is not None and len(data) > TEXT_BYTES_MAX:
            raise Malformed(f"a string is too long. size={len(data)} at={cursor.at}")
        try:
            return None if data is None else str(data, "utf-8")
        except UnicodeDecodeError:
            raise Malformed(f"a string is not UTF-8. at={cursor.at}") from None

    return decode


def nullable_text(cursor: Cursor) -> str | None:
    """Return the next nullable string of the old form: the client id of every request header."""
    text: str | None = _CLIENT_ID(cursor)
    return text


_CLIENT_ID: Final = _text(flexible=False, nullable=True)


def skip_tags(cursor: Cursor) -> None:
    """Skip tagged fields."""
    if cursor.data[cursor.at : cursor.at + 1] == _NO_TAGS:
        cursor.at += 1
    else:
        _read_tags(cursor, {}, [])


def _error_code(number: int) -> ErrorCode:
    """Return a code; one of a newer Kafka is an unknown error, as in Kafka's clients."""
    return _ERROR_CODES.get(number, ErrorCode.unknown_server_error)


def _uuid(cursor: Cursor) -> UUID | None:
    return _uuid_of(cursor.take(16))


@lru_cache(_UUIDS_KEPT)
def _uuid_of(data: bytes) -> UUID | None:
    # Messages repeat the same few topics.
    return None if data == _NO_UUID else UUID(bytes=data)


def _duration(layout: struct.Struct) -> Decode:
    def decode(cursor: Cursor) -> timedelta:
        milliseconds = layout.unpack(cursor.take(layout.size))[0]
        try:
            return timedelta(milliseconds=milliseconds)
        except OverflowError:
            raise Malformed(f"a duration is out of range. ms={milliseconds}") from None

    return decode


def _instant(cursor: Cursor) -> datetime | None:
    milliseconds = _INT64.unpack(cursor.take(8))[0]
    if milliseconds == -1:
        return None
    try:
        if milliseconds >= 0:
            return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        pass
    raise Malformed(f"a time is out of range. ms={milliseconds}")


_CONVERTED: Final[dict[str, Decode]] = {
    "uuid": _uuid,
    "timedelta_i32": _duration(_INT32),
    "timedelta_i64": _duration(_INT64),
    "datetime_i64": _instant,
}
