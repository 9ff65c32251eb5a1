"""The text of a `.proto` file, printed from its descriptor: one text for each descriptor.

Comments are gone, and custom options, whose meaning needs their own files. All that clients
decode with stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        EnumDescriptorProto,
        FieldDescriptorProto,
        FileDescriptorProto,
    )

_SCALARS: Final = {
    1: "double", 2: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32",
    8: "bool", 9: "string", 12: "bytes", 13: "uint32", 15: "sfixed32", 16: "sfixed64",
    17: "sint32", 18: "sint64",
}  # fmt: skip
_GROUP: Final = 10
_LABELS: Final = {1: "optional ", 2: "required ", 3: "repeated "}
_OPTIONAL: Final = 1
_REPEATED: Final = 3
_TEXTS: Final = (9, 12)
_RANGE_END: Final = 536_870_911
_ENUM_END: Final = 2_147_483_647


def proto_text(file: FileDescriptorProto) -> str:
    """Return the text of a file."""
    lines = [f'syntax = "{file.syntax or "proto2"}";']
    if file.syntax == "editions":
        lines = [f'edition = "{_edition(file.edition)}";']
    if file.package:
        lines.append(f"package {file.package};")
    public, weak = set(file.public_dependency), set(file.weak_dependency)
    for n, name in enumerate(file.dependency):
        kind = "public " if n in public else "weak " if n in weak else ""
        lines.append(f"import {kind}{_quoted(name)};")
    lines += [f"option {name} = {value};" for name, value in _options(file.options)]
    for message in file.message_type:
        lines += ["", *_message(message, file.syntax)]
    for enum in file.enum_type:
        lines += ["", *_enum(enum)]
    lines += _extensions(file.extension, file.syntax)
    for service in file.service:
        lines += ["", f"service {service.name} {{"]
        for method in service.method:
            given = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
            made = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
            lines.append(f"  rpc {method.name} ({given}) returns ({made});")
        lines.append("}")
    return "\n".join(lines) + "\n"


def _edition(number: int) -> str:
    from google.protobuf import descriptor_pb2  # noqa: PLC0415 - of the extra `registry`

    return str(descriptor_pb2.Edition.Name(number)).removeprefix("EDITION_")


def _message(message: DescriptorProto, syntax: str) -> list[str]:
    """Return the lines of a message, with nested ones in the order that message indexes count.

    The compiler makes a nested message of each map and each group, in the order of the text.
    """
    body = [f"option {name} = {value};" for name, value in _options(message.options)]
    maps = {n.name: n for n in message.nested_type if n.options.map_entry}
    groups = {f.type_name.rpartition(".")[2] for f in message.field if f.type == _GROUP}
    nested = {one.name: one for one in message.nested_type}
    waiting = list(nested)
    for fields in _runs(message):
        for field in fields:
            own = field.type_name.rpartition(".")[2]
            if own in maps or own in groups:
                while waiting and waiting.pop(0) != own:
                    pass
        made = [n for n in nested if n not in waiting and n not in maps and n not in groups]
        for name in made:
            body += _message(nested.pop(name), syntax)
        lines = [
            line
            for field in fields
            for line in _field(field, maps, message, syntax, bare=_is_member(field))
        ]
        if _is_member(fields[0]):
            declared = message.oneof_decl[fields[0].oneof_index].name
            lines = [f"oneof {declared} {{", *(f"  {line}" for line in lines), "}"]
        body += lines
    for name in waiting:
        if name not in maps and name not in groups:
            body += _message(nested[name], syntax)
    for enum in message.enum_type:
        body += _enum(enum)
    body += _extensions(message.extension, syntax)
    body += [
        f"extensions {_range(r.start, r.end - 1, _RANGE_END)};" for r in message.extension_range
    ]
    body += _reserved(message, _RANGE_END, 1)
    return [f"message {message.name} {{", *(f"  {line}" for line in body), "}"]


def _is_member(field: FieldDescriptorProto) -> bool:
    return field.HasField("oneof_index") and not field.proto3_optional


def _runs(message: DescriptorProto) -> Iterator[list[FieldDescriptorProto]]:
    """Yield each field by itself, and those of a oneof together, where its first one stands."""
    seen: set[int] = set()
    for field in message.field:
        if not _is_member(field):
            yield [field]
        elif field.oneof_index not in seen:
            seen.add(field.oneof_index)
            yield [f for f in message.field if _is_member(f) and f.oneof_index == field.oneof_index]


def _field(
    field: FieldDescriptorProto,
    maps: dict[str, DescriptorProto],
    message: DescriptorProto | None,
    syntax: str,
    *,
    bare: bool = False,
) -> list[str]:
    own = field.type_name.rpartition(".")[2]
    options = list(_options(field.options))
    if field.HasField("default_value"):
        options.insert(0, ("default", _default(field)))
    if field.HasField("json_name"):
        options.append(("json_name", _quoted(field.json_name)))
    extra = f" [{', '.join(f'{n} = {v}' for n, v in options)}]" if options else ""
    if own in maps and field.label == _REPEATED:
        key, value = maps[own].field
        kind = f"map<{_type(key)}, {_type(value)}>"
        return [f"{kind} {field.name} = {field.number}{extra};"]
    label = "" if bare else _label(field, syntax)
    if field.type == _GROUP and message is not None:
        inner = _message(next(one for one in message.nested_type if one.name == own), syntax)
        return [f"{label}group {own} = {field.number}{extra} {{", *inner[1:]]
    return [f"{label}{_type(field)} {field.name} = {field.number}{extra};"]


def _label(field: FieldDescriptorProto, syntax: str) -> str:
    plain = syntax in ("proto3", "editions") and not field.proto3_optional
    return "" if plain and field.label == _OPTIONAL else _LABELS[field.label]


def _type(field: FieldDescriptorProto) -> str:
    return _SCALARS.get(field.type) or str(field.type_name)


def _default(field: FieldDescriptorProto) -> str:
    if field.type not in _TEXTS:
        return str(field.default_value)
    if field.type == _TEXTS[1]:  # a descriptor keeps bytes escaped
        return f'"{field.default_value}"'
    return _quoted(field.default_value)


def _enum(enum: EnumDescriptorProto) -> list[str]:
    body = [f"option {name} = {value};" for name, value in _options(enum.options)]
    for one in enum.value:
        options = [f"{name} = {value}" for name, value in _options(one.options)]
        extra = f" [{', '.join(options)}]" if options else ""
        body.append(f"{one.name} = {one.number}{extra};")
    body += _reserved(enum, _ENUM_END, 0)
    return [f"enum {enum.name} {{", *(f"  {line}" for line in body), "}"]


def _extensions(fields: Any, syntax: str) -> list[str]:
    lines: list[str] = []
    for field in fields:
        lines += [f"extend {field.extendee} {{"]
        lines += [f"  {line}" for line in _field(field, {}, None, syntax)]
        lines.append("}")
    return lines


def _reserved(of: Any, last: int, beyond: int) -> list[str]:
    ranges = [_range(r.start, r.end - beyond, last) for r in of.reserved_range]
    names = [_quoted(name) for name in of.reserved_name]
    return [f"reserved {', '.join(some)};" for some in (ranges, names) if some]


def _range(first: int, end: int, last: int) -> str:
    if first == end:
        return str(first)
    return f"{first} to {'max' if end >= last else end}"


def _options(options: Any) -> Iterator[tuple[str, str]]:
    """Yield the options that are not custom, as they are written."""
    for field, value in options.ListFields():
        if field.is_extension or field.name == "uninterpreted_option" or field.is_repeated:
            continue
        if field.message_type is not None:
            for name, inner in _options(value):
                yield f"{field.name}.{name}", inner
        elif field.enum_type is not None:
            yield field.name, field.enum_type.values_by_number[value].name
        elif isinstance(value, bool):
            yield field.name, "true" if value else "false"
        elif isinstance(value, str):
            yield field.name, _quoted(value)
        elif field.name != "map_entry":
            yield field.name, str(value)


def _quoted(text: str) -> str:
    made = []
    for byte in text.encode():
        char = chr(byte)
        made.append(char if char.isprintable() and byte < 127 and char not in '"\\' else
                    f"\\{byte:03o}")  # fmt: skip
    return f'"{"".join(made)}"'
