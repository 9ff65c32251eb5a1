"""Avro schemas: parsed as the specification says, and printed in a normal form.

A parsed schema is a graph of `AvroType`: a named type is one object, wherever it is used. Schemas
that are referred to are parsed first, and give their names.
Source: Apache Avro specification 1.12, "Schema Declaration".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sparklog.core.bounded_json import parse_json
from sparklog.core.errors import InvalidJson
from sparklog.registry.model.refusal import RegistryRefused, invalid_schema
from sparklog.registry.model.schema import compact_json, is_whole

PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ORDER: Final = (
    "type", "name", "namespace", "doc", "aliases", "symbols", "items", "values", "size", "fields",
    "default", "order", "logicalType", "precision", "scale",
)  # fmt: skip
"""The order of attributes in the normal form; others follow by name."""
_INT: Final = 1 << 31
_LONG: Final = 1 << 63
_BYTE_MAX: Final = 255
NO_DEFAULT: Final = object()


@dataclass(eq=False, slots=True)
class AvroField:
    """A field of a record."""

    name: str
    type: AvroType
    default: Any
    aliases: tuple[str, ...]


@dataclass(eq=False, slots=True)
class AvroType:
    """A type; which attributes count depends on its kind."""

    kind: str
    name: str = ""
    """The full name of a named type."""
    aliases: tuple[str, ...] = ()
    fields: list[AvroField] = field(default_factory=list)
    symbols: tuple[str, ...] = ()
    default: str | None = None
    """The default symbol of an enum."""
    size: int = 0
    inner: AvroType | None = None
    """The type of items or values."""
    branches: tuple[AvroType, ...] = ()
    decimal: tuple[int, int] | None = None
    """Precision and scale."""
    logical: str = ""
    """The logical type that a primitive or fixed type has."""

    @property
    def short_name(self) -> str:
        """Return the name without its namespace."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A parsed schema."""

    type: AvroType
    canonical: str
    """The text without blanks."""
    normalized: str
    """The text with attributes in one order."""


def parse_avro(text: str, referred: Sequence[str] = ()) -> AvroSchema:
    """Return a parsed schema; `referred` are the texts it refers to, each after those it needs.

    Raises:
        RegistryRefused: no valid schema.
    """
    names: dict[str, AvroType] = {}
    try:
        for other in referred:
            _AvroParser(names).parsed(_document(other), "", "")
        document = _document(text)
        found = _AvroParser(names).parsed(document, "", "")
    except RecursionError:
        raise invalid_schema("it nests too deeply") from None
    return AvroSchema(found, compact_json(document), compact_json(normal_form(document)))


def inlined_avro(text: str, referred: Sequence[str]) -> str:
    """Return one text for a valid schema and those it refers to, for readers without references.

    A named type is defined where it is used first. Arguments as those of `parse_avro`.

    Raises:
        RegistryRefused: it nests too deeply.
    """
    names = _AvroNames()
    try:
        for other in referred:
            names.qualified(_document(other), "")
        return compact_json(names.inlined(names.qualified(_document(text), "")))
    except RecursionError:
        raise invalid_schema("it nests too deeply") from None


def _document(text: str) -> Any:
    bare = text.strip()
    if bare in PRIMITIVES:
        return bare
    try:
        return parse_json(bare, "the Avro schema")
    except InvalidJson as error:
        raise invalid_schema(str(error)) from error


