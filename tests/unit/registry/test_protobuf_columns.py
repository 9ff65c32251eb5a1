"""Messages as columns: types, nulls, and payloads that are no such message."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import message_factory

from sparklog.registry.formats import protobuf_columns
from sparklog.registry.formats.protobuf import parse_protobuf, pool_of
from sparklog.registry.formats.protobuf_columns import ITEMS_MAX, MessageColumns
from sparklog.registry.model.refusal import RegistryRefused

TEXT = """
syntax = "proto3";
package p;
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Inner { string s = 1; }
message M {
  enum E { A = 0; B = 1; }
  message Empty {}
  int64 n = 1;
  optional int32 maybe = 2;
  uint64 big = 3;
  uint32 wide = 4;
  float from = 5;
  bytes raw = 6;
  E e = 7;
  repeated int32 many = 8;
  Inner inner = 9;
  repeated Inner inners = 10;
  map<string, Inner> by_name = 11;
  google.protobuf.Timestamp at = 12;
  google.protobuf.StringValue wrapped = 13;
  google.protobuf.Struct any = 14;
  M itself = 15;
  Empty empty = 16;
  oneof one { int32 a = 17; string b = 18; }
}
"""


def columns_of(text: str, name: str) -> tuple[MessageColumns, Any]:
    descriptor = pool_of(parse_protobuf(text, {})).FindMessageTypeByName(name)
    return MessageColumns(descriptor), message_factory.GetMessageClass(descriptor)


@pytest.fixture(scope="module")
def made() -> tuple[MessageColumns, Any]:
    return columns_of(TEXT, "p.M")


NOTHING: dict[str, Any] = {
    "n": 0, "maybe": None, "big": Decimal(0), "wide": 0, "from": 0.0, "raw": b"", "e": "A",
    "many": [], "inner": None, "inners": [], "by_name": [], "at": None, "wrapped": None,
    "any": None, "itself": None, "empty": None, "a": None, "b": None,
}  # fmt: skip


def test_fields_become_columns_of_their_types(made: tuple[MessageColumns, Any]) -> None:
    columns, message_class = made
    message = message_class(
        n=-5, maybe=0, big=2**64 - 1, wide=2**32 - 1, raw=b"\xff", e=1, many=[1, 2],
        inner={"s": "i"}, inners=[{"s": "1"}, {}], at={"seconds": 1, "nanos": 5_000},
        wrapped={"value": "w"}, itself={"n": 7}, empty={}, b="",
        **{"from": 0.5},
    )  # fmt: skip
    message.by_name["k"].s = "v"
    message.any.update({"x": [1, None]})
    unknown = message_class(e=9).SerializeToString()
    found, reasons = columns.read([message.SerializeToString(), b"", None, unknown])
    assert reasons == [None] * 4
    assert found.to_pylist() == [
        {
            "n": -5, "maybe": 0, "big": Decimal(2**64 - 1), "wide": 2**32 - 1, "from": 0.5,
            "raw": b"\xff", "e": "B", "many": [1, 2], "inner": {"s": "i"},
            "inners": [{"s": "1"}, {"s": ""}], "by_name": [("k", {"s": "v"})],
            "at": datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=UTC), "wrapped": "w",
            "any": '{"x": [1.0, null]}', "itself": '{"n": "7"}', "empty": "{}", "a": None, "b": "",
        },
        NOTHING,
        None,
        {**NOTHING, "e": "9"},
    ]  # fmt: skip
    assert found.type == columns.type
    assert columns.type.field("big").type == pa.decimal128(20, 0)
    assert columns.type.field("from").type == pa.float32()


def test_a_bad_payload_has_a_reason_and_others_are_read(made: tuple[MessageColumns, Any]) -> None:
    columns, message_class = made
    good = message_class(n=1).SerializeToString()
    far = message_class(at={"seconds": 2**40}).SerializeToString()
    many = b"\x52\x00" * (ITEMS_MAX + 1)
    found, reasons = columns.read([good, b"\xff", far, many, good, None])
    kept = [None if row is None else row["n"] for row in found.to_pylist()]
    assert kept == [1, None, None, None, 1, None]
    assert reasons[0] is reasons[4] is reasons[5] is None
    assert "DecodeError" in str(reasons[1])
    assert reasons[2] == "a field does not fit: a timestamp is outside the years 1 to 9999"
    assert reasons[3] == f"a field does not fit: more than {ITEMS_MAX} messages in lists"


def test_payloads_are_read_in_parts(
    made: tuple[MessageColumns, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    columns, message_class = made
    monkeypatch.setattr(protobuf_columns, "BYTES_AT_ONCE", 50)
    payloads = [message_class(n=n, raw=b"x" * (20 * n)).SerializeToString() for n in range(9)]
    found, reasons = columns.read([*payloads, None])
    assert [row["n"] for row in found.to_pylist()[:9]] == list(range(9))
    assert reasons == [None] * 10
    assert len(columns.read([])[0]) == 0


def test_messages_without_bound_are_refused() -> None:
    levels = 12  # each message has two of the next
    text = 'syntax = "proto3";' + "".join(
        f"message M{n} {{ M{n + 1} a = 1; M{n + 1} b = 2; }}" for n in range(levels)
    )
    with pytest.raises(RegistryRefused, match="more than 2000 fields"):
        columns_of(f"{text} message M{levels} {{ int32 n = 1; }}", "M0")
    with pytest.raises(RegistryRefused, match="without fields"):
        columns_of('syntax = "proto3"; message M {}', "M")
