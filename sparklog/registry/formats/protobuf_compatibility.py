"""Protobuf: whether messages that a writer's schema encodes decode with a reader's schema.

The rules are Confluent's, and two of Google's that Confluent does not check. A numeric field may
not become repeated or singular, and a map may not become anything else.
Source: Confluent's page on schema evolution; Protocol Buffers, "Updating a Message Type".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sparklog.registry.formats.difference import Difference, within_depth
from sparklog.registry.formats.protobuf import ProtobufSchema

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        FieldDescriptorProto,
        FileDescriptorProto,
    )

_GENERAL, _SIGNED, _BYTES, _MESSAGE, _GROUP = "number", "signed number", "bytes", "message", "group"
_KINDS: Final = {
    1: "double", 2: "float", 3: _GENERAL, 4: _GENERAL, 5: _GENERAL, 6: "fixed64", 7: "fixed32",
    8: _GENERAL, 9: _BYTES, 10: _GROUP, 11: _MESSAGE, 12: _BYTES, 13: _GENERAL, 14: _GENERAL,
    15: "fixed32", 16: "fixed64", 17: _SIGNED, 18: _SIGNED,
}  # fmt: skip
"""Types of one kind have one encoding, and each decodes the other's values."""
_REQUIRED: Final = 2
_REPEATED: Final = 3


@dataclass(frozen=True, slots=True)
class _Types:
    """The messages of a file and of those it imports, by their names without the package."""

    own: dict[str, DescriptorProto]
    all: dict[str, DescriptorProto]
    """By full name, with a dot in front."""
    package: str


def protobuf_differences(reader: ProtobufSchema, writer: ProtobufSchema) -> list[Difference]:
    """Return why data of `writer` does not decode with `reader`; empty if it does.

    Raises:
        RegistryRefused: the schemas nest too deeply.
    """
    return within_depth(lambda: list(_compared(reader, writer)))


def _compared(reader: ProtobufSchema, writer: ProtobufSchema) -> Iterator[Difference]:
    new, old = _types(reader), _types(writer)
    if new.package != old.package:
        text = f"The package has changed from {old.package!r} to {new.package!r}"
        yield Difference("PACKAGE_CHANGED", "#/", text)
    seen: set[tuple[str, str]] = set()
    for name in old.own:
        if name not in new.own:
            yield Difference("MESSAGE_REMOVED", f"#/{name}", f"The message {name} is gone")
        else:
            yield from _messages((new, new.own[name]), (old, old.own[name]), name, seen)


def _types(schema: ProtobufSchema) -> _Types:
    own = dict(_named(schema.file.message_type, ""))
    every: dict[str, DescriptorProto] = {}
    for file in (*schema.referred, schema.file):
        every.update((f".{_in(file, name)}", one) for name, one in _entries(file))
    return _Types(own, every, schema.file.package)


def _entries(file: FileDescriptorProto) -> Iterator[tuple[str, DescriptorProto]]:
    yield from _named(file.message_type, "", maps=True)


def _in(file: FileDescriptorProto, name: str) -> str:
    return f"{file.package}.{name}" if file.package else name


def _named(
    messages: Iterable[DescriptorProto], prefix: str, *, maps: bool = False
) -> Iterator[tuple[str, DescriptorProto]]:
    for message in messages:
        if maps or not message.options.map_entry:
            yield f"{prefix}{message.name}", message
            yield from _named(message.nested_type, f"{prefix}{message.name}.", maps=maps)


def _messages(
    new: tuple[_Types, DescriptorProto],
    old: tuple[_Types, DescriptorProto],
    at: str,
    seen: set[tuple[str, str]],
) -> Iterator[Difference]:
    reader, writer = new[1], old[1]
    after = {field.number: field for field in reader.field}
    before = {field.number: field for field in writer.field}
    yield from _oneofs(reader, writer, at)
    for number in sorted(after.keys() | before.keys()):
        place = f"#/{at}/{number}"
        here, there = after.get(number), before.get(number)
        if there is None and here is not None:
            if here.label == _REQUIRED:
                text = f"The required field {here.name} is new"
                yield Difference("REQUIRED_FIELD_ADDED", place, text)
        elif here is None and there is not None:
            if there.label == _REQUIRED:
                text = f"The required field {there.name} is gone"
                yield Difference("REQUIRED_FIELD_REMOVED", place, text)
        elif here is not None and there is not None:
            yield from _fields((new[0], here), (old[0], there), place, seen)


