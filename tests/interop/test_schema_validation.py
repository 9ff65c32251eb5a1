"""Schema validation: serializers of confluent-kafka against two brokers, one not the registry's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.schema_registry import (
    Schema,
    SchemaRegistryClient,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from sparklog.core.errors import InvalidConfig
from sparklog.testing.cluster import SparklogCluster
from tests.harness.registry_process import RegistryProcess
from tests.harness.waiting import eventually

rd: Any = confluent_kafka.admin
USER = '{"type":"record","name":"User","fields":[{"name":"name","type":"string"}]}'
VALIDATED = {"sparklog.schema.validation": "true"}
TOPIC = "users"


def sender(bootstrap: str) -> Callable[..., int]:
    """Return a function that produces one record; it returns the error's code, 0 for none."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all"})

    def send(value: bytes | None, partition: int, headers: Any = None) -> int:
        codes: list[int] = []
        producer.produce(
            TOPIC, value, partition=partition, headers=headers,
            on_delivery=lambda error, _: codes.append(error.code() if error else 0),
        )  # fmt: skip
        assert producer.flush(30) == 0
        return codes[0]

    return send


def check_framing(client: SchemaRegistryClient, send: Callable[..., int], framing: Any) -> None:
    serialize = AvroSerializer(client, USER, conf={"schema.id.serializer": framing})
    for partition in (0, 1):
        headers: list[tuple[str, Any]] = []
        context = SerializationContext(TOPIC, MessageField.VALUE, headers)
        assert send(serialize({"name": "Ada"}, context), partition, headers) == 0
        bad = [(name, value[:-1] + b"?") for name, value in headers]
        if bad:
            assert send(b"x", partition, bad) == KafkaError.INVALID_RECORD


def test_brokers_refuse_records_without_a_registered_schema() -> None:
    with SparklogCluster(brokers=2) as cluster:
        admin = rd.AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        cluster.topic(TOPIC, partitions=2)
        assert {cluster.leader(TOPIC, n) for n in (0, 1)} == {1, 2}

        def alter(name: str, value: str, topic: str = TOPIC) -> None:
            entry = rd.ConfigEntry(name, value, incremental_operation=rd.AlterConfigOpType.SET)
            resource = rd.ConfigResource("topic", topic, incremental_configs=[entry])
            for done in admin.incremental_alter_configs([resource]).values():
                done.result(30)

        with pytest.raises(Exception, match="first register a schema"):
            alter("sparklog.schema.validation", "true")
        with pytest.raises(InvalidConfig, match="first register a schema"):
            cluster.topic("early", config=VALIDATED)
        registry = RegistryProcess("--bootstrap-server", cluster.bootstrap_servers)
        with SchemaRegistryClient({"url": registry.url()}) as client:
            first = client.register_schema("other", Schema('"int"', "AVRO"))
            alter("sparklog.schema.validation", "true")
            with pytest.raises(Exception, match="for topics of clients"):
                alter("sparklog.schema.validation", "true", "_schemas")
            send = sender(cluster.bootstrap_servers)
            for partition in (0, 1):
                assert send(b"\0" + first.to_bytes(4, "big"), partition) == 0
                assert send(b"bare", partition) == KafkaError.INVALID_RECORD
                assert send(b"\0\0\1\0\0", partition) == KafkaError.INVALID_RECORD
                assert send(None, partition) == 0
            check_framing(client, send, prefix_schema_id_serializer)
            check_framing(client, send, header_schema_id_serializer)
            later = client.register_schema("later", Schema('"long"', "AVRO"))
            assert send(b"\0" + later.to_bytes(4, "big"), 1) == 0, "as soon as it is registered"
        registry.end()
        alter("sparklog.schema.validation", "false")
        # The answer comes from one broker; the partition's leader may apply it a moment later.
        eventually(lambda: send(b"bare", 0) == 0, "the leader takes any value", 10.0)
