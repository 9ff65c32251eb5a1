"""Wire types of a message's fields, from kio's dataclasses.

kio generates one dataclass per message, version and nested structure from Kafka's own schemas. Its
native reader reserves memory for as many elements as a peer claims, so twenty hostile bytes end the
process. Therefore `entity_decoder` and `entity_encoder` use these shapes instead.
Source: kio 0.6, `kio.schema`; KIP-482 (flexible versions), KIP-893 (nullable structures).
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin

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


@cache
def shape_of(entity_type: Any) -> EntityShape:
    """Return the shape of a kio entity type.

    Raises:
        TypeError: a field has a type outside Kafka's schemas.
    """
    shapes = [_field_shape(field) for field in fields(entity_type)]
    tagged = sorted((s for s in shapes if s.tag is not None), key=lambda s: s.tag or 0)
    flexible = bool(entity_type.__flexible__)
    return EntityShape(tuple(s for s in shapes if s.tag is None), tuple(tagged), flexible)


def _field_shape(field: Any) -> FieldShape:
    declared, nullable = _without_none(field.type)
    is_array = get_origin(declared) is tuple
    if is_array:
        declared, _ = _without_none(get_args(declared)[0])
    structure: Any = declared if is_dataclass(declared) else None
    kafka_type = "" if structure is not None else field.metadata["kafka_type"]
    tag = field.metadata.get("tag")
    default = field.default if field.default is not MISSING else None
    if tag is not None and default is None and not nullable:
        default = _zero(kafka_type, structure, is_array=is_array)
    return FieldShape(field.name, kafka_type, structure, is_array, nullable, tag, default)


def _without_none(declared: Any) -> tuple[Any, bool]:
    """Return a type without its `| None`, and True if it had one."""
    if get_origin(declared) is not UnionType:
        return declared, False
    kept = [t for t in get_args(declared) if t is not NoneType]
    if len(kept) != 1:
        raise TypeError(f"a field of a message has one type. type={declared}")
    return kept[0], True


def _zero(kafka_type: str, structure: Any, *, is_array: bool) -> Any:
    """Return the value Kafka gives to a tagged field without a default of its own."""
    if is_array:
        return ()
    if structure is not None:
        shape = shape_of(structure)
        return structure(
            **{f.name: _zero_of(f) for f in (*shape.fields, *shape.tagged)},
        )
    return "" if kafka_type == "string" else b"" if kafka_type == "bytes" else 0


def _zero_of(field: FieldShape) -> Any:
    if field.default is not None or field.nullable:
        return field.default
    return _zero(field.kafka_type, field.structure, is_array=field.is_array)