def _fields(
    new: tuple[_Types, FieldDescriptorProto],
    old: tuple[_Types, FieldDescriptorProto],
    at: str,
    seen: set[tuple[str, str]],
) -> Iterator[Difference]:
    here, there = new[1], old[1]
    kinds = _KINDS[here.type], _KINDS[there.type]
    if kinds[0] != kinds[1]:
        both = {_MESSAGE, _GROUP} & set(kinds)
        kind = "FIELD_KIND_CHANGED" if both else "FIELD_SCALAR_KIND_CHANGED"
        text = f"The field {here.name} has changed from {kinds[1]} to {kinds[0]}"
        yield Difference(kind, at, text)
        return
    labels = (here.label == _REPEATED) != (there.label == _REPEATED)
    if labels and kinds[0] not in (_BYTES, _MESSAGE):
        text = f"The field {here.name} is repeated in one schema only"
        yield Difference("FIELD_NUMERIC_LABEL_CHANGED", at, text)
    if (here.label == _REQUIRED) > (there.label == _REQUIRED):
        yield Difference("REQUIRED_FIELD_ADDED", at, f"The field {here.name} is required now")
    if kinds[0] in (_MESSAGE, _GROUP):
        yield from _message_types(new, old, at, seen)


def _message_types(
    new: tuple[_Types, FieldDescriptorProto],
    old: tuple[_Types, FieldDescriptorProto],
    at: str,
    seen: set[tuple[str, str]],
) -> Iterator[Difference]:
    names = new[1].type_name, old[1].type_name
    reader, writer = new[0].all.get(names[0]), old[0].all.get(names[1])
    maps = [one is not None and one.options.map_entry for one in (reader, writer)]
    if maps[0] != maps[1]:
        yield Difference("FIELD_KIND_CHANGED", at, "A map has become something else, or was none")
        return
    local = _local(names[0], new[0].package), _local(names[1], old[0].package)
    if local[0] != local[1] and not all(maps):
        text = f"The type has changed from {local[1]} to {local[0]}"
        yield Difference("FIELD_NAMED_TYPE_CHANGED", at, text)
    elif reader is not None and writer is not None and names not in seen:
        seen.add(names)
        yield from _messages((new[0], reader), (old[0], writer), local[0], seen)


def _local(name: str, package: str) -> str:
    prefix = f".{package}." if package else "."
    return name.removeprefix(prefix)


def _oneofs(reader: DescriptorProto, writer: DescriptorProto, at: str) -> Iterator[Difference]:
    after, before = _members(reader), _members(writer)
    single = {field.number for field in writer.field} - set().union(*before.values())
    known = set().union(*before.values())
    for name, members in after.items():
        moved, existing = members & single, members & known
        if len(moved) > 1:
            text = f"Several fields have moved into the oneof {name}"
            yield Difference("MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"#/{at}/{name}", text)
        elif moved and existing:
            text = f"A field has moved into the oneof {name}, which had others"
            yield Difference("FIELD_MOVED_TO_EXISTING_ONEOF", f"#/{at}/{name}", text)
    for name, members in before.items():
        gone = members - after[name] if name in after else set()
        if gone:
            text = f"The oneof {name} has lost fields"
            yield Difference("ONEOF_FIELD_REMOVED", f"#/{at}/{name}", text, str(sorted(gone)))


def _members(message: DescriptorProto) -> dict[str, set[int]]:
    """Return the field numbers of each oneof; `optional` of proto3 is none."""
    found: dict[str, set[int]] = {}
    for field in message.field:
        one: Any = field
        if one.HasField("oneof_index") and not one.proto3_optional:
            found.setdefault(message.oneof_decl[one.oneof_index].name, set()).add(one.number)
    return found
