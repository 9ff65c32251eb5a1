"""JSON Schema: whether a reader's schema accepts each document that a writer's schema accepts.

The judgement is safe: it never says yes where a document could fail. A keyword that no rule here
covers passes only if both schemas have it alike, or the reader's has none. REGISTRY.md lists the
rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sparklog.registry.formats.difference import Difference, within_depth
from sparklog.registry.formats.json_schema import JsonSchema, draft_of
from sparklog.registry.model.refusal import invalid_schema

ANNOTATIONS: Final = frozenset(
    {
        "$schema", "$id", "id", "$comment", "$anchor", "$defs", "definitions", "title",
        "description", "default", "examples", "deprecated", "readOnly", "writeOnly",
        "contentMediaType", "contentEncoding", "contentSchema",
    }
)  # fmt: skip
"""Keywords that accept and reject nothing. `x-…` and `javaType`-like names are unknown keywords:
no draft gives them a meaning either."""
TYPES: Final = frozenset({"null", "boolean", "object", "array", "number", "string", "integer"})
_EACH_TYPE: Final = TYPES - {"integer"}
_LOWER: Final = {"minimum", "exclusiveMinimum"}
_LENGTHS: Final = {
    "string": ("minLength", "maxLength"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
}
_BRANCHES: Final = ("anyOf", "oneOf")
_JUDGED: Final = frozenset(
    {
        "$ref", "type", "enum", "const", "properties", "additionalProperties", "required", "items",
        "allOf", "anyOf", "oneOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
        "multipleOf", "uniqueItems", *(word for pair in _LENGTHS.values() for word in pair),
    }
)  # fmt: skip
_UNJUDGED_OF_TYPE: Final = {
    "pattern": "string", "format": "string", "contains": "array", "minContains": "array",
    "maxContains": "array", "prefixItems": "array", "additionalItems": "array",
    "unevaluatedItems": "array", "patternProperties": "object", "propertyNames": "object",
    "dependencies": "object", "dependentRequired": "object", "dependentSchemas": "object",
    "unevaluatedProperties": "object", "not": "", "if": "", "then": "", "else": "",
    "$dynamicRef": "", "$recursiveRef": "",
}  # fmt: skip
"""Keywords that pass only if they are alike in both, and the type that each is about."""
_NEVER: Final = frozenset(
    {"unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef"}
)
"""They depend on what stands elsewhere, so even alike ones pass only in equal schemas."""
_WITH_SIBLINGS: Final = frozenset({"draft/2019-09", "draft/2020-12"})
REFERENCES_FOLLOWED_MAX: Final = 100
JUDGED_MAX: Final = 100_000
"""Bound on the pairs of schemas that one comparison looks at."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A schema in a document: its own `$ref` is relative to that document."""

    base: Any
    schema: Any

    def at(self, schema: Any) -> _Place:
        return _Place(self.base, schema)

    def get(self, keyword: str, default: Any = None) -> Any:
        return self.schema.get(keyword, default) if isinstance(self.schema, Mapping) else default

    def has(self, keyword: str) -> bool:
        return isinstance(self.schema, Mapping) and keyword in self.schema


def json_differences(reader: JsonSchema, writer: JsonSchema) -> list[Difference]:
    """Return why `reader` may reject a document that `writer` accepts; empty if it cannot.

    Raises:
        RegistryRefused: the schemas nest too deeply, or are too complex.
    """
    drafts = draft_of(reader.document), draft_of(writer.document)
    if drafts[0] != drafts[1]:
        text = f"No rule judges a change of the draft, from {drafts[1]} to {drafts[0]}"
        return [_difference("CANNOT_JUDGE", "/$schema", text)]
    comparison = _JsonComparison(reader, writer)
    first = _Place(reader.document, reader.document), _Place(writer.document, writer.document)
    return within_depth(lambda: comparison.judged(*first, ""))


