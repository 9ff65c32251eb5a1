"""Avro schemas: what is valid, which data a reader reads, and where a message points."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from fastavro import utils

from sparklog.registry.formats.avro import parse_avro
from sparklog.registry.formats.avro_compatibility import avro_differences
from sparklog.registry.model.refusal import RegistryRefused

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
NODE = {
    "type": "record", "name": "Node",
    "fields": [{"name": "v", "type": "int"}, {"name": "next", "type": ["null", "Node"]}],
}  # fmt: skip


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def kinds(reader: Any, writer: Any) -> list[tuple[str, str]]:
    parsed = [parse_avro(json.dumps(one)) for one in (reader, writer)]
    return [(one.kind, one.path) for one in avro_differences(*parsed)]


READS = [
    ("long", "int"), ("float", "int"), ("double", "int"), ("float", "long"), ("double", "long"),
    ("double", "float"), ("string", "bytes"), ("bytes", "string"),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}),
    ({"type": "map", "values": ["null", "long"]}, {"type": "map", "values": "int"}),
    (["null", "int"], "null"), (["null", "string", "long"], ["null", "int"]), ("int", ["int"]),
    (record(field("n", "int", default=1)), record()),
    (record(), record(field("n", "int"))),
    (record(field("b", "int", aliases=["a"])), record(field("a", "int"))),
    (record(name="New", aliases=["Old"]), record(name="Old")),
    (record(name="R", namespace="x"), record(name="R", namespace="y")),
    ({**ENUM, "symbols": ["A", "B", "C"]}, ENUM),
    ({**ENUM, "symbols": ["A"], "default": "A"}, ENUM),
    (NODE, NODE),
]  # fmt: skip
FAILS = [
    ("int", "long", [("TYPE_MISMATCH", "/")]),
    ("long", "float", [("TYPE_MISMATCH", "/")]),
    ("string", "int", [("TYPE_MISMATCH", "/")]),
    ("int", ["null", "int"], [("TYPE_MISMATCH", "/")]),
    (["null", "int"], ["null", "string"], [("MISSING_UNION_BRANCH", "/1")]),
    (["null", "int"], "string", [("MISSING_UNION_BRANCH", "/")]),
    (record(field("n", "int")), record(), [("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/0")]),
    (
        record(field("m", "int", default=0), field("n", {"type": "array", "items": "int"})),
        record(field("n", {"type": "array", "items": "string"})),
        [("TYPE_MISMATCH", "/fields/1/type/items")],
    ),
    (record(name="A"), record(name="B"), [("NAME_MISMATCH", "/name")]),
    ({**ENUM, "symbols": ["A"]}, ENUM, [("MISSING_ENUM_SYMBOLS", "/symbols")]),
    (
        {"type": "fixed", "name": "F", "size": 2},
        {"type": "fixed", "name": "F", "size": 3},
        [("FIXED_SIZE_MISMATCH", "/size")],
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
        [("TYPE_MISMATCH", "/")],
    ),
    (
        {**NODE, "fields": [field("v", "string"), NODE["fields"][1]]},
        NODE,
        [("TYPE_MISMATCH", "/fields/0/type")],
    ),
]


@pytest.mark.parametrize(("reader", "writer"), READS)
def test_readers_read_all_that_the_rules_allow(reader: Any, writer: Any) -> None:
    assert kinds(reader, writer) == []


@pytest.mark.parametrize(("reader", "writer", "expected"), FAILS)
def test_a_difference_has_its_kind_and_path(reader: Any, writer: Any, expected: Any) -> None:
    assert kinds(reader, writer) == expected


@pytest.mark.parametrize(("reader", "writer"), [(r, w) for r, w in READS if r not in (w, "string")])
def test_fastavro_decodes_each_compatible_pair(reader: Any, writer: Any) -> None:
    made = io.BytesIO()
    written = fastavro.parse_schema(writer)
    fastavro.schemaless_writer(made, written, utils.generate_one(written))
    made.seek(0)
    fastavro.schemaless_reader(made, written, fastavro.parse_schema(reader))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        ('"Missing"', "undefined name"),
        ('{"type":"record","name":"R"}', "without fields"),
        ('{"type":"record","name":"1R","fields":[]}', "illegal name"),
        ('{"type":"record","name":"R","fields":[{"name":"a b","type":"int"}]}', "illegal name"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}',
         "does not have the type"),
        ('["int","int"]', "twice in a union"),
        ('["int",["null"]]', "directly in a union"),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "symbol twice"),
        ('{"type":"enum","name":"E","symbols":["A"],"default":"B"}', "is no symbol"),
        ('{"type":"fixed","name":"F","size":-1}', "without a size"),
        ('[{"type":"fixed","name":"F","size":1},{"type":"fixed","name":"F","size":1}]', "twice"),
        ("[" * 70 + "]" * 70, "nested too deeply"),
    ],
)  # fmt: skip
def test_an_invalid_schema_is_refused_with_its_reason(text: str, why: str) -> None:
    with pytest.raises(RegistryRefused, match=why) as refused:
        parse_avro(text)
    assert refused.value.code == 42201


def test_a_failed_branch_leaves_no_false_yes_behind() -> None:
    """The pair (B, B) counts on (A, A), which fails: `B` must then fail everywhere."""
    inner = record(field("a", "A"), name="B")
    outer = record(field("b", inner), field("n", "int"), name="A")
    reader = record(
        field("x", ["null", record(field("b", inner), field("n", "string"), name="A")]),
        field("y", ["null", "B"]),
    )
    writer = record(field("x", ["null", outer]), field("y", ["null", "B"]))
    assert ("MISSING_UNION_BRANCH", "/fields/1/type/1") in kinds(reader, writer)
