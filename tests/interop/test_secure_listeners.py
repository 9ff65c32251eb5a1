"""Unmodified clients at two brokers with TLS and logins: produce, consume, groups, transactions.

Brokers reach each other by a listener with certificates on both ends. Clients use another one, on
which they log in.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import sparklog
from tests.harness.certificates import CertificateAuthority
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers
from tests.peers.kafka_tools import KafkaTools

HOST = "127.0.0.1"
CLIENTS = Path(__file__).with_name("secure_python_clients.py")
USER, PASSWORD = "etl", 'pass"word\\ =;'
SESSION_MS = 2_000
RECORDS = 200


@dataclass(frozen=True)
class SecureCluster:
    """Two brokers, and what clients need."""

    brokers: Brokers
    root: str
    folder: Path
    external: str
    """Bootstrap servers of the listener for clients."""

    @property
    def authority(self) -> str:
        return str(self.folder / "ca.pem")

    def librdkafka(self, mechanism: str = "SCRAM-SHA-512", **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.external,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": self.authority,
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def python(self, mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
        return {
            "bootstrap_servers": self.external.split(","),
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": mechanism,
            "sasl_plain_username": USER,
            "sasl_plain_password": PASSWORD,
        }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    folder = tmp_path_factory.mktemp("secure")
    authority = CertificateAuthority()
    (folder / "ca.pem").write_text(authority.pem)
    store = authority.issue("broker", HOST, "localhost").write(folder / "broker.pem")
    root = f"file://{folder}/log"
    with sparklog.open_log(root) as log:
        log.set_password(USER, PASSWORD)
    settings = {
        "listeners": f"INTERNAL://{HOST}:0,EXTERNAL://{HOST}:0",
        "listener.security.protocol.map": "INTERNAL:SSL,EXTERNAL:SASL_SSL",
        "inter.broker.listener.name": "INTERNAL",
        "ssl.keystore.location": str(store),
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.internal.ssl.client.auth": "required",
        "listener.name.external.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.external.connections.max.reauth.ms": str(SESSION_MS),
    }
    internal = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(folder / "ca.pem"),
        "ssl.certificate.location": str(store),
        "ssl.key.location": str(store),
    }
    with Brokers(root, 2, settings, internal) as brokers, sparklog.open_log(root) as log:
        found = [broker.at("EXTERNAL") for broker in log.refresh().live_brokers()]
        external = ",".join(f"{one.host}:{one.port}" for one in found if one is not None)
        yield SecureCluster(brokers, root, folder, external)


@pytest.fixture
def topic(cluster: SecureCluster) -> str:
    name = f"t-{uuid4().hex[:8]}"
    with sparklog.open_log(cluster.root) as log:
        log.create_topic(name, partitions=2)
    return name


def consumed(consumer: Consumer, count: int, within_s: float = 60.0) -> list[bytes]:
    found: list[bytes] = []
    end_s = time.monotonic() + within_s
    while len(found) < count and time.monotonic() < end_s:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
    return found


def values(prefix: str = "v") -> list[bytes]:
    return [f"{prefix}{n}".encode() for n in range(RECORDS)]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_librdkafka_produces_and_consumes_in_a_group(
    cluster: SecureCluster, topic: str, mechanism: str
) -> None:
    producer = Producer(cluster.librdkafka(mechanism))
    for value in values():
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    group = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**cluster.librdkafka(mechanism), **group})
    consumer.subscribe([topic])
    assert sorted(consumed(consumer, RECORDS)) == sorted(values())
    consumer.commit(asynchronous=False)
    committed = consumer.committed([TopicPartition(topic, n) for n in range(2)], 30)
    assert sum(max(one.offset, 0) for one in committed) == RECORDS
    consumer.close()


def test_each_client_is_sent_to_the_listener_by_which_it_came(cluster: SecureCluster) -> None:
    listed = AdminClient(cluster.librdkafka()).list_topics(timeout=30).brokers.values()
    assert sorted(f"{one.host}:{one.port}" for one in listed) == sorted(cluster.external.split(","))
    internal = cluster.brokers.bootstrap.split(",")
    assert not set(internal) & set(cluster.external.split(","))


def test_a_transaction_commits_over_tls(cluster: SecureCluster, topic: str) -> None:
    producer = Producer(cluster.librdkafka(transactional_id=topic))
    producer.init_transactions(60)
    for prefix, ends in (("aborted", producer.abort_transaction), ("v", None)):
        producer.begin_transaction()
        for value in values(prefix):
            producer.produce(topic, value)
        (ends or producer.commit_transaction)(60)
    group = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**cluster.librdkafka(), **group, "isolation.level": "read_committed"})
    consumer.subscribe([topic])
    assert sorted(consumed(consumer, RECORDS)) == sorted(values())
    assert consumed(consumer, 1, within_s=1.0) == []
    consumer.close()


def test_a_producer_logs_in_again_without_a_lost_or_repeated_record(
    cluster: SecureCluster, topic: str
) -> None:
    lost: list[KafkaError] = []
    producer = Producer(cluster.librdkafka(enable_idempotence=True))
    end_s, sent = time.monotonic() + 4 * SESSION_MS / 1000, 0
    while time.monotonic() < end_s:
        producer.produce(
            topic, b"%d" % sent, partition=0,
            on_delivery=lambda error, _: lost.append(error) if error is not None else None,
        )  # fmt: skip
        sent += 1
        producer.poll(0.01)
    assert producer.flush(60) == 0
    assert lost == []
    consumer = Consumer({**cluster.librdkafka(), "group.id": topic})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumed(consumer, sent) == [b"%d" % n for n in range(sent)]
    consumer.close()


@pytest.mark.parametrize("client", ["kafka-python", "aiokafka"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_python_clients_produce_and_consume_in_a_group(
    cluster: SecureCluster, topic: str, client: str, mechanism: str
) -> None:
    asked = {
        "client": client,
        "settings": cluster.python(mechanism),
        "authority": cluster.authority,
        "topic": topic,
        "values": [value.decode() for value in values()],
    }
    ran = subprocess.run(
        [sys.executable, str(CLIENTS), json.dumps(asked)],
        capture_output=True, text=True, timeout=150, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert sorted(json.loads(ran.stdout)) == sorted(asked["values"])


def test_kafkas_tools_log_in_with_a_properties_file(
    cluster: SecureCluster, topic: str, tmp_path: Path
) -> None:
    escaped = PASSWORD.replace("\\", "\\\\").replace('"', '\\"').replace("\\", "\\\\")
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={cluster.authority}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{USER}" password="{escaped}";\n'
    )
    tool = KafkaTools(cluster.external)
    described = tool(
        "TopicCommand", "--describe", "--topic", topic, "--command-config", str(properties)
    )
    assert "PartitionCount: 2" in described[0]


def test_a_wrong_password_is_an_error_of_the_client(cluster: SecureCluster) -> None:
    errors: list[KafkaError] = []
    wrong = cluster.librdkafka() | {"sasl.password": "guess", "error_cb": errors.append}
    producer = Producer(wrong)
    end_s = time.monotonic() + 20
    while not errors and time.monotonic() < end_s:
        producer.poll(0.2)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "invalid credentials" in errors[0].str()


def test_a_client_that_does_not_trust_the_broker_says_so(
    cluster: SecureCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "other.pem").write_text(CertificateAuthority("another").pem)
    errors: list[KafkaError] = []
    settings = {"ssl.ca.location": str(tmp_path / "other.pem"), "error_cb": errors.append}
    producer = Producer(cluster.librdkafka() | settings)
    end_s = time.monotonic() + 20
    while not errors and time.monotonic() < end_s:
        producer.poll(0.2)
    assert "certificate verify failed" in errors[0].str()
    named = "does not trust the broker's certificate"
    eventually(lambda: named in caplog.text, "the broker names the mistake", 10.0)