class _JsonComparison:
    def __init__(self, reader: JsonSchema, writer: JsonSchema) -> None:
        self._reader = reader
        self._writer = writer
        self._open: set[tuple[int, int]] = set()
        self._made: dict[int, Any] = {}
        """Schemas made here, by the object they stand for. Kept, so that `id` stays theirs."""
        self._kept: list[Any] = []
        self._left = JUDGED_MAX

    def judged(self, reader: _Place, writer: _Place, at: str) -> list[Difference]:
        """Return the differences of two schemas. A pair under way counts as accepted."""
        pair = (id(reader.schema), id(writer.schema))
        if pair in self._open:
            return []
        self._left -= 1
        if self._left < 0:
            raise invalid_schema("it is too complex to be compared")
        # Texts and numbers are no schemas; equal ones may be one object.
        self._open.add(pair)
        try:
            return self._compared(reader, writer, at)
        finally:
            self._open.discard(pair)

    def _followed(self, schema: JsonSchema, place: _Place) -> _Place:
        """Return the schema that a `$ref` leads to. Up to draft 7 keywords beside it do nothing."""
        for _ in range(REFERENCES_FOLLOWED_MAX):
            reference = place.get("$ref")
            if not isinstance(reference, str):
                return place
            beside = {k: v for k, v in place.schema.items() if k != "$ref" and k not in ANNOTATIONS}
            if beside and draft_of(place.base) in _WITH_SIBLINGS:
                key = id(place.schema)
                if key not in self._made:
                    self._kept.append(place.schema)
                    self._made[key] = {"allOf": [{"$ref": reference}, beside]}
                return place.at(self._made[key])
            place = _Place(*schema.resolved(place.base, reference))
        raise invalid_schema("a $ref leads back to itself")

    def _compared(self, reader: _Place, writer: _Place, at: str) -> list[Difference]:
        reader, writer = self._followed(self._reader, reader), self._followed(self._writer, writer)
        if reader.schema is True or writer.schema is False or _is_open(reader.schema):
            return []
        if reader.schema is False:
            return [_difference("SCHEMA_REMOVED", at, "The reader's schema accepts nothing")]
        if self._alike(reader, writer):
            return []
        for keyword in _BRANCHES:
            if writer.has(keyword):
                # Each branch holds beside the other keywords, so it accepts no more than this one.
                return self._any_writer_branch(reader, writer, keyword, at)
        if writer.has("allOf"):
            return self._all_of_writer(reader, writer, at)
        found = self._branches(reader, writer, at)
        found += _types(reader, writer, at)
        found += _values(reader, writer, at)
        for kind in sorted(_types_of(writer)):
            rules: dict[str, Callable[[_Place, _Place, str], list[Difference]]] = {
                "object": self._objects,
                "array": self._arrays,
                "number": _numbers,
                "integer": _numbers,
                "string": lambda r, w, a: _lengths(r, w, a, "string"),
            }
            if kind in rules:
                found += rules[kind](reader, writer, at)
        return found + self._unjudged(reader, writer, at)

    def _any_writer_branch(
        self, reader: _Place, writer: _Place, keyword: str, at: str
    ) -> list[Difference]:
        rest = {k: v for k, v in writer.schema.items() if k != keyword}
        branches = [writer.at(_merged(rest, branch)) for branch in writer.get(keyword)]
        self._kept.append(branches)
        if any(branch.schema is None for branch in branches):
            return [_cannot(keyword, at)]
        if reader.has("oneOf") and self._alike_keyword(reader, writer, "oneOf"):
            reader = reader.at({k: v for k, v in reader.schema.items() if k != "oneOf"})
        return [one for branch in branches for one in self.judged(reader, branch, at)]

    def _all_of_writer(self, reader: _Place, writer: _Place, at: str) -> list[Difference]:
        """Accept if some part of the writer's `allOf`, or the rest beside it, is enough."""
        rest = {k: v for k, v in writer.schema.items() if k != "allOf"}
        least: list[Difference] | None = None
        for part in (rest, *writer.get("allOf")):
            found = self.judged(reader, writer.at(part), at)
            if not found:
                return []
            least = found if least is None or len(found) < len(least) else least
        return least or []

    def _branches(self, reader: _Place, writer: _Place, at: str) -> list[Difference]:
        found: list[Difference] = []
        for n, part in enumerate(reader.get("allOf", ())):
            found += self.judged(reader.at(part), writer, f"{at}/allOf/{n}")
        for keyword in _BRANCHES:
            branches = reader.get(keyword)
            if branches is None:
                continue
            if keyword == "oneOf" and not self._apart(reader, branches):
                found.append(_cannot("oneOf", at))
            elif all(self.judged(reader.at(one), writer, f"{at}/{keyword}") for one in branches):
                text = "No branch of the reader's schema accepts what the writer's does"
                found.append(_difference("SUM_TYPE_NARROWED", f"{at}/{keyword}", text))
        return found

    def _apart(self, reader: _Place, branches: list[Any]) -> bool:
        """Return True if no document fits two branches: they have no type in common."""
        seen: set[str] = set()
        for branch in branches:
            place = self._followed(self._reader, reader.at(branch))
            if not place.has("type"):
                return False
            kinds = {"number" if kind == "integer" else kind for kind in _types_of(place)}
            if seen & kinds:
                return False
            seen |= kinds
        return True

    def _objects(self, reader: _Place, writer: _Place, at: str) -> list[Difference]:
        found = _lengths(reader, writer, at, "object")
        for name in reader.get("required", ()):
            if name not in writer.get("required", ()):
                text = f"The reader's schema requires {name}, the writer's does not"
                kind = "REQUIRED_ATTRIBUTE_ADDED"
                found.append(_difference(kind, f"{at}/required/{name}", text))
        own, others = reader.get("properties", {}), writer.get("properties", {})
        if (own or reader.get("additionalProperties", True) is not True) and (
            writer.has("patternProperties")
        ):
            return [*found, _cannot("patternProperties", at)]
        for name in sorted({*own, *others}):
            place = f"{at}/properties/{name}"
            here = reader.at(own.get(name, reader.get("additionalProperties", True)))
            there = writer.at(others.get(name, writer.get("additionalProperties", True)))
            if name not in others and there.schema is True and self.judged(here, there, place):
                kind = "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"
                text = f"The writer's schema lets {name} have any value"
                found.append(_difference(kind, place, text))
            elif name not in own and here.schema is False and there.schema is not False:
                kind = "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"
                text = f"The reader's schema does not allow {name}"
                found.append(_difference(kind, place, text))
            else:
                found += self.judged(here, there, place)
        rest = [one.at(one.get("additionalProperties", True)) for one in (reader, writer)]
        if self.judged(rest[0], rest[1], f"{at}/additionalProperties"):
            text = "The reader's schema accepts fewer additional properties"
            kind = "ADDITIONAL_PROPERTIES_NARROWED"
            found.append(_difference(kind, f"{at}/additionalProperties", text))
        return found

    def _arrays(self, reader: _Place, writer: _Place, at: str) -> list[Difference]:
        found = _lengths(reader, writer, at, "array")
        if reader.get("uniqueItems") is True and writer.get("uniqueItems") is not True:
            text = "The reader's schema requires unique items"
            found.append(_difference("UNIQUE_ITEMS_ADDED", f"{at}/uniqueItems", text))
        here, there = reader.get("items", True), writer.get("items", True)
        if isinstance(here, list) or isinstance(there, list) or writer.has("prefixItems"):
            if not self._alike_keyword(reader, writer, "items") and here is not True:
                found.append(_cannot("items", at))
            return found
        return found + self.judged(reader.at(here), writer.at(there), f"{at}/items")

    def _unjudged(self, reader: _Place, writer: _Place, at: str) -> list[Difference]:
        kinds = {"number" if kind == "integer" else kind for kind in _types_of(writer)}
        return [
            _cannot(keyword, at)
            for keyword in reader.schema
            if keyword not in _JUDGED
            and (kind := _UNJUDGED_OF_TYPE.get(keyword)) is not None
            and (not kind or kind in kinds)
            and (keyword in _NEVER or not self._alike_keyword(reader, writer, keyword))
        ]

    def _alike_keyword(self, reader: _Place, writer: _Place, keyword: str) -> bool:
        if not (reader.has(keyword) and writer.has(keyword)):
            return False
        return self._same(reader.at(reader.get(keyword)), writer.at(writer.get(keyword)), set())

    def _alike(self, reader: _Place, writer: _Place) -> bool:
        return self._same(reader, writer, set())

    def _same(self, one: _Place, other: _Place, seen: set[tuple[int, int]]) -> bool:
        """Return True if two schemas are equal, annotations aside, `$ref`s followed."""
        one, other = self._followed(self._reader, one), self._followed(self._writer, other)
        here, there = one.schema, other.schema
        self._left -= 1
        if self._left < 0:
            raise invalid_schema("it is too complex to be compared")
        if isinstance(here, Mapping) and isinstance(there, Mapping):
            pair = (id(here), id(there))
            if pair in seen:
                return True
            seen.add(pair)
            names = here.keys() - ANNOTATIONS
            return names == there.keys() - ANNOTATIONS and all(
                self._same(one.at(here[name]), other.at(there[name]), seen) for name in names
            )
        if isinstance(here, list) and isinstance(there, list):
            return len(here) == len(there) and all(
                self._same(one.at(a), other.at(b), seen) for a, b in zip(here, there, strict=True)
            )
        return type(here) is type(there) and bool(here == there)


