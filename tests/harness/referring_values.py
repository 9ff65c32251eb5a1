"""Values of confluent-kafka's serializers, by schemas that refer to others, in two versions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

Kind = descriptor_pb2.FieldDescriptorProto


@dataclass(frozen=True)
class ReferringValues:
    """Two orders of each format: `{"id": 1, "to": {"city": "Oslo"}}`, and 2 with `phase` `paid`."""

    avro: Sequence[bytes]
    json: Sequence[bytes]
    protobuf: Sequence[bytes]
    note: bytes
    """Another message of Protobuf's schema."""


def referring_values(url: str) -> ReferringValues:
    """Return values for topics `avro`, `json` and `protobuf`, whose schemas are registered."""
    one: dict[str, Any] = {"id": 1, "to": {"city": "Oslo"}}
    two: dict[str, Any] = {"id": 2, "to": {"city": "Lima"}, "phase": "paid"}
    with SchemaRegistryClient({"url": url, "max.retries": 0}) as client:
        avro_schemas, json_schemas = _avro_schemas(client), _json_schemas(client)
        return ReferringValues(
            [
                _value("avro", AvroSerializer(client, schema), order)
                for schema, order in zip(avro_schemas, (one, two), strict=True)
            ],
            [
                _value("json", JSONSerializer(schema, client), order)
                for schema, order in zip(json_schemas, (one, two), strict=True)
            ],
            *_protobuf_values(client, one, two),
        )


def _value(topic: str, serializer: Any, value: Any) -> bytes:
    data: bytes = serializer(value, SerializationContext(topic, MessageField.VALUE, []))
    return data


def _avro_schemas(client: SchemaRegistryClient) -> list[Schema]:
    address = {"type": "record", "name": "Address", "namespace": "shop",
               "fields": [{"name": "city", "type": "string"}]}  # fmt: skip
    client.register_schema("address", Schema(json.dumps(address), "AVRO"))
    referred = [SchemaReference("shop.Address", "address", 1)]
    phase = {"name": "phase", "type": ["null", "string"], "default": None}
    other = {"name": "other", "type": ["null", "Address"], "default": None}
    orders = [("int", []), ("long", [phase, other])]
    return [
        Schema(json.dumps({
            "type": "record", "name": "Order", "namespace": "shop", "fields": [
                {"name": "id", "type": number}, {"name": "to", "type": "Address"}, *more,
            ],
        }), "AVRO", referred)
        for number, more in orders
    ]  # fmt: skip


def _json_schemas(client: SchemaRegistryClient) -> list[Schema]:
    place = {"type": "object", "properties": {"city": {"type": "string"}}}
    client.register_schema("place", Schema(json.dumps(place), "JSON"))
    referred = [SchemaReference("place.json", "place", 1)]
    fields = {"id": {"type": "integer"}, "to": {"$ref": "place.json"}}
    more = {**fields, "phase": {"type": "string"}}
    return [
        Schema(json.dumps({
            "title": "Order", "type": "object", "properties": properties,
            "additionalProperties": False,
        }), "JSON", referred)
        for properties in (fields, more)
    ]  # fmt: skip


def _protobuf_values(
    client: SchemaRegistryClient, one: dict[str, Any], two: dict[str, Any]
) -> tuple[list[bytes], bytes]:
    conf = {"use.deprecated.format": False}
    pools = [_pool(has_phase=False), _pool(has_phase=True)]
    values = []
    for pool, order in zip(pools, (one, two), strict=True):
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
        message = kind(**order, notes=[{"text": "x"}], at={"seconds": order["id"]})
        values.append(_value("protobuf", ProtobufSerializer(kind, client, conf), message))
    note = message_factory.GetMessageClass(pools[1].FindMessageTypeByName("shop.Note"))
    other = _value("protobuf", ProtobufSerializer(note, client, conf), note(text="alone"))
    return values, other


def _pool(*, has_phase: bool) -> descriptor_pool.DescriptorPool:
    """Return a pool with two files, as a compiler would make it; `Order` is the second message."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    address = descriptor_pb2.FileDescriptorProto(
        name="shop/address.proto", package="shop", syntax="proto3"
    )
    address.message_type.add(name="Address").field.add(
        name="city", number=1, label=1, type=Kind.TYPE_STRING
    )
    pool.AddSerializedFile(address.SerializeToString())
    file = descriptor_pb2.FileDescriptorProto(
        name="shop/order.proto", package="shop", syntax="proto3",
        dependency=["shop/address.proto", "google/protobuf/timestamp.proto"],
    )  # fmt: skip
    file.message_type.add(name="Note").field.add(
        name="text", number=1, label=1, type=Kind.TYPE_STRING
    )
    order = file.message_type.add(name="Order")
    text, message = Kind.TYPE_STRING, Kind.TYPE_MESSAGE
    order.field.add(name="id", number=1, label=1, type=Kind.TYPE_INT64)
    order.field.add(name="to", number=2, label=1, type=message, type_name=".shop.Address")
    order.field.add(name="notes", number=3, label=3, type=message, type_name=".shop.Note")
    order.field.add(
        name="at", number=4, label=1, type=message, type_name=".google.protobuf.Timestamp"
    )
    if has_phase:
        order.field.add(name="phase", number=5, label=1, type=text)
    pool.AddSerializedFile(file.SerializeToString())
    return pool
