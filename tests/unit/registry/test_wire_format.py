"""Framed values: split by columns, decoded by the schema of each, and wrong ones with a reason."""

from __future__ import annotations

import io
import json
from typing import Any
from uuid import UUID

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.cluster.log import Log
from sparklog.protocol.records.columns import RECORDS_SCHEMA
from sparklog.registry import decisions
from sparklog.registry.decoder import UNFRAMED, ValueDecoder
from sparklog.registry.model.schema import SubjectVersion, read_content
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.schema_log import RootSchemaLog
from sparklog.registry.wire_format import SplitValues, message_indexes, split_values
from sparklog.store.memory import MemoryStore

HEADERS = RECORDS_SCHEMA.field("headers").type
OLD = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
NEW = (
    '{"type":"record","name":"R","fields":[{"name":"a","type":"long"},'
    '{"name":"b","type":"string","default":"?"}]}'
)


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def header(value: bytes | None, name: str = "__value_schema_id") -> list[dict[str, Any]]:
    return [{"key": "other", "value": b"\0\0\0\0\7"}, {"key": name, "value": value}]


def plain(split: SplitValues) -> list[tuple[Any, bytes | None]]:
    names = [None if n < 0 else split.schemas[n] for n in split.places.tolist()]
    return list(zip(names, split.payloads.to_pylist(), strict=True))


def test_ids_in_front_and_in_headers_are_split_off() -> None:
    guid = UUID(int=5)
    values = [framed(7, b"x"), None, b"\0\0\0", b"text!", framed(300, b""), framed(9, b"y"),
              b"bare", framed(7, b"z"), framed(-1 & 0xFFFFFFFF, b"")]  # fmt: skip
    headers = [None, None, [], None, None, header(b"\1" + guid.bytes), header(b"\0\0\0\0\7\2"),
               header(b"\0\0\0\0\x08", "__key_schema_id"), header(b"?")]  # fmt: skip
    split = split_values(pa.array(values, pa.binary()), pa.array(headers, HEADERS))
    assert plain(split) == [
        ((7, b""), b"x"), (None, None), (None, b"\0\0\0"), (None, b"text!"), ((300, b""), b""),
        ((str(guid), b""), framed(9, b"y")), ((7, b"\2"), b"bare"), ((7, b""), b"z"),
        (None, values[-1]),
    ]  # fmt: skip
    assert split.rows_of(split.schemas.index((7, b""))).tolist() == [0, 7]
    keys = split_values(
        pa.array(values, pa.binary()), pa.array(headers, HEADERS), name="__key_schema_id"
    )
    assert keys.schemas[keys.places[7]] == (8, b"")


@settings(deadline=None)
@given(
    st.lists(st.none() | st.binary(max_size=8) | st.binary(max_size=3).map(
        lambda rest: framed(300, rest))),
    st.integers(0, 3), st.booleans(),
)  # fmt: skip
def test_a_column_is_split_as_each_value_by_itself(
    values: list[bytes | None], skipped: int, large: bool
) -> None:
    column = pa.array([b"first", *values], pa.large_binary() if large else pa.binary())[1:]
    found = plain(split_values(column[skipped:]))
    for value, (schema, payload) in zip(values[skipped:], found, strict=True):
        framed_value = value is not None and len(value) >= 5 and value[0] == 0 and value[1] < 128
        assert payload == (value[5:] if value is not None and framed_value else value)
        assert schema == (
            (int.from_bytes(value[1:5], "big"), b"") if value and framed_value else None
        )


@pytest.fixture
def registry() -> SchemaRegistry:
    return SchemaRegistry(RootSchemaLog(Log(MemoryStore("framing"))))


def register(registry: SchemaRegistry, text: str, kind: str = "AVRO") -> SubjectVersion:
    content = read_content({"schema": text, "schemaType": kind})
    candidate = registry.candidate(f"s-{kind}", content)
    made = registry.change(lambda state, parsed: decisions.register(state, candidate, parsed))
    assert isinstance(made, SubjectVersion)
    return made


def avro(text: str, value: Any) -> bytes:
    made = io.BytesIO()
    fastavro.schemaless_writer(made, fastavro.parse_schema(json.loads(text)), value)
    return made.getvalue()


def test_versions_of_a_schema_decode_into_one_shape(registry: SchemaRegistry) -> None:
    old, new = register(registry, OLD), register(registry, NEW)
    values = pa.array(
        [
            framed(old.schema_id, avro(OLD, {"a": 1})), None,
            framed(new.schema_id, avro(NEW, {"a": 2, "b": "x"})),
            framed(old.schema_id, b""), framed(old.schema_id, avro(OLD, {"a": 1}) + b"!"),
            framed(99, b""), b"{}",
        ],
        pa.binary(),
    )  # fmt: skip
    texts, reasons = ValueDecoder(registry, reader=new.content).json_texts(values)
    assert texts.to_pylist()[:3] == ['{"a":1,"b":"?"}', None, '{"a":2,"b":"x"}']
    assert texts.to_pylist()[3:] == [None] * 4
    assert reasons.to_pylist()[:3] == [None] * 3
    assert [bool(reason) for reason in reasons.to_pylist()[3:]] == [True] * 4
    assert "bytes follow" in reasons.to_pylist()[4]
    assert reasons.to_pylist()[5:] == ["no schema is registered: 99", UNFRAMED]
    own, _ = ValueDecoder(registry).values(values)
    assert own[:3] == [{"a": 1}, None, {"a": 2, "b": "x"}]


