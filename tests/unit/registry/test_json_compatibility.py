"""JSON Schema: a reader accepts all that a writer accepts, or the change is refused."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.registry.formats.json_compatibility import json_differences
from sparklog.registry.formats.json_schema import parse_json_schema
from sparklog.registry.model.refusal import RegistryRefused


def kinds(reader: Any, writer: Any) -> list[str]:
    parsed = [parse_json_schema(json.dumps(one), {}) for one in (reader, writer)]
    return [one.kind for one in json_differences(*parsed)]


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


TEXT, WHOLE, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
TREE = {"$ref": "#/definitions/t", "definitions": {
    "t": {"type": "object", "properties": {"next": {"$ref": "#/definitions/t"}}}}}  # fmt: skip


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (True, TEXT), (NUMBER, WHOLE), ({"type": ["string", "null"]}, TEXT), (TREE, TREE),
        (closed(a=WHOLE, b=TEXT), closed(a=WHOLE)),
        ({"type": "object", "properties": {"a": WHOLE}}, closed(a=WHOLE)),
        ({"enum": [1, 2, 3]}, {"enum": [1, 3]}), ({"enum": ["a"]}, {"const": "a"}),
        ({"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 2}),
        ({"type": "number", "exclusiveMaximum": 9}, {"type": "number", "maximum": 8}),
        ({"type": "string", "maxLength": 9}, {"type": "string", "maxLength": 8}),
        ({"type": "array", "items": NUMBER}, {"type": "array", "items": WHOLE}),
        ({"oneOf": [{"type": "null"}, TEXT]}, TEXT), ({"anyOf": [TEXT, NUMBER]}, WHOLE),
        ({"oneOf": [{"type": "null"}, NUMBER, TEXT]}, {"oneOf": [{"type": "null"}, WHOLE]}),
        ({"allOf": [TEXT]}, {"allOf": [TEXT, {"maxLength": 3}]}),
        ({"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^a", "title": "T"}),
        ({"type": "integer", "multipleOf": 2}, {"type": "integer", "multipleOf": 4}),
    ],
)  # fmt: skip
def test_a_reader_that_accepts_more_is_compatible(reader: Any, writer: Any) -> None:
    assert kinds(reader, writer) == []


@pytest.mark.parametrize(
    ("reader", "writer", "kind"),
    [
        (TEXT, NUMBER, "TYPE_NARROWED"),
        (WHOLE, NUMBER, "TYPE_NARROWED"),
        (TEXT, True, "TYPE_NARROWED"),
        (closed(a=WHOLE), closed(a=WHOLE, b=TEXT), "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
        ({"type": "object", "properties": {"a": WHOLE}}, {"type": "object"},
         "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"),
        ({"type": "object", "required": ["a"]}, {"type": "object"}, "REQUIRED_ATTRIBUTE_ADDED"),
        ({"type": "string", "pattern": "^a"}, TEXT, "CANNOT_JUDGE"),
        ({"not": TEXT}, WHOLE, "CANNOT_JUDGE"),
        ({"oneOf": [TEXT, {"maxLength": 3}]}, TEXT, "CANNOT_JUDGE"),
        ({"enum": [1]}, {"enum": [1, True]}, "ENUM_ARRAY_NARROWED"),
        ({"type": "number", "exclusiveMinimum": 1}, {"type": "number", "minimum": 1},
         "EXCLUSIVEMINIMUM_NARROWED"),
        ({"type": "array", "maxItems": 3}, {"type": "array"}, "MAXITEMS_LOWERED"),
        ({"$schema": "http://json-schema.org/draft-04/schema#"}, {"type": "string"},
         "CANNOT_JUDGE"),
        ({"$ref": "#/definitions/a", "definitions": {"a": TEXT}},
         {"$ref": "#/definitions/a", "definitions": {"a": NUMBER}}, "TYPE_NARROWED"),
    ],
)  # fmt: skip
def test_a_narrower_reader_is_refused_with_the_kind(reader: Any, writer: Any, kind: str) -> None:
    assert kind in kinds(reader, writer)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('"text"', "an object or a boolean"),
        ('{"type": "strong"}', "is not valid"),
        ('{"$schema": "http://example.com/s"}', "draft is not known"),
        ('{"$ref": "#/definitions/none"}', "leads nowhere"),
        ('{"$ref": "http://example.com/other.json"}', "leads nowhere"),
        ('{"a":' * 70 + "1" + "}" * 70, "nested too deeply"),
    ],
)
def test_an_invalid_schema_is_refused_with_its_reason(text: str, why: str) -> None:
    with pytest.raises(RegistryRefused, match=why):
        parse_json_schema(text, {})


def test_a_schema_that_leads_back_to_itself_is_refused() -> None:
    with pytest.raises(RegistryRefused, match="back to itself"):
        kinds({"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/a"}}}, TEXT)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["", "a", "abc"]),
    st.lists(st.integers(-1, 1), max_size=2),
    st.dictionaries(st.sampled_from("ab"), st.integers(-1, 1) | st.just("a"), max_size=2),
)  # fmt: skip
LEAVES = st.one_of(
    st.booleans(),
    st.fixed_dictionaries({}, optional={
        "type": st.sampled_from(["null", "integer", "number", "string", "object", "array"])
        | st.lists(st.sampled_from(["null", "integer", "string", "object"]), min_size=1,
                   unique=True),
        "minimum": st.integers(-2, 2), "exclusiveMaximum": st.integers(-2, 2),
        "multipleOf": st.integers(1, 3), "minLength": st.integers(0, 2),
        "maxLength": st.integers(0, 2), "maxItems": st.integers(0, 2),
        "required": st.lists(st.sampled_from("ab"), unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=3, unique_by=json.dumps),
        "pattern": st.just("^a"), "maxProperties": st.integers(0, 2),
        "uniqueItems": st.booleans(),
    }),
)  # fmt: skip
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.fixed_dictionaries({}, optional={
        "type": st.sampled_from(["object", "array", "integer"]),
        "properties": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
        "additionalProperties": inner, "items": inner, "not": inner,
        "anyOf": st.lists(inner, min_size=1, max_size=2),
        "oneOf": st.lists(inner, min_size=1, max_size=2),
        "allOf": st.lists(inner, min_size=1, max_size=2),
    }),
    max_leaves=4,
)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(SCHEMAS, SCHEMAS, st.lists(VALUES, min_size=8, max_size=8))
def test_no_document_of_the_writer_fails_a_compatible_reader(
    reader: Any, writer: Any, values: list[Any]
) -> None:
    for one, other in ((reader, writer), (writer, writer)):
        if kinds(one, other):
            assert one is not writer, "a schema accepts what it accepts"
            continue
        for value in values:
            if jsonschema.Draft7Validator(other).is_valid(value):
                jsonschema.Draft7Validator(one).validate(value)
