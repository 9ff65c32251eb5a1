"""Framed Protobuf values as one message of a subject's versions."""

from __future__ import annotations

from uuid import uuid4

import pyarrow as pa
import pytest

from sparklog.core.errors import InvalidRequest
from sparklog.registry.formats.protobuf import parse_protobuf
from sparklog.registry.protobuf_message import (
    NO_SCHEMA,
    OTHER_MESSAGE,
    UNREADABLE,
    VersionPath,
    only_message,
    path_of,
    read_messages,
    reading_of,
    version_key,
)

PACKAGE = 'syntax = "proto3"; package a.b; '
NOTE = "message Note { string text = 1; } "
NEW = parse_protobuf(f"{PACKAGE}{NOTE}message Order {{ int64 id = 1; string paid = 2; }}", {})
NESTED = parse_protobuf(
    f"{PACKAGE}message Outer {{ message Order {{ int64 id = 1; Outer up = 2; }} }}", {}
)


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def test_the_message_that_is_no_part_of_others_is_found() -> None:
    text = f"{PACKAGE}{NOTE}message Order {{ Note note = 1; Order inner = 2; }}"
    assert only_message(parse_protobuf(text, {})) == "a.b.Order"
    with pytest.raises(InvalidRequest, match=r"messages=a\.b\.Note,a\.b\.Order"):
        only_message(NEW)


def test_a_message_has_the_path_that_values_carry() -> None:
    assert path_of(NEW, "a.b.Order") == (1,)
    assert path_of(NESTED, "a.b.Outer.Order") == (0, 0)
    assert path_of(NEW, "b.Order") is path_of(NEW, "a.b.Other") is None
    assert path_of(parse_protobuf('syntax = "proto3"; message M {}', {}), "M") == (0,)


def test_values_of_versions_are_read_and_others_have_a_reason() -> None:
    guid = str(uuid4())
    reading = reading_of(NEW, "a.b.Order", (
        VersionPath((version_key(1),), (0,), readable=True),
        VersionPath((version_key(2), version_key(guid)), (1,), readable=True),
        VersionPath((version_key(3),), None, readable=False),
    ))  # fmt: skip
    body = b"\x08\x05"
    values = [framed(1, b"\0" + body), framed(2, b"\x02\x02" + body), framed(2, b"\0\x0a\x01x"),
              framed(3, b"\0"), framed(4, b"\0"), b"no id", None, framed(1, b""), body]  # fmt: skip
    named = b"\1" + bytes.fromhex(guid.replace("-", "")) + b"\x02\x02"
    headers = [None] * 8 + [[{"key": "__value_schema_id", "value": named}]]
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    found, reasons = read_messages(reading, pa.array(values, pa.binary()), pa.array(headers, kind))
    order = {"id": 5, "paid": ""}
    assert found.to_pylist() == [order, order, *[None] * 6, order]
    assert reasons == [
        None, None, OTHER_MESSAGE, UNREADABLE, NO_SCHEMA, "the value carries no id of a schema",
        None, "message indexes are cut off", None,
    ]  # fmt: skip