def test_a_schema_that_the_library_refuses_is_a_reason(registry: SchemaRegistry) -> None:
    kind = register(registry, '{"type":"enum","name":"Kind","symbols":["X"]}')
    # Java finds a name without a namespace from inside one, and fastavro does not.
    text = '{"type":"record","name":"a.R","fields":[{"name":"k","type":"Kind"}]}'
    references = [{"name": "Kind", "subject": kind.subject, "version": kind.version}]
    candidate = registry.candidate("odd", read_content({"schema": text, "references": references}))
    made = registry.change(lambda state, parsed: decisions.register(state, candidate, parsed))
    values = pa.array([framed(made.schema_id, b"\0")], pa.binary())
    assert ValueDecoder(registry).values(values) == (
        [None], ["the schema cannot be used: a.Kind"]
    )  # fmt: skip


def test_json_and_protobuf_decode_by_id_and_by_guid(registry: SchemaRegistry) -> None:
    text = 'syntax = "proto3"; package p; message A { message B { int64 n = 1; } } message C {}'
    proto, document = register(registry, text, "PROTOBUF"), register(registry, "{}", "JSON")
    inner = b"\x04\x00\x00"  # the message A.B
    payload = b"\x08\x05"
    guid = b"\1" + UUID(proto.content.guid).bytes
    values = [
        framed(proto.schema_id, inner + payload), payload, framed(proto.schema_id, b"\x02\x02"),
        framed(document.schema_id, b'{"x":1.5}'), framed(document.schema_id, b"{"),
        framed(proto.schema_id, b"\x02\x08"), framed(proto.schema_id, b"\xff" * 9),
    ]  # fmt: skip
    headers = [None, header(guid + inner), None, None, None, None, None]
    found, reasons = ValueDecoder(registry).values(
        pa.array(values, pa.binary()), pa.array(headers, HEADERS)
    )
    assert found == [{"n": "5"}, {"n": "5"}, {}, {"x": 1.5}, None, None, None]
    assert [reason is not None for reason in reasons] == [False] * 4 + [True] * 3


def test_message_indexes_are_bounded() -> None:
    assert message_indexes(b"\0rest") == ((0,), 1)
    assert message_indexes(b"\4\2\0rest") == ((1, 0), 3)
    for wrong in (b"", b"\4\2", b"\1", b"\xfe\x03", b"\xff" * 9):
        with pytest.raises(ValueError, match=r"indexes"):
            message_indexes(wrong)


def test_many_values_are_split_at_once() -> None:
    count = 200_000
    body = np.tile(np.frombuffer(framed(3, b"12345"), np.uint8), count)
    offsets = np.arange(count + 1, dtype=np.int32) * 10
    column = pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(body)]
    )
    split = split_values(column)
    assert split.schemas == ((3, b""),)
    assert not split.places.any()
    assert split.payloads[count - 1].as_py() == b"12345"


def test_hostile_avro_values_end_no_process(registry: SchemaRegistry) -> None:
    node = '{"type":"record","name":"N","fields":[{"name":"n","type":["null","N"]}]}'
    nulls = '{"type":"array","items":"null"}'
    names = [f'{{"type":"record","name":"R{n}","fields":[{{"name":"a","type":"R{n - 1}"}},'
             f'{{"name":"b","type":"R{n - 1}"}}]}}' for n in range(1, 40)]  # fmt: skip
    first = '{"type":"record","name":"R0","fields":[]}'
    many = f"[{','.join([first, *names])}]"
    registry.change(lambda s, _: decisions.put_config(s, None, {"compatibility": "NONE"}))
    made = [register(registry, text) for text in (node, nulls, many)]
    values = [
        framed(made[0].schema_id, b"\2" * 100 + b"\0"),
        framed(made[0].schema_id, b"\2" * 1_000_000 + b"\0"),
        framed(made[1].schema_id, b"\xfe\xff\xff\xff\x0f\0"),
        framed(made[2].schema_id, b"\x4e"),
    ]
    texts, reasons = ValueDecoder(registry).json_texts(pa.array(values, pa.binary()))
    assert texts[0].as_py() == '{"n":' * 100 + '{"n":null}' + "}" * 100
    assert texts.to_pylist()[1:] == [None] * 3
    assert "RecursionError" in reasons[1].as_py()
    assert "take no bytes" in reasons[2].as_py()
    assert "more than 10000 values" in reasons[3].as_py()
