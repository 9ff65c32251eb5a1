"""Encodes kio entities to Kafka's protocol: the counterpart of `decoder`.

An encoder is a tree of closures compiled once per entity type; it appends to one bytearray. A value
that does not fit its field is a bug, so it raises Python's own error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

from sparklog.protocol.messages.schema import FIXED, FieldShape, Version, shape_of

Encode = Callable[[bytearray, Any], None]

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_NO_UUID: Final = bytes(16)
_MILLISECOND: Final = timedelta(milliseconds=1)
_NO_TIME_MS: Final = -1


def put_varint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 0x7F:
        out.append(0x80 | (value & 0x7F))
        value >>= 7
    out.append(value)


def put_entity(out: bytearray, entity: Any) -> None:
    """Append an entity."""
    entity_type: Any = type(entity)
    encoder(entity_type)(out, entity)


@cache
def encoder(entity_type: Any, version: Version | None = None) -> Encode:
    """Return the function that appends one entity of a type.

    `version` is None for kio's types, of which each is one version.
    """
    shape = shape_of(entity_type, version)
    steps: list[Encode] = []
    for fixed, run in groupby(shape.fields, key=lambda f: f.struct_code is not None):
        members = tuple(run)
        if fixed:
            steps.append(_fixed_step(members))
        else:
            steps.extend(_field_step(f, version, flexible=shape.flexible) for f in members)
    if shape.flexible:
        steps.append(_tags_step(shape.tagged, version))

    def encode(out: bytearray, entity: Any) -> None:
        for step in steps:
            step(out, entity)

    return encode


def _tags_step(fields: tuple[FieldShape, ...], version: Version | None) -> Encode:
    tagged = [
        (f.tag or 0, attrgetter(f.name), f.default, _field_encoder(f, version, flexible=True))
        for f in fields
    ]

    def put_tags(out: bytearray, entity: Any) -> None:
        sent = [
            (tag, value, put)
            for tag, get, default, put in tagged
            if (value := get(entity)) is not default and value != default
        ]
        put_varint(out, len(sent))
        for tag, value, put in sent:
            data = bytearray()
            put(data, value)
            put_varint(out, tag)
            put_varint(out, len(data))
            out += data

    return put_tags if tagged else _put_no_tags


def _put_no_tags(out: bytearray, _entity: Any) -> None:
    out.append(0)


def _fixed_step(run: tuple[FieldShape, ...]) -> Encode:
    layout = struct.Struct(">" + "".join(f.struct_code or "" for f in run))
    get = attrgetter(*(f.name for f in run))
    pack = layout.pack
    if len(run) == 1:

        def put_one(out: bytearray, entity: Any) -> None:
            out += pack(get(entity))

        return put_one

    def put_run(out: bytearray, entity: Any) -> None:
        out += pack(*get(entity))

    return put_run


def _field_step(field: FieldShape, version: Version | None, *, flexible: bool) -> Encode:
    get = attrgetter(field.name)
    put = _field_encoder(field, version, flexible=flexible)
    return lambda out, entity: put(out, get(entity))


def _field_encoder(field: FieldShape, version: Version | None, *, flexible: bool) -> Encode:
    if field.structure is not None:
        element = encoder(field.structure, version)
        if field.nullable and not field.is_array:
            element = _nullable_structure(element)
    else:
        nullable = field.nullable and not field.is_array
        element = _element_encoder(field.kafka_type, flexible=flexible, nullable=nullable)
    if field.is_array:
        return _array(element, flexible=flexible, nullable=field.nullable)
    return element


def _nullable_structure(element: Encode) -> Encode:
    def put(out: bytearray, entity: Any) -> None:
        out.append(0xFF if entity is None else 1)
        if entity is not None:
            element(out, entity)

    return put


def _array(element: Encode, *, flexible: bool, nullable: bool) -> Encode:
    def put(out: bytearray, values: Any) -> None:
        if values is None and nullable:
            _put_null(out, _INT32, flexible=flexible)
            return
        _put_length(out, len(values), _INT32, flexible=flexible)
        for value in values:
            element(out, value)

    return put


def _put_length(out: bytearray, length: int, legacy: struct.Struct, *, flexible: bool) -> None:
    if flexible and length < 0x7F:
        out.append(length + 1)
    elif flexible:
        put_varint(out, length + 1)
    else:
        out += legacy.pack(length)


def _put_null(out: bytearray, legacy: struct.Struct, *, flexible: bool) -> None:
    out += b"\0" if flexible else legacy.pack(-1)


def _element_encoder(kafka_type: str, *, flexible: bool, nullable: bool) -> Encode:
    if kafka_type == "string":
        return _text(flexible=flexible, nullable=nullable)
    if kafka_type in ("bytes", "records"):
        return _bytes(flexible=flexible, nullable=nullable)
    if kafka_type in _CONVERTED:
        return _CONVERTED[kafka_type]
    layout = struct.Struct(">" + FIXED[kafka_type])

    def put(out: bytearray, value: Any) -> None:
        out += layout.pack(value)

    return put


def _bytes(*, flexible: bool, nullable: bool) -> Encode:
    def put(out: bytearray, data: bytes | None) -> None:
        if data is None and nullable:
            _put_null(out, _INT32, flexible=flexible)
        elif data is None:
            raise TypeError("a field that may not be null is")
        else:
            _put_length(out, len(data), _INT32, flexible=flexible)
            out += data

    return put


def _text(*, flexible: bool, nullable: bool) -> Encode:
    def put(out: bytearray, text: str | None) -> None:
        if text is None and nullable:
            _put_null(out, _INT16, flexible=flexible)
        elif text is None:
            raise TypeError("a field that may not be null is")
        else:
            data = text.encode()
            _put_length(out, len(data), _INT16, flexible=flexible)
            out += data

    return put


def put_nullable_text(out: bytearray, text: str | None) -> None:
    """Append a nullable string of the old form: the client id of every request header."""
    _CLIENT_ID(out, text)


_CLIENT_ID: Final = _text(flexible=False, nullable=True)


def _put_uuid(out: bytearray, value: UUID | None) -> None:
    out += _NO_UUID if value is None else value.bytes


def _duration(layout: struct.Struct) -> Encode:
    def put(out: bytearray, value: timedelta) -> None:
        out += layout.pack(value // _MILLISECOND)

    return put


def _put_instant(out: bytearray, value: datetime | None) -> None:
    out += _INT64.pack(_NO_TIME_MS if value is None else round(value.timestamp() * 1000))


_CONVERTED: Final[dict[str, Encode]] = {
    "uuid": _put_uuid,
    "timedelta_i32": _duration(_INT32),
    "timedelta_i64": _duration(_INT64),
    "datetime_i64": _put_instant,
}
