"""Schemas in the console: subjects, differences and compatibility, and records that they decode."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import fastavro
import msgpack
import pyarrow as pa

from sparklog.console.payloads import shown_payload
from sparklog.log.schema import HEADERS
from sparklog.registry import decisions
from sparklog.registry.model.schema import read_content
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.schema_log import RootSchemaLog
from tests.harness.console_browser import Browser

Opens = Callable[..., Browser]

FLIGHT: dict[str, Any] = {
    "type": "record", "name": "Flight",
    "fields": [{"name": "tail", "type": "string"}, {"name": "delay", "type": "long"}],
}  # fmt: skip
WIDER = {**FLIGHT, "fields": [*FLIGHT["fields"], {"name": "gate", "type": "string"}]}
PROTO = 'syntax = "proto3";\nmessage Flight { int64 delay = 1; string tail = 2; }\n'


def register(registry: SchemaRegistry, subject: str, text: str, kind: str) -> int:
    content = read_content({"schema": text, "schemaType": kind})
    registry.change(
        lambda state, _: decisions.put_config(state, subject, {"compatibility": "NONE"})
    )
    candidate = registry.candidate(subject, content)
    made = registry.change(lambda state, parsed: decisions.register(state, candidate, parsed))
    return int(made.schema_id)


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def avro_bytes(value: dict[str, Any]) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(FLIGHT), value)
    return data.getvalue()


def test_subjects_show_versions_diff_and_compatibility(root_browser: Opens) -> None:
    browser = root_browser()
    assert browser.log is not None
    assert browser.get("/schemas")["subjects"] == []
    registry = SchemaRegistry(RootSchemaLog(browser.log))
    first = register(registry, "flights/a-value", json.dumps(FLIGHT), "AVRO")
    second = register(registry, "flights/a-value", json.dumps(WIDER), "AVRO")
    register(registry, "orders-value", PROTO, "PROTOBUF")
    rows = {one["subject"]: one for one in browser.get("/schemas")["subjects"]}
    assert list(rows) == ["flights/a-value", "orders-value"]
    assert rows["flights/a-value"]["versions"] == 2
    assert rows["orders-value"]["type"] == "PROTOBUF"
    by_id = browser.get(f"/schemas?id={first}")["subjects"]
    assert [one["subject"] for one in by_id] == ["flights/a-value"]

    found = browser.get("/schemas/flights%2Fa-value")
    assert (found["version"], found["id"], found["against"]) == (2, second, 1)
    added = [line["text"].strip("+ ") for line in found["diff"] if line["kind"] == "added"]
    assert '"name": "gate",' in added
    assert "gate" in found["compatibility"]["backward"][0]
    assert found["compatibility"]["forward"] == []
    again = browser.get("/schemas/flights%2Fa-value?version=1&against=2")
    assert (again["version"], again["compatibility"]["backward"]) == (1, [])
    text = browser.page("/schemas/flights%2Fa-value")
    assert '<span class="added">' in text
    assert "cannot read all data" in text
    assert browser.get("/schemas/orders-value")["compatibility"] is None

    browser.submit("/schemas/orders-value/compatibility", level="FULL")
    assert browser.get("/schemas/orders-value")["level"] == "FULL"
    assert "no such subject" in browser.get("/schemas/none", 404)["message"]
    assert "no such version" in browser.get("/schemas/orders-value?version=9", 404)["message"]


def test_records_are_decoded_by_the_schemas_they_name(root_browser: Opens) -> None:
    browser = root_browser()
    log = browser.log
    assert log is not None
    registry = SchemaRegistry(RootSchemaLog(log))
    avro = register(registry, "a", json.dumps(FLIGHT), "AVRO")
    proto = register(registry, "p", PROTO, "PROTOBUF")
    plain = register(registry, "j", '{"type": "object"}', "JSON")
    value = {"tail": "N1</code>", "delay": 7}
    in_header = [{"key": "__value_schema_id", "value": framed(avro, b"")}]
    rows: list[tuple[bytes, list[dict[str, Any]] | None]] = [
        (framed(avro, avro_bytes(value)), None),
        (framed(proto, b"\0\x08\x07\x12\x02N1"), None),
        (framed(plain, b'{"delay": 7}'), None),
        (avro_bytes(value), in_header),
        (framed(99, b"x"), None),
        (framed(avro, b"\xff\xff"), None),
        (msgpack.packb({"delay": 7, "raw": b"\xff"}), None),
    ]
    log.create_topic("flights", 1)
    batch = pa.record_batch(
        {
            "key": pa.array([rows[0][0]] * len(rows), pa.binary()),
            "value": pa.array([one[0] for one in rows], pa.binary()),
            "headers": pa.array([one[1] for one in rows], HEADERS),
        }
    )
    log.partition("flights", 0).append([batch])
    found = browser.get("/topics/flights/records?from=oldest")["records"]
    shown = [(one["value"]["decoder"], one["value"]["schemaId"]) for one in found]
    assert shown[:4] == [("avro", avro), ("protobuf", proto), ("json", plain), ("avro", avro)]
    assert json.loads(found[0]["value"]["text"]) == value
    assert json.loads(found[1]["value"]["text"]) == {"delay": "7", "tail": "N1"}
    assert json.loads(found[3]["value"]["text"]) == value
    assert {one["key"]["decoder"] for one in found} == {"avro"}
    assert "no schema is registered: 99" in found[4]["value"]["problem"]
    assert found[5]["value"]["problem"]
    assert shown[6] == ("msgpack", None)
    assert json.loads(found[6]["value"]["text"]) == {"delay": 7, "raw": "/w=="}
    page = browser.page("/topics/flights/records")
    assert f'href="/schemas?id={avro}"' in page
    assert "N1</code>" not in page
    one = browser.get("/topics/flights/partitions/0/records/0")
    assert json.loads(one["value"]["text"]) == value
    assert "\n" in one["value"]["text"]
    raw = browser.get("/topics/flights/partitions/0/records/0?decoder=hex")
    assert raw["value"]["decoder"] == "hex"


def test_bytes_are_no_messagepack_by_chance() -> None:
    for data in (
        b"\x07",
        b"\x80",
        b"\x90\x01",
        b"\x81\x01",
        b"\xdf\xff\xff\xff\xff",
        b"\x91" * 9000,
    ):
        assert shown_payload(data, pretty=False).decoder == "hex", data[:4]
    deep = shown_payload(msgpack.packb([[[1]], {1: None}]), pretty=True)
    assert json.loads(deep.text) == [[[1]], {"1": None}]
    long = shown_payload(msgpack.packb(["\xe4" * 2000]), pretty=False)
    assert (long.decoder, len(long.text), long.shortened) == ("msgpack", 512, True)
