"""`bare.topic`: values without an id of a schema, by the schema that the rules give the topic."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import fastavro
import pytest

from sparklog import Log, open_log
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.core.types import TopicPartition
from sparklog.registry.bare_schema import BareSchema, read_bare_schema
from sparklog.registry.wire_format import encoded_indexes, message_indexes
from sparklog.sql.arrivals import ArrivalQuery
from sparklog.sql.engine import DecodeRules
from sparklog.sql.topics import RootTopics
from tests.harness.log_records import batch

AVRO = {"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "int"}, {"name": "who", "type": ["null", "string"]},
]}  # fmt: skip
PROTO = (
    'syntax = "proto3"; package shop; message Other {} '
    "message Order { message Line { int64 n = 1; } int64 id = 1; Line line = 2; }"
)
DOCUMENT = {"type": "object", "properties": {"id": {"type": "integer"}}}
SCHEMAS = {
    "orders": BareSchema("AVRO", json.dumps(AVRO)),
    "events": BareSchema("PROTOBUF", PROTO, "shop.Order"),
    "lines": BareSchema("PROTOBUF", PROTO, "shop.Order.Line"),
    "documents": BareSchema("JSON", json.dumps(DOCUMENT)),
}
STRICT = DecodeRules(value_schemas=SCHEMAS)
LENIENT = DecodeRules(strict=False, value_schemas=SCHEMAS)


def avro(value: Any) -> bytes:
    made = io.BytesIO()
    fastavro.schemaless_writer(made, fastavro.parse_schema(AVRO), value)
    return made.getvalue()


@pytest.fixture(scope="module")
def log() -> Iterator[Log]:
    values: dict[str, list[bytes | None]] = {
        "orders": [avro({"id": 1, "who": "ann"}), None, b"\2", avro({"id": 4, "who": None})],
        "events": [b"\x08\x05\x12\x02\x08\x07"],
        "lines": [b"\x08\x09"],
        "documents": [b'{"id": 3}', b'{"id": 4}'],
    }
    with open_log(f"memory://{uuid4().hex}") as opened:
        for topic, some in values.items():
            opened.create_topic(topic)
            keys = [b"k%d" % number for number in range(len(some))]
            opened.partition(topic, 0).append([batch(some, keys=keys)])
        yield opened


def rows(log: Log, statement: str, rules: DecodeRules = STRICT) -> list[Any]:
    return [tuple(row.values()) for row in log.sql(statement, rules=rules).to_pylist()]


def test_values_are_decoded_by_the_schema_of_their_topic(log: Log) -> None:
    assert rows(log, "select key, id, who from bare.orders where offset < 2") == [
        (b"k0", 1, "ann"), (b"k1", None, None),
    ]  # fmt: skip
    assert rows(log, "select id, line->>'$.n' from bare.events") == [(5, "7")]
    assert rows(log, "select n from bare.lines") == [(9,)]
    assert rows(log, "select sum(id) from bare.documents where id > 3") == [(4,)]
    names = log.sql("select * from bare.orders limit 0", rules=STRICT).schema.names
    assert names == ["topic", "partition", "offset", "timestamp", "key", "id", "who", "headers",
                     "decode_error"]  # fmt: skip


def test_a_value_that_does_not_decode_fails_or_is_null(log: Log) -> None:
    with pytest.raises(InvalidRequest, match=r"value of bare.orders .* partition=0 offset=2"):
        rows(log, "select id from bare.orders")
    assert rows(log, "select id from bare.orders where offset = 3") == [(4,)]
    found = rows(log, "select id, decode_error is null from bare.orders", LENIENT)
    assert found == [(1, True), (None, True), (None, False), (4, True)]
    with pytest.raises(InvalidRequest, match=r"--value-schema TOPIC=FILE.* topic=orders"):
        rows(log, "select id from bare.orders", DecodeRules())


def test_arriving_values_are_decoded_by_a_given_schema(log: Log) -> None:
    statement = "select offset, id from bare.orders where who = 'ann'"
    with RootTopics(log) as topics, ArrivalQuery(topics, statement, rules=STRICT) as arriving:
        source = log.partition("orders", 0)
        (arrived,) = source.read(0, 2, arriving.columns)
        found = list(arriving.answer(TopicPartition("orders", 0), arrived))
    assert [some.to_pylist() for some in found] == [[{"offset": 0, "id": 1}]]


def test_schemas_are_files_whose_ending_names_the_type(tmp_path: Path) -> None:
    proto = tmp_path / "shop.proto"
    proto.write_text(PROTO)
    assert read_bare_schema(f"{proto}#shop.Order.Line").path == (1, 0)
    wrong = {
        str(proto): "several messages.*shop.Other,shop.Order",
        f"{proto}#shop.Nope": "no such message. message=shop.Nope",
        str(tmp_path / "gone.avsc"): "cannot be read",
        "orders.txt": r"ends in \.avsc",
    }
    for place, reason in wrong.items():
        with pytest.raises(SparklogError, match=reason):
            read_bare_schema(place)
    with pytest.raises(InvalidRequest, match="only Protobuf has messages"):
        BareSchema("AVRO", json.dumps(AVRO), "Order")


@pytest.mark.parametrize("path", [(0,), (1,), (0, 0), (300, 2)])
def test_encoded_indexes_are_read_back(path: tuple[int, ...]) -> None:
    data = encoded_indexes(path)
    assert message_indexes(data + b"rest") == (path, len(data))
