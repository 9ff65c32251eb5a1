"""Random kio entities of any type, from a seeded generator."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from sparklog.protocol.api_keys import APIS
from sparklog.protocol.messages.schema import FieldShape, shape_of
from sparklog.protocol.messages.schemas import request_schema, response_schema

BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def message_types() -> list[Any]:
    """Return the request and the response of every version that is answered."""
    return [
        load(api, version)
        for api, versions in APIS.items()
        for version in range(versions.min, versions.max + 1)
        for load in (request_schema, response_schema)
    ]


def random_entity(entity_type: Any, random: Random) -> Any:
    """Return an entity with arbitrary legal values."""
    shape = shape_of(entity_type)
    values = {f.name: _value(f, random) for f in shape.fields}
    values |= {f.name: _value(f, random) for f in shape.tagged if random.random() < 0.5}
    return entity_type(**values)


def _value(field: FieldShape, random: Random) -> Any:
    if field.nullable and field.kafka_type != "uuid" and random.random() < 0.2:
        return None
    if field.is_array:
        return tuple(_element(field, random) for _ in range(random.randrange(4)))
    return _element(field, random)


def _element(field: FieldShape, random: Random) -> Any:
    kind = field.kafka_type
    if field.structure is not None:
        return random_entity(field.structure, random)
    if kind in BITS:
        bound = 2 ** (BITS[kind] - 1)
        return random.choice((0, -1, -bound, bound - 1, random.randrange(-bound, bound)))
    if kind == "uint16":
        return random.randrange(2**16)
    if kind == "bool":
        return random.random() < 0.5
    if kind == "float64":
        return random.choice((0.0, -1.5, 1e300, random.uniform(-1e9, 1e9)))
    if kind == "string":
        return "".join(random.choices("aZ0-_.äß世𝄞\0", k=random.choice((0, 1, 7, 200))))
    if kind in ("bytes", "records"):
        return random.randbytes(random.choice((0, 1, 127, 128, 20_000)))
    if kind == "uuid":
        return None if random.random() < 0.3 else UUID(bytes=random.randbytes(15) + b"x")
    if kind == "error_code":
        return random.choice(list(ErrorCode))
    if kind in ("timedelta_i32", "timedelta_i64"):
        return timedelta(milliseconds=random.randrange(-(2**31), 2**31))
    if kind == "datetime_i64":
        return datetime(2020, 1, 1, tzinfo=UTC) + timedelta(milliseconds=random.randrange(10**12))
    raise TypeError(f"no values for this type. type={kind}")
