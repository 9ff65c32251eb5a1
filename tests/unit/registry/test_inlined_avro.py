"""Avro schemas with references as one text that reads the same values."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from sparklog.registry.formats.avro import inlined_avro, parse_avro
from sparklog.registry.model.refusal import RegistryRefused

KIND = {"type": "enum", "name": "Kind", "symbols": ["X", "Y"]}
ADDRESS = {
    "type": "record", "name": "Address", "namespace": "a.b", "aliases": ["Place"],
    "fields": [{"name": "street", "type": "string", "default": "?"}, {"name": "k", "type": KIND}],
}  # fmt: skip
PLAIN = {"type": "record", "name": "c.Plain", "fields": [
    {"name": "name", "type": {"type": "string", "name": "not a definition"}},
    {"name": "next", "type": ["null", "Plain"]}, {"name": "kind", "type": "a.b.Kind"},
]}  # fmt: skip
ORDER = {"type": "record", "name": "Order", "namespace": "a.b", "fields": [
    {"name": "p", "type": "c.Plain"},
    {"name": "to", "type": "Address"},
    {"name": "also", "type": {"type": "array", "items": ["null", "a.b.Address"]}},
    {"name": "by", "type": {"type": "map", "values": "Kind"}},
    {"name": "me", "type": ["null", "Order"], "default": None},
    {"name": "f", "type": {"type": "fixed", "name": "F", "size": 2}},
]}  # fmt: skip
VALUE: dict[str, Any] = {
    "p": {"name": "n", "next": {"name": "m", "next": None, "kind": "Y"}, "kind": "X"},
    "to": {"street": "s", "k": "Y"}, "also": [None, {"street": "t", "k": "X"}],
    "by": {"a": "Y"}, "me": None, "f": b"ab",
}  # fmt: skip


def test_an_inlined_schema_reads_values_of_the_referring_one() -> None:
    text = inlined_avro(json.dumps(ORDER), [json.dumps(ADDRESS), json.dumps(PLAIN)])
    names: dict[str, Any] = {}
    for one in (ADDRESS, PLAIN):
        fastavro.parse_schema(one, named_schemas=names)
    written = io.BytesIO()
    fastavro.schemaless_writer(
        written, fastavro.parse_schema(ORDER, named_schemas=names), {**VALUE, "me": VALUE}
    )
    written.seek(0)
    inlined = json.loads(text)
    found = fastavro.schemaless_reader(written, fastavro.parse_schema(inlined), None)
    assert found == {**VALUE, "me": VALUE}
    assert parse_avro(text).canonical == text
    address = inlined["fields"][1]["type"]
    assert (address["namespace"], address["aliases"]) == ("a.b", ["Place"])
    assert address["fields"][0]["default"] == "?"
    assert inlined["fields"][0]["type"]["namespace"] == "c"


def test_types_by_name_alone_are_inlined_and_deep_ones_refused() -> None:
    assert inlined_avro('"string"', []) == '"string"'
    outside = inlined_avro(
        '{"type":"record","name":"a.R","fields":[{"name":"k","type":"Kind"}]}', [json.dumps(KIND)]
    )
    assert json.loads(outside)["fields"][0]["type"]["namespace"] == ""
    assert json.loads(inlined_avro('"a.b.Address"', [json.dumps(ADDRESS)]))["name"] == "Address"
    chain = ['{"type":"record","name":"R0","fields":[]}'] + [
        f'{{"type":"record","name":"R{n}","fields":[{{"name":"r","type":"R{n - 1}"}}]}}'
        for n in range(1, 1000)
    ]
    with pytest.raises(RegistryRefused, match="nests too deeply"):
        inlined_avro('"R999"', chain)
