"""Wire types of the fields of messages and of internal records, from dataclasses.

kio generates one dataclass per message, version and nested structure from Kafka's own schemas. Its
native reader reserves memory for as many elements as a peer claims, so twenty hostile bytes end the
process. Therefore `decoder` and `encoder` use these shapes instead.

Records of internal topics are dataclasses of our own: one for all versions. `Int8` to `Int64` give
a number its width, `FieldVersions` the versions that have a field, and `Tagged` a field's tag.
Source: kio 0.6, `kio.schema`; KIP-482 (flexible versions), KIP-893 (nullable structures).
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, TypeVar, get_args, get_origin, get_type_hints
from uuid import UUID

FIXED: Final = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "bool": "?",
    "error_code": "h",
}
"""Kafka types of a fixed width, with their `struct` codes."""

Int8 = Annotated[int, "int8"]
Int16 = Annotated[int, "int16"]
Int32 = Annotated[int, "int32"]
Int64 = Annotated[int, "int64"]
Extra = TypeVar("Extra")
_PLAIN_TYPES: Final = {str: "string", bytes: "bytes", UUID: "uuid"}
"""Kafka types of Python types that need no width."""


class Version(NamedTuple):
    """A version of an entity type that is declared once for all its versions."""

    number: int
    flexible: bool


class FieldVersions(NamedTuple):
    """Versions that have a field, given beside its type in `Annotated`."""

    since: int
    until: int | None = None
    absent: Any = None
    """The value that other versions are read as."""

    def has(self, version: int) -> bool:
        """Return True if a version has the field."""
        return self.since <= version and (self.until is None or version <= self.until)


class Tagged(NamedTuple):
    """A field's tag, given beside its type in `Annotated`. It is not written if it is default."""

    tag: int
    since: int = 0


@dataclass(frozen=True, slots=True)
class FieldShape:
    """One field: its element type, whether it is an array, nullable, or tagged."""

    name: str
    kafka_type: str
    """Kafka's type of the element, or '' for a structure."""
    structure: Any
    is_array: bool
    nullable: bool
    """True if the array may be null, or the element if there is no array."""
    tag: int | None
    default: Any
    """The value of a tagged field that was not sent."""

    @property
    def struct_code(self) -> str | None:
        """Return the `struct` code of an untagged field of fixed width."""
        if self.is_array or self.nullable or self.tag is not None:
            return None
        return FIXED.get(self.kafka_type)


@dataclass(frozen=True, slots=True)
class EntityShape:
    """A structure: its fields in the order of the wire, then the tagged ones by tag."""

    fields: tuple[FieldShape, ...]
    tagged: tuple[FieldShape, ...]
    flexible: bool
    absent: tuple[tuple[str, Any], ...] = ()
    """Fields that this version does not have, each with the value that it is read as."""


@cache
def shape_of(entity_type: Any, version: Version | None = None) -> EntityShape:
    """Return the shape of a kio entity type, or of a version of one of our own.

    Raises:
        TypeError: a field has a type outside Kafka's schemas.
    """
    declared = _declared(entity_type, version)
    shapes = [_field_shape(f, hint, version) for f, hint, known in declared if known is None]
    by_tag = sorted((s for s in shapes if s.tag is not None), key=lambda s: s.tag or 0)
    return EntityShape(
        tuple(s for s in shapes if s.tag is None),
        tuple(by_tag),
        bool(entity_type.__flexible__) if version is None else version.flexible,
        tuple((f.name, known.absent) for f, _, known in declared if known is not None),
    )


def _declared(
    entity_type: Any, version: Version | None
) -> list[tuple[Any, Any, FieldVersions | None]]:
    """Return each field, its type, and its versions if `version` is not one of them."""
    if version is None:
        return [(f, f.type, None) for f in fields(entity_type)]
    hints = get_type_hints(entity_type, include_extras=True)
    found = []
    for entry in fields(entity_type):
        hint = hints[entry.name]
        known = _extra(hint, FieldVersions) or FieldVersions(0)
        tag = _extra(hint, Tagged)
        if tag is not None:
            known = FieldVersions(tag.since, absent=entry.default)
        found.append((entry, hint, None if known.has(version.number) else known))
    return found


def _field_shape(entry: Any, hint: Any, version: Version | None) -> FieldShape:
    declared, named = _without_extras(hint)
    declared, nullable = _without_none(declared)
    is_array = get_origin(declared) is tuple
    if is_array:
        declared, named = _without_extras(_without_none(get_args(declared)[0])[0])
    structure: Any = declared if is_dataclass(declared) else None
    kafka_type = "" if structure is not None else named or _kafka_type(entry, declared)
    own = _extra(hint, Tagged)
    tag = entry.metadata.get("tag") if own is None else own.tag
    default = entry.default if entry.default is not MISSING else None
    if tag is not None and default is None and not nullable:
        default = _zero(kafka_type, structure, version, is_array=is_array)
    return FieldShape(entry.name, kafka_type, structure, is_array, nullable, tag, default)


def _kafka_type(entry: Any, declared: Any) -> str:
    found = entry.metadata.get("kafka_type") or _PLAIN_TYPES.get(declared)
    if found is None:
        raise TypeError(f"a field has no wire type. field={entry.name} type={declared}")
    return str(found)


def _extra(hint: Any, kind: type[Extra]) -> Extra | None:
    """Return what `Annotated` adds of a kind, or None."""
    extras = getattr(hint, "__metadata__", ())
    return next((extra for extra in extras if isinstance(extra, kind)), None)


def _without_extras(declared: Any) -> tuple[Any, str]:
    """Return a type without what `Annotated` adds, and the Kafka type that it names, or ''."""
    if get_origin(declared) is not Annotated:
        return declared, ""
    named = [extra for extra in declared.__metadata__ if isinstance(extra, str)]
    return declared.__origin__, named[0] if named else ""


def _without_none(declared: Any) -> tuple[Any, bool]:
    """Return a type without its `| None`, and True if it had one."""
    if get_origin(declared) is not UnionType:
        return declared, False
    kept = [t for t in get_args(declared) if t is not NoneType]
    if len(kept) != 1:
        raise TypeError(f"a field of a message has one type. type={declared}")
    return kept[0], True


def _zero(kafka_type: str, structure: Any, version: Version | None, *, is_array: bool) -> Any:
    """Return the value Kafka gives to a tagged field without a default of its own."""
    if is_array:
        return ()
    if structure is not None:
        shape = shape_of(structure, version)
        return structure(
            **{f.name: _zero_of(f, version) for f in (*shape.fields, *shape.tagged)},
        )
    return "" if kafka_type == "string" else b"" if kafka_type == "bytes" else 0


def _zero_of(entry: FieldShape, version: Version | None) -> Any:
    if entry.default is not None or entry.nullable:
        return entry.default
    return _zero(entry.kafka_type, entry.structure, version, is_array=entry.is_array)
