"""Registries of a root and behind brokers: two at once, one killed, and Confluent's serializers."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaRegistryClient,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from sparklog.testing.cluster import SparklogCluster
from tests.harness.registry_process import RegistryProcess

SCHEMAS = 1000
KILLED_AT = SCHEMAS // 3
LATE = SCHEMAS // 5
"""The last ones, which wait for the registry that was killed to be there again."""
AVRO = '{"type":"record","name":"User","fields":[{"name":"name","type":"string"}]}'
JSON = (
    '{"title":"User","type":"object","properties":{"name":{"type":"string"}},'
    '"additionalProperties":false}'
)


def user_class() -> Any:
    """Return a class of messages with a nested one and an import, as a compiler would make it."""
    file = descriptor_pb2.FileDescriptorProto(
        name="user.proto", package="demo", syntax="proto3",
        dependency=["google/protobuf/timestamp.proto"],
    )  # fmt: skip
    outer = file.message_type.add(name="Outer")
    inner = outer.nested_type.add(name="User")
    label, kinds = 1, descriptor_pb2.FieldDescriptorProto
    inner.field.add(name="name", number=1, label=label, type=kinds.TYPE_STRING)
    inner.field.add(
        name="at", number=2, label=label, type=kinds.TYPE_MESSAGE,
        type_name=".google.protobuf.Timestamp",
    )  # fmt: skip
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("demo.Outer.User"))


@pytest.fixture(scope="module", params=["root", "brokers"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[str]]:
    """Return the options that say where the registries keep their schemas."""
    if request.param == "root":
        yield ["--root", str(tmp_path_factory.mktemp("registry"))]
        return
    with SparklogCluster() as cluster:
        yield ["--bootstrap-server", cluster.bootstrap_servers]


@pytest.fixture(scope="module")
def registries(place: list[str]) -> Iterator[list[RegistryProcess]]:
    made = [RegistryProcess(*place) for _ in range(2)]
    yield made
    codes = [one.end() for one in made]
    assert set(codes) <= {0, -signal.SIGTERM}


@pytest.fixture(scope="module")
def urls(registries: list[RegistryProcess]) -> list[str]:
    return [one.url() for one in registries]


@pytest.fixture
def client_of() -> Iterator[Callable[[str], SchemaRegistryClient]]:
    """Make clients that do not repeat requests, and close them at the end."""
    with ExitStack() as stack:
        yield lambda url: stack.enter_context(SchemaRegistryClient({"url": url, "max.retries": 0}))


@pytest.mark.parametrize("framing", [prefix_schema_id_serializer, header_schema_id_serializer])
def test_serializers_write_and_read_each_format(
    urls: list[str], client_of: Callable[[str], SchemaRegistryClient], framing: Any
) -> None:
    writing, reading = map(client_of, urls)
    value = {"name": "Ada Lovelace"}
    user = user_class()
    message = user(name="Ada Lovelace", at={"seconds": 7})
    conf = {"schema.id.serializer": framing}
    pairs: list[tuple[str, Any, Any, Any]] = [
        ("avro", AvroSerializer(writing, AVRO, conf=conf), AvroDeserializer(reading), value),
        (
            "json", JSONSerializer(JSON, writing, conf=conf),
            JSONDeserializer(None, schema_registry_client=reading), value,
        ),
        (
            "protobuf", ProtobufSerializer(user, writing, conf=conf),
            ProtobufDeserializer(user, schema_registry_client=reading), message,
        ),
    ]  # fmt: skip
    for topic, serializer, deserializer, given in pairs:
        headers: list[tuple[str, Any]] = []
        context = SerializationContext(topic, MessageField.VALUE, headers)
        data = serializer(given, context)
        assert (data[:1] == b"\x00") == (framing is prefix_schema_id_serializer)
        assert [name for name, _ in headers] == (
            [] if framing is prefix_schema_id_serializer else ["__value_schema_id"]
        )
        assert deserializer(data, context) == given


def test_two_registries_lose_no_schema_when_one_is_killed(
    registries: list[RegistryProcess],
    urls: list[str],
    place: list[str],
    client_of: Callable[[str], SchemaRegistryClient],
) -> None:
    clients = [client_of(url) for url in urls]
    restarted = Event()

    def register(number: int) -> tuple[int, str] | None:
        if number == KILLED_AT:
            registries[1].end(signal.SIGKILL)
            registries[1] = RegistryProcess(*place)
            clients[1] = client_of(registries[1].url())
            restarted.set()
        elif number >= SCHEMAS - LATE:
            assert restarted.wait(60)
        text = json.dumps({"type": "record", "name": f"R{number}", "fields": []})
        for client in (clients[number % 2], clients[0]):
            try:
                made = client.register_schema_full_response(f"s{number}", Schema(text, "AVRO"))
            except Exception:
                continue
            return int(made.schema_id or 0), text
        return None

    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(register, range(SCHEMAS)))
        acknowledged = dict(one for one in made if one is not None)
        assert len(acknowledged) == SCHEMAS, "each schema has an id of its own"
        third = RegistryProcess(*place)
        fresh = client_of(third.url())
        found = dict(zip(acknowledged, pool.map(fresh.get_schema, acknowledged), strict=True))
    for number, text in acknowledged.items():
        assert json.loads(found[number].schema_str or "") == json.loads(text), "none was lost"
    assert {f"s{number}" for number in range(SCHEMAS)} <= set(fresh.get_subjects())
    assert third.end() in (0, -signal.SIGTERM)
