"""Protobuf: texts and descriptors of one file have one form, and changes are judged by number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from sparklog.registry.formats.protobuf import ProtobufSchema, _compiled, parse_protobuf
from sparklog.registry.formats.protobuf_compatibility import protobuf_differences
from sparklog.registry.model.refusal import RegistryRefused

LARGE = """
syntax = "proto2";  // a comment
package p;
import "google/protobuf/timestamp.proto";
message A {
  message B { repeated sint64 q = 1 [packed = true]; }
  map<string, int32> m = 1;
  optional group Foo = 7 { optional string z = 1 [default = "a\\"b"]; }
  oneof x { int32 a = 3; B b = 4; }
  message C {}
  map<int32, B> n = 5;
  optional google.protobuf.Timestamp t = 9;
  extensions 100 to 200;
  reserved 10 to 12, 20;
  reserved "old";
}
extend A { optional bytes more = 101 [default = "\\001x"]; }
enum E { option allow_alias = true; ZERO = 0; NULL = 0; reserved 5 to max; }
service S { rpc Get (A) returns (stream A); }
"""


def message(*lines: str, more: str = "") -> str:
    return f'syntax = "proto3"; message M {{ {" ".join(lines)} }} {more}'


CHANGES = [
    (message("int32 a = 1;", "string b = 2;"), message("int32 a = 1;"), []),
    (message("int64 renamed = 1;"), message("bool a = 1;"), []),
    (message("string a = 1;"), message("repeated bytes a = 1;"), []),
    (message(), message("int32 a = 1;"), []),
    (message("repeated int32 a = 1;"), message("int32 a = 1;"), ["FIELD_NUMERIC_LABEL_CHANGED"]),
    (message("sint32 a = 1;"), message("int32 a = 1;"), ["FIELD_SCALAR_KIND_CHANGED"]),
    (message("M a = 1;"), message("int32 a = 1;"), ["FIELD_KIND_CHANGED"]),
    (message("map<string, M> a = 1;"), message("repeated M a = 1;"), ["FIELD_KIND_CHANGED"]),
    (
        message("map<string, string> a = 1;"), message("map<string, int32> a = 1;"),
        ["FIELD_SCALAR_KIND_CHANGED"],
    ),
    (message(), message(more="message N {}"), ["MESSAGE_REMOVED"]),
    ('syntax = "proto3"; package q; message M {}', message(), ["PACKAGE_CHANGED"]),
    (
        message("N a = 1;", more="message N {} message O {}"),
        message("O a = 1;", more="message N {} message O {}"), ["FIELD_NAMED_TYPE_CHANGED"],
    ),
    (message("oneof x { int32 a = 1; string b = 2; }"), message("int32 a = 1;"), []),
    (
        message("oneof x { int32 a = 1; string b = 2; }"), message("int32 a = 1; string b = 2;"),
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"],
    ),
    (
        message("oneof x { int32 a = 1; }"), message("oneof x { int32 a = 1; string b = 2; }"),
        ["ONEOF_FIELD_REMOVED"],
    ),
]  # fmt: skip


def without_package(messages: Iterable[Any], package: str) -> None:
    """Take the package out of the names of types."""
    for one in messages:
        for member in one.field:
            member.type_name = member.type_name.replace(f".{package}.", ".", 1)
        without_package(one.nested_type, package)


def test_changes_are_judged_by_number_and_encoding() -> None:
    texts = sorted({text for new, old, _ in CHANGES for text in (new, old)})
    # All texts in one run of the compiler, which takes a third of a second.
    named = {
        f"f{n}.proto": text if "package" in text else text.replace(";", f"; package f{n};", 1)
        for n, text in enumerate(texts)
    }
    compiled = _compiled(LARGE, named)
    schemas = {}
    for n, text in enumerate(texts):
        file = compiled[f"f{n}.proto"]
        if "package" not in text:
            without_package(file.message_type, file.package)
            file.package = ""
        schemas[text] = ProtobufSchema(file, (), "")
    for new, old, expected in CHANGES:
        found = protobuf_differences(schemas[new], schemas[old])
        assert [one.kind for one in found] == expected, (new, old, found)
        assert protobuf_differences(schemas[new], schemas[new]) == []


def test_a_text_and_its_descriptor_have_one_form() -> None:
    first = parse_protobuf(LARGE, {})
    again = parse_protobuf(first.canonical, {})
    assert again.canonical == first.canonical
    assert parse_protobuf(first.serialized, {}).canonical == first.canonical
    nested = [one.name for one in again.file.message_type[0].nested_type]
    assert nested == ["B", "MEntry", "Foo", "C", "NEntry"], "message indexes count these"
    assert "comment" not in first.canonical


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('syntax = "proto3"; message M { Missing a = 1; }', '"Missing" is not defined'),
        (
            'syntax = "proto3"; import "/etc/passwd"; message M {}',
            "not found|no reference|Protobuf",
        ),
        ("====", "Protobuf"),
    ],
)
def test_an_invalid_file_is_refused_with_its_reason(text: str, why: str) -> None:
    with pytest.raises(RegistryRefused, match=why) as refused:
        parse_protobuf(text, {})
    assert refused.value.code == 42201


def test_an_import_is_a_reference_and_no_file() -> None:
    base = parse_protobuf('syntax = "proto3"; package b; message Base { int32 x = 1; }', {})
    text = 'syntax = "proto3"; import "base.proto"; message M { b.Base base = 1; }'
    found = parse_protobuf(text, {"base.proto": base.canonical})
    assert parse_protobuf(found.serialized, {"base.proto": base.serialized}).file == found.file
    with pytest.raises(RegistryRefused, match="no reference"):
        parse_protobuf(found.serialized, {})
    with pytest.raises(RegistryRefused, match="no name of a file"):
        parse_protobuf(text, {"../base.proto": base.canonical})