def _is_open(schema: Any) -> bool:
    return isinstance(schema, Mapping) and not schema.keys() & (_JUDGED | _UNJUDGED_OF_TYPE.keys())


def _types_of(place: _Place) -> set[str]:
    """Return the types of documents that a schema may accept; "number" includes integers."""
    given = place.get("type")
    if given is not None:
        return {given} if isinstance(given, str) else set(given)
    values = _finite_values(place)
    if values is not None:
        return {_type_of(value) for value in values}
    return set(_EACH_TYPE)


def _type_of(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    names: dict[type, str] = {float: "number", str: "string", list: "array", dict: "object"}
    return next((name for kind, name in names.items() if isinstance(value, kind)), "null")


def _types(reader: _Place, writer: _Place, at: str) -> list[Difference]:
    if not reader.has("type"):
        return []
    accepted, written = _types_of(reader), _types_of(writer)
    if "number" in accepted:
        accepted = accepted | {"integer"}
    missing = sorted(written - accepted)
    if not missing:
        return []
    text = f"The reader's schema does not accept the type {missing[0]}"
    return [_difference("TYPE_NARROWED", f"{at}/type", text)]


def _finite_values(place: _Place) -> list[Any] | None:
    if place.has("const"):
        return [place.get("const")]
    found = place.get("enum")
    return found if isinstance(found, list) else None


def _values(reader: _Place, writer: _Place, at: str) -> list[Difference]:
    accepted = _finite_values(reader)
    if accepted is None:
        return []
    written = _finite_values(writer)
    if written is not None and all(_is_among(one, accepted) for one in written):
        return []
    return [_difference("ENUM_ARRAY_NARROWED", f"{at}/enum", "The reader accepts fewer values")]


def _is_among(value: Any, values: Iterable[Any]) -> bool:
    return any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in values)


