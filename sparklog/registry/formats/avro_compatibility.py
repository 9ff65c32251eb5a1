"""Avro's schema resolution: which data of a writer's schema a reader's schema reads.

The rules are those of the specification. As in Java, named types match by their name without
namespace, or by an alias of the reader. One rule is stricter than Confluent's: two
decimals match only if precision and scale do, since a reader would else get another number.
Source: Apache Avro specification 1.12, "Schema Resolution".
"""

from __future__ import annotations

from typing import Final

from sparklog.registry.formats.avro import NO_DEFAULT, AvroField, AvroSchema, AvroType
from sparklog.registry.formats.difference import Difference, within_depth
from sparklog.registry.model.refusal import invalid_schema

PROMOTIONS: Final = {
    "long": {"int"},
    "float": {"int", "long"},
    "double": {"int", "long", "float"},
    "bytes": {"string"},
    "string": {"bytes"},
}
"""The writer's types that each type of a reader takes beside itself."""
JUDGED_MAX: Final = 200_000
"""Bound on the pairs of types that one comparison looks at."""


def avro_differences(reader: AvroSchema, writer: AvroSchema) -> list[Difference]:
    """Return why data of `writer` is not readable with `reader`; empty if it is.

    Raises:
        RegistryRefused: the schemas nest too deeply.
    """
    return within_depth(lambda: _Resolution().differences(reader.type, writer.type, ""))


class _Resolution:
    """One comparison. A pair that is under way counts as readable: its own result decides."""

    def __init__(self) -> None:
        self._readable: dict[tuple[int, int], None] = {}
        """Pairs that are readable or under way, in the order in which they were met."""
        self._failed: dict[tuple[int, int], list[Difference]] = {}
        self._left = JUDGED_MAX

    def differences(self, reader: AvroType, writer: AvroType, at: str) -> list[Difference]:
        pair = (id(reader), id(writer))
        if pair in self._readable:
            return []
        if pair not in self._failed:
            self._left -= 1
            if self._left < 0:
                raise invalid_schema("it is too complex to be compared")
            self._readable[pair] = None
            found = self._judged(reader, writer, at)
            if not found:
                return []
            self._forget_since(pair)
            self._failed[pair] = found
        return self._failed[pair]

    def _forget_since(self, pair: tuple[int, int]) -> None:
        """Forget pairs that were found readable meanwhile: they may have counted on this one."""
        while self._readable.popitem()[0] != pair:
            pass

    def _judged(self, reader: AvroType, writer: AvroType, at: str) -> list[Difference]:
        if writer.kind == "union":
            return self._each_branch(reader, writer, at)
        if reader.kind == "union":
            if any(not self._fresh(branch, writer) for branch in reader.branches):
                return []
            return [_missing_branch(writer, at)]
        if reader.kind != writer.kind:
            if writer.kind in PROMOTIONS.get(reader.kind, ()):
                return []
            return [_mismatch(reader, writer, at)]
        match reader.kind:
            case "array" | "map":
                assert reader.inner is not None, reader
                assert writer.inner is not None, writer
                place = "items" if reader.kind == "array" else "values"
                return self.differences(reader.inner, writer.inner, f"{at}/{place}")
            case "record" | "enum" | "fixed" if not _same_name(reader, writer):
                text = f"The name of the schema has changed from {writer.name} to {reader.name}"
                return [Difference("NAME_MISMATCH", f"{at}/name", text, f"expected: {writer.name}")]
            case "record":
                return self._fields(reader, writer, at)
            case "enum":
                return _symbols(reader, writer, at)
        return _sizes(reader, writer, at)

    def _fresh(self, reader: AvroType, writer: AvroType) -> list[Difference]:
        """Try one branch of a reader's union. A failure below it says nothing about others."""
        return self.differences(reader, writer, "")

    def _each_branch(self, reader: AvroType, writer: AvroType, at: str) -> list[Difference]:
        found: list[Difference] = []
        for n, branch in enumerate(writer.branches):
            place = f"{at}/{n}"
            if reader.kind != "union":
                found += self._judged(reader, branch, at)
            elif self._judged(reader, branch, place):
                found.append(_missing_branch(branch, place))
        return found

    def _fields(self, reader: AvroType, writer: AvroType, at: str) -> list[Difference]:
        by_name = {one.name: one for one in writer.fields}
        found: list[Difference] = []
        for n, one in enumerate(reader.fields):
            place = f"{at}/fields/{n}"
            other = _written(one, by_name)
            if other is not None:
                found += self.differences(one.type, other.type, f"{place}/type")
            elif one.default is NO_DEFAULT:
                text = f"The field {one.name} has no default and is missing in the written schema"
                kind = "READER_FIELD_MISSING_DEFAULT_VALUE"
                found.append(Difference(kind, place, text, one.name))
        return found


def _written(one: AvroField, by_name: dict[str, AvroField]) -> AvroField | None:
    names = (one.name, *one.aliases)
    return next((by_name[name] for name in names if name in by_name), None)


def _same_name(reader: AvroType, writer: AvroType) -> bool:
    return reader.short_name == writer.short_name or writer.name in reader.aliases


def _symbols(reader: AvroType, writer: AvroType, at: str) -> list[Difference]:
    missing = [symbol for symbol in writer.symbols if symbol not in reader.symbols]
    if not missing or reader.default is not None:
        return []
    text = f"The enum {reader.name} lacks symbols and has no default"
    return [Difference("MISSING_ENUM_SYMBOLS", f"{at}/symbols", text, str(missing))]


def _sizes(reader: AvroType, writer: AvroType, at: str) -> list[Difference]:
    if reader.size != writer.size:
        text = f"The size of {reader.name} has changed"
        extra = f"expected: {writer.size}, found: {reader.size}"
        return [Difference("FIXED_SIZE_MISMATCH", f"{at}/size", text, extra)]
    if reader.decimal and writer.decimal and reader.decimal != writer.decimal:
        text = "Precision or scale of a decimal has changed"
        extra = f"expected: {writer.decimal}, found: {reader.decimal}"
        return [Difference("TYPE_MISMATCH", at or "/", text, extra)]
    return []


def _mismatch(reader: AvroType, writer: AvroType, at: str) -> Difference:
    text = f"The type {reader.kind} does not read the written type {writer.kind}"
    extra = f"reader type: {reader.kind.upper()} not compatible with writer type: "
    return Difference("TYPE_MISMATCH", at or "/", text, extra + writer.kind.upper())


def _missing_branch(writer: AvroType, at: str) -> Difference:
    extra = f"reader union lacking writer type: {writer.kind.upper()}"
    text = f"The union lacks a branch for the written type {writer.name or writer.kind}"
    return Difference("MISSING_UNION_BRANCH", at or "/", text, extra)