def normal_form(value: Any) -> Any:
    """Return a schema's JSON with attributes in one order, and `{"type": "int"}` as `"int"`."""
    if isinstance(value, list):
        return [normal_form(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    if set(value) == {"type"} and (value["type"] in PRIMITIVES if _is_name(value) else True):
        return normal_form(value["type"])
    is_field = "name" in value and not (_is_name(value) and value["type"] in NAMED)
    order = ("name", *_ORDER) if is_field else _ORDER
    known = list(dict.fromkeys(name for name in order if name in value))
    others = sorted(name for name in value if name not in _ORDER)
    keep = {"default", "doc", *others}
    return {n: value[n] if n in keep else normal_form(value[n]) for n in (*known, *others)}


def _is_name(value: Mapping[str, Any]) -> bool:
    return isinstance(value["type"], str)


class _AvroNames:
    """The definitions of named types in valid documents, by their full names."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._placed: set[str] = set()

    def qualified(self, given: Any, namespace: str) -> Any:
        """Return a type with full names in it; the definitions in it are known afterwards."""
        if isinstance(given, str):
            full = _full_name(given, namespace)
            return full if given not in PRIMITIVES and full in self._known else given
        if isinstance(given, list):
            return [self.qualified(one, namespace) for one in given]
        made = dict(given)
        if _is_name(given) and given["type"] in NAMED:
            made["name"] = name = _declared_name(given, namespace, "")
            self._known[name] = made
            own = name.rpartition(".")[0]
            if "fields" in given:
                made["fields"] = [
                    {**one, "type": self.qualified(one["type"], own)} for one in given["fields"]
                ]
            return made
        for part in ("type", "items", "values"):
            if part in given and given[part] not in ("array", "map"):
                made[part] = self.qualified(given[part], namespace)
        return made

    def inlined(self, given: Any) -> Any:
        """Return a qualified type with each definition at its first use."""
        if isinstance(given, str):
            unplaced = given in self._known and given not in self._placed
            return self.inlined(self._known[given]) if unplaced else given
        if isinstance(given, list):
            return [self.inlined(one) for one in given]
        if not (_is_name(given) and given["type"] in NAMED):
            parts = [part for part in ("type", "items", "values") if part in given]
            return {**given, **{part: self.inlined(given[part]) for part in parts}}
        name = given["name"]
        if name in self._placed:
            return name
        self._placed.add(name)
        namespace, _, short = name.rpartition(".")
        made = {**given, "name": short, "namespace": namespace}
        if "fields" in given:
            made["fields"] = [{**one, "type": self.inlined(one["type"])} for one in given["fields"]]
        return made


class _AvroParser:
    """Parses one document, with the names known so far."""

    def __init__(self, names: dict[str, AvroType]) -> None:
        self._names = names

    def parsed(self, given: Any, namespace: str, at: str) -> AvroType:
        if isinstance(given, str):
            return self._by_name(given, namespace, at)
        if isinstance(given, list):
            return self._union(given, namespace, at)
        if not isinstance(given, Mapping):
            raise _wrong(at, f"no type: {str(given)[:40]!r}")
        kind = given.get("type")
        if isinstance(kind, str) and kind in NAMED:
            return self._named(kind, given, namespace, at)
        if kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            if inner not in given:
                raise _wrong(at, f"an {kind} without {inner}")
            return AvroType(kind, inner=self.parsed(given[inner], namespace, f"{at}/{inner}"))
        if kind is None:
            raise _wrong(at, "no type")
        found = self.parsed(kind, namespace, f"{at}/type")
        logical = given.get("logicalType")
        if found.kind not in PRIMITIVES or not isinstance(logical, str):
            return found
        decimal = _decimal(given, at) if found.kind == "bytes" else None
        return AvroType(found.kind, decimal=decimal, logical=logical)

    def _by_name(self, name: str, namespace: str, at: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        found = self._names.get(_full_name(name, namespace)) or self._names.get(name)
        if found is None:
            raise _wrong(at, f"undefined name: {name[:200]!r}")
        return found

    def _union(self, given: list[Any], namespace: str, at: str) -> AvroType:
        branches = tuple(self.parsed(one, namespace, f"{at}/{n}") for n, one in enumerate(given))
        seen: set[str] = set()
        for branch in branches:
            if branch.kind == "union":
                raise _wrong(at, "a union directly in a union")
            what = branch.name or branch.kind
            if what in seen:
                raise _wrong(at, f"twice in a union: {what}")
            seen.add(what)
        return AvroType("union", branches=branches)

    def _named(self, kind: str, given: Mapping[str, Any], namespace: str, at: str) -> AvroType:
        name = _declared_name(given, namespace, at)
        if name in self._names or name in PRIMITIVES:
            raise _wrong(at, f"defined twice: {name}")
        own = name.rpartition(".")[0]
        aliases = tuple(_full_name(alias, own) for alias in _texts(given, "aliases", at))
        found = AvroType("record" if kind == "error" else kind, name, aliases)
        self._names[name] = found
        if kind == "enum":
            self._fill_enum(found, given, at)
        elif kind == "fixed":
            size = given.get("size")
            if not is_whole(size) or not 0 <= int(size) < _INT:
                raise _wrong(at, "a fixed without a size")
            found.size = int(size)
            found.decimal = _decimal(given, at)
            found.logical = str(given.get("logicalType", ""))
        else:
            self._fill_record(found, given, own, at)
        return found

    def _fill_enum(self, found: AvroType, given: Mapping[str, Any], at: str) -> None:
        found.symbols = tuple(_texts(given, "symbols", at))
        if len(set(found.symbols)) < len(found.symbols):
            raise _wrong(at, "a symbol twice")
        if not all(map(_NAME.fullmatch, found.symbols)):
            raise _wrong(at, "a symbol that is no name")
        default = given.get("default")
        if default is not None and default not in found.symbols:
            raise _wrong(at, f"the default is no symbol: {str(default)[:40]!r}")
        found.default = default

    def _fill_record(
        self, found: AvroType, given: Mapping[str, Any], namespace: str, at: str
    ) -> None:
        fields = given.get("fields")
        if not isinstance(fields, list):
            raise _wrong(at, "a record without fields")
        seen: set[str] = set()
        for n, one in enumerate(fields):
            place = f"{at}/fields/{n}"
            if not isinstance(one, Mapping) or "type" not in one:
                raise _wrong(place, "a field without a type")
            name = one.get("name")
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise _wrong(place, f"illegal name: {str(name)[:40]!r}")
            if name in seen:
                raise _wrong(place, f"a field twice: {name}")
            seen.add(name)
            kind = self.parsed(one["type"], namespace, f"{place}/type")
            default = one.get("default", NO_DEFAULT)
            aliases = tuple(_texts(one, "aliases", place))
            found.fields.append(AvroField(name, kind, default, aliases))
            if default is not NO_DEFAULT and not fits(kind, default):
                raise _wrong(place, f"the default does not have the type: {name}")


def fits(kind: AvroType, value: Any) -> bool:
    """Return True if a default in JSON has the type. For a union, some branch has to fit."""
    match kind.kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            limit = _INT if kind.kind == "int" else _LONG
            return is_whole(value) and -limit <= value < limit
        case "float" | "double":
            return is_whole(value) or isinstance(value, float) or value in ("NaN", "Infinity")
        case "string":
            return isinstance(value, str)
        case "bytes" | "fixed":
            if not isinstance(value, str) or any(ord(char) > _BYTE_MAX for char in value):
                return False
            return kind.kind == "bytes" or len(value) == kind.size
        case "enum":
            return value in kind.symbols
        case "array":
            assert kind.inner is not None, kind
            inner = kind.inner
            return isinstance(value, list) and all(fits(inner, one) for one in value)
        case "map":
            assert kind.inner is not None, kind
            inner = kind.inner
            return isinstance(value, Mapping) and all(fits(inner, v) for v in value.values())
        case "union":
            return any(fits(branch, value) for branch in kind.branches)
    return isinstance(value, Mapping) and all(
        fits(one.type, value[one.name]) if one.name in value else one.default is not NO_DEFAULT
        for one in kind.fields
    )


def _decimal(given: Mapping[str, Any], at: str) -> tuple[int, int] | None:
    """Return precision and scale. As the specification says, a wrong logical type is ignored."""
    if given.get("logicalType") != "decimal":
        return None
    precision, scale = given.get("precision"), given.get("scale", 0)
    if not is_whole(precision) or not is_whole(scale):
        return None
    return (int(precision), int(scale)) if 0 <= scale <= precision else None


def _declared_name(given: Mapping[str, Any], namespace: str, at: str) -> str:
    name = given.get("name")
    if not isinstance(name, str) or not name:
        raise _wrong(at, "a named type without a name")
    space = given.get("namespace", namespace)
    full = _full_name(name, space if isinstance(space, str) else "")
    if not all(map(_NAME.fullmatch, full.split("."))):
        raise _wrong(at, f"illegal name: {full[:200]!r}")
    return full


def _full_name(name: str, namespace: str) -> str:
    return f"{namespace}.{name}" if namespace and "." not in name else name


def _texts(given: Mapping[str, Any], attribute: str, at: str) -> list[str]:
    found = given.get(attribute, [])
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise _wrong(at, f"{attribute} is no list of texts")
    return found


def _wrong(at: str, why: str) -> RegistryRefused:
    return invalid_schema(f"Avro: {why} (at {at or '/'})")