def _lengths(reader: _Place, writer: _Place, at: str, kind: str) -> list[Difference]:
    lower, upper = _LENGTHS[kind]
    found = []
    if reader.get(lower, 0) > writer.get(lower, 0):
        found.append(_difference(f"{lower.upper()}_RAISED", f"{at}/{lower}", f"{lower} is higher"))
    if reader.has(upper) and (not writer.has(upper) or writer.get(upper) > reader.get(upper)):
        found.append(_difference(f"{upper.upper()}_LOWERED", f"{at}/{upper}", f"{upper} is lower"))
    return found


def _numbers(reader: _Place, writer: _Place, at: str) -> list[Difference]:
    found = []
    for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        limit = reader.get(keyword)
        if limit is None or limit is False:
            continue
        if isinstance(limit, bool) or isinstance(writer.get(keyword), bool):
            alike = all(reader.get(k) == writer.get(k) for k in (keyword, keyword[9:].lower()))
            found += [] if alike else [_cannot(keyword, at)]
        elif not _within(limit, keyword, writer):
            text = f"{keyword} is stricter in the reader's schema"
            found.append(_difference(f"{keyword.upper()}_NARROWED", f"{at}/{keyword}", text))
    step = reader.get("multipleOf")
    if step is not None:
        other = writer.get("multipleOf")
        whole = isinstance(step, int) and isinstance(other, int)
        if other != step and not (whole and other % step == 0):
            text = "multipleOf of the writer's schema is no multiple of the reader's"
            found.append(_difference("MULTIPLE_OF_CHANGED", f"{at}/multipleOf", text))
    return found


def _within(limit: float, keyword: str, writer: _Place) -> bool:
    """Return True if no number that the writer may write exceeds a limit of the reader."""
    strict = keyword.startswith("exclusive")
    plain = keyword[9:].lower() if strict else keyword
    sign = 1 if keyword in _LOWER else -1
    inner, outer = writer.get(plain), writer.get(f"exclusive{plain.capitalize()}")
    if outer is not None and not isinstance(outer, bool) and sign * (outer - limit) >= 0:
        return True
    if inner is None:
        return False
    return sign * (inner - limit) > 0 or (inner == limit and not strict)


def _merged(rest: Mapping[str, Any], branch: Any) -> Any:
    """Return a branch with the keywords beside it; None if both have a keyword."""
    kept = {k: v for k, v in rest.items() if k not in ANNOTATIONS}
    if not kept:
        return branch
    if not isinstance(branch, Mapping) or kept.keys() & branch.keys() or "$ref" in branch:
        return None
    return {**kept, **branch}


def _cannot(keyword: str, at: str) -> Difference:
    text = f"No rule judges the change of {keyword}"
    return _difference("CANNOT_JUDGE", f"{at}/{keyword}", text)


def _difference(kind: str, at: str, text: str) -> Difference:
    return Difference(kind, at or "/", text)
