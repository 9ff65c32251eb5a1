"""Bounds on what bytes of an Avro schema may unfold to.

Some types take no bytes: null, a record of such. An array of them may claim any length. Records
that use others twice may stand for any number of values. The compiled reader of fastavro ends the
process when values nest some thousand levels deep.
"""

from __future__ import annotations

from typing import Final

from sparklog.registry.formats.avro import AvroType
from sparklog.registry.model.refusal import invalid_schema

VALUES_MAX: Final = 10_000
"""Values of one record that need no byte of their own, records inside it counted."""
SHALLOW: Final = 100
"""Levels that the compiled reader may go down."""


def check_decodable(kind: AvroType) -> None:
    """Refuse a schema whose values may unfold without bound.

    Raises:
        RegistryRefused: an array has items without bytes, or a record stands for too many values.
    """
    try:
        _check(kind, {}, {})
    except RecursionError:
        raise invalid_schema("it nests too deeply to be decoded") from None


def is_shallow(kind: AvroType) -> bool:
    """Return True if no value nests deeper than `SHALLOW`; recursive types may."""
    return _is_within(kind, SHALLOW, {})


def _is_within(kind: AvroType, levels: int, known: dict[int, int]) -> bool:
    if known.get(id(kind), -1) >= levels:  # looked at with as many levels below or more left
        return True
    if levels == 0:
        return False
    found = all(_is_within(one, levels - 1, known) for one in _parts(kind))
    if found:
        known[id(kind)] = levels
    return found


def _parts(kind: AvroType) -> list[AvroType]:
    inner = [] if kind.inner is None else [kind.inner]
    return [*inner, *kind.branches, *(one.type for one in kind.fields)]


def _check(kind: AvroType, weights: dict[int, int], empty: dict[int, bool]) -> int:
    """Return the values that one value of a type holds before a byte is read; check its parts."""
    if id(kind) in weights:
        return weights[id(kind)]
    weights[id(kind)] = 1  # of a type that holds itself: behind a union, an array or a map
    parts = [_check(part, weights, empty) for part in _parts(kind)]
    if kind.kind == "array" and kind.inner is not None and _is_empty(kind.inner, empty):
        raise invalid_schema("items of an array take no bytes, so a value may claim any number")
    weight = 1 + sum(parts) if kind.kind == "record" else 1
    if weight > VALUES_MAX:
        raise invalid_schema(f"a record holds more than {VALUES_MAX} values. name={kind.name}")
    weights[id(kind)] = weight
    return weight


def _is_empty(kind: AvroType, known: dict[int, bool]) -> bool:
    if id(kind) not in known:
        known[id(kind)] = False  # of a type that holds itself: it takes the byte of a union
        known[id(kind)] = (
            kind.kind == "null"
            or (kind.kind == "fixed" and kind.size == 0)
            or (kind.kind == "record" and all(_is_empty(f.type, known) for f in kind.fields))
        )
    return known[id(kind)]
