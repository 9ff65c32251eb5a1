"""`registry.topic`: values by the schemas whose ids they carry, of several versions and formats."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import fastavro
import pyarrow as pa
import pytest

from sparklog import Log, open_log
from sparklog.core.errors import InvalidConfig, InvalidRequest, Unavailable
from sparklog.core.types import TopicPartition
from sparklog.registry import decisions
from sparklog.registry.http.client import RemoteSchemas
from sparklog.registry.model.schema import SubjectVersion, read_content
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.schema_log import RootSchemaLog
from sparklog.sql.arrivals import ArrivalQuery
from sparklog.sql.engine import DecodeRules
from sparklog.sql.topics import RootTopics
from tests.harness.log_records import batch
from tests.harness.referring_values import referring_values
from tests.harness.registry_server import served_registry

OLD = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "int"},
    {"name": "who", "type": ["null", "string"], "default": None},
]}  # fmt: skip
NEW = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"},
    {"name": "who", "type": ["null", "string"], "default": None},
    {"name": "offset", "type": "double", "default": 0},
    {"name": "paid", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9,
                              "scale": 2}, "default": "\0"},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 0},
    {"name": "moment", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
    {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
]}  # fmt: skip
PROTO = (
    'syntax = "proto3"; message Skipped {} message M { int64 n = 1; bytes raw = 2; '
    "repeated int32 many = 3; uint64 big = 4; }"
)
ODD_NAME = "x < 3) and (offset"
DOCUMENT = {"type": "object", "properties": {
    "id": {"type": "integer"}, "rate": {"type": ["null", "number"]}, "deep": {"type": "object"},
    ODD_NAME: {"type": "integer"},
}}  # fmt: skip


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def avro(schema: Any, value: Any) -> bytes:
    made = io.BytesIO()
    fastavro.schemaless_writer(made, fastavro.parse_schema(schema), value)
    return made.getvalue()


def register(registry: SchemaRegistry, subject: str, schema: Any, kind: str) -> SubjectVersion:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    content = read_content({"schema": text, "schemaType": kind})
    candidate = registry.candidate(subject, content)
    made = registry.change(lambda state, parsed: decisions.register(state, candidate, parsed))
    assert isinstance(made, SubjectVersion)
    return made


PAID = {"id": 1 << 40, "who": "ann", "offset": 0.5, "paid": Decimal("12.50"),
        "day": date(2026, 11, 28), "moment": datetime(2026, 11, 28, tzinfo=UTC),
        "tags": ["a"]}  # fmt: skip


@pytest.fixture(scope="module")
def log() -> Iterator[Log]:
    with open_log(f"memory://{uuid4().hex}") as opened:
        registry = SchemaRegistry(RootSchemaLog(opened))
        old = register(registry, "orders-value", OLD, "AVRO")
        new = register(registry, "orders-value", NEW, "AVRO")
        key = register(registry, "orders-key", '"string"', "AVRO")
        guid = b"\1" + UUID(new.content.guid).bytes
        opened.create_topic("orders")
        values = [
            framed(old.schema_id, avro(OLD, {"id": 1, "who": "bob"})),
            framed(new.schema_id, avro(NEW, PAID)),
            None,
            avro(NEW, {**PAID, "id": 3}),
            framed(99, b""),
            b"no frame",
            framed(old.schema_id, avro(OLD, {"id": 6}) + b"!"),
        ]
        headers: list[list[tuple[str, bytes | None]] | None] = [None] * 3
        headers.append([("__value_schema_id", guid)])
        headers += [None] * 3
        keys = [framed(key.schema_id, b"\6ann"), *[b"k%d" % n for n in range(1, 7)]]
        opened.partition("orders", 0).append([batch(values, keys=keys, headers=headers)])
        proto = register(registry, "events-value", PROTO, "PROTOBUF")
        opened.create_topic("events")
        data = b"\x08\x05\x12\x01\xff\x1a\x02\x01\x02"
        rows = [framed(proto.schema_id, b"\x02\x02" + data), framed(proto.schema_id, b"\x02\x02")]
        opened.partition("events", 0).append([batch(rows)])
        documents = register(registry, "any-subject", DOCUMENT, "JSON")
        opened.create_topic("documents")
        texts = [{"id": 7, "rate": 1, "deep": {"x": [1]}, ODD_NAME: 9}, {"id": 8.5}, {"id": "9"}]
        rows = [framed(documents.schema_id, json.dumps(one).encode()) for one in texts]
        opened.partition("documents", 0).append([batch(rows)])
        opened.create_topic("unknown")
        opened.partition("unknown", 0).append([batch([b"x"])])
        yield opened


LENIENT = DecodeRules(strict=False)


def rows(log: Log, statement: str, rules: DecodeRules | None = None, **more: Any) -> list[Any]:
    return [tuple(row.values()) for row in log.sql(statement, rules=rules, **more).to_pylist()]


def test_versions_of_a_schema_are_one_table(log: Log) -> None:
    statement = "select id, who, value_offset, paid, day, moment, tags from registry.orders "
    paid = ("ann", 0.5, Decimal("12.50"), date(2026, 11, 28), PAID["moment"], '["a"]')
    assert rows(log, f"{statement} where offset < 4") == [
        (1, "bob", None, None, None, None, None),
        (1 << 40, *paid),
        (None,) * 7,
        (3, *paid),
    ]
    schema = log.sql(statement + "where offset < 1").schema
    assert schema.field("id").type == pa.int64()
    assert schema.field("paid").type == pa.decimal128(9, 2)
    assert rows(log, "select tags->>'$[0]' from registry.orders where offset = 1") == [("a",)]
    assert rows(log, "select sum(id) from registry.orders where who = 'ann' and offset < 4") == [
        ((1 << 40) + 3,)
    ]
    assert rows(log, "select decoded_key->>'$' from registry.orders where offset < 2") == [
        ("ann",), (None,),
    ]  # fmt: skip
    assert rows(log, "select count(*) from registry.orders") == [(7,)]


def test_values_that_do_not_decode_are_null_with_a_reason(log: Log) -> None:
    statement = "select offset, id, decode_error from registry.orders where offset > 2"
    found = rows(log, statement, LENIENT)
    assert [row[:2] for row in found] == [(3, 3), (4, None), (5, None), (6, None)]
    reasons = [row[2] or "" for row in found]
    assert reasons[:3] == ["", "no schema is registered: 99",
                           "the value carries no id of a schema"]  # fmt: skip
    assert "1 bytes follow the value" in reasons[3]


def test_values_that_do_not_decode_fail_with_their_place(log: Log) -> None:
    with pytest.raises(InvalidRequest, match=r"partition=0 offset=4 reason=no schema.*: 99"):
        rows(log, "select id from registry.orders")
    with pytest.raises(InvalidRequest, match=r"offset=6 .*bytes follow"):
        rows(log, "select offset from registry.orders where id = 6 and offset > 5")
    assert rows(log, "select id from registry.orders where key = 'k3'") == [(3,)]
    assert rows(log, "select count(decode_error) from registry.orders") == [(3,)]


def test_protobuf_and_json_schema_values_are_tables(log: Log) -> None:
    assert rows(log, "select n, raw, many, big from registry.events") == [
        (5, b"\xff", "[1,2]", 0), (0, b"", "[]", 0),
    ]  # fmt: skip
    found = rows(log, f'select id, rate, deep, "{ODD_NAME}" from registry.documents', LENIENT)
    assert found == [(7, 1.0, '{"x":[1]}', 9), (None,) * 4, (None,) * 4]
    # A name that looks like a bound of offsets is none.
    assert rows(log, f'select id from registry.documents where "{ODD_NAME}" = 9', LENIENT) == [(7,)]
    with pytest.raises(InvalidRequest, match=r"offset=1 reason=id: no int64"):
        rows(log, "select id from registry.documents")


def test_a_topic_without_schemas_has_no_such_table(log: Log) -> None:
    with pytest.raises(InvalidRequest, match="has no subject unknown-value"):
        rows(log, "select * from registry.unknown")


def test_arriving_values_are_decoded(log: Log) -> None:
    statement = "select offset, id from registry.orders where who = 'ann'"
    with RootTopics(log) as topics, ArrivalQuery(topics, statement) as arriving:
        assert set(arriving.columns) == {"offset", "value", "headers"}
        (stored,) = log.partition("orders", 0).read(0, 7, arriving.columns)
        place = TopicPartition("orders", 0)
        (found,) = arriving.answer(place, stored.slice(0, 4))
        assert [tuple(row.values()) for row in found.to_pylist()] == [(1, 1 << 40), (3, 3)]
        with pytest.raises(InvalidRequest, match=r"registry.orders does not decode.*offset=4"):
            list(arriving.answer(place, stored.slice(4)))


@pytest.fixture
def url(log: Log) -> Iterator[str]:
    with served_registry(log) as found:
        yield found


def test_schemas_come_from_the_url_of_a_registry(log: Log, url: str) -> None:
    with open_log(f"memory://{uuid4().hex}") as other:
        other.create_topic("orders")
        source = log.partition("orders", 0)
        stored = list(source.read(0, 4, ("key", "value", "headers")))
        other.partition("orders", 0).append(stored)
        statement = "select id, who from registry.orders"
        expected = [(1, "bob"), (1 << 40, "ann"), (None, None), (3, "ann")]
        assert rows(other, statement, schema_registry=url) == expected
        with pytest.raises(InvalidRequest, match="no schema gives the table columns"):
            rows(other, statement)
        with pytest.raises(Unavailable, match="does not answer"):
            rows(other, statement, schema_registry="http://127.0.0.1:9")
    with pytest.raises(InvalidConfig, match="http://HOST"):
        RemoteSchemas("file:///etc/passwd")
    remote = RemoteSchemas(url.replace("//", "//user:p%40ss@"))
    assert remote._login == {"Authorization": "Basic dXNlcjpwQHNz"}
    assert "user" not in remote._url
    assert remote.content(".", 99) is None


def test_schemas_that_refer_to_others_give_columns() -> None:
    with open_log(f"memory://{uuid4().hex}") as other:
        with served_registry(other) as url:
            values = referring_values(url)
        for topic in ("avro", "json", "protobuf"):
            other.create_topic(topic)
            other.partition(topic, 0).append([batch(list(getattr(values, topic)))])
            found = rows(other, f"select id, \"to\"->>'city', phase from registry.{topic}")
            assert found == [(1, "Oslo", None), (2, "Lima", "paid")], topic
        found = rows(
            other, "select notes->>'$[0].text', \"at\" from registry.protobuf where id = 1"
        )
        assert found == [("x", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))]
