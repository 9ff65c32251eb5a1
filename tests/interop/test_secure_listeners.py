"""Unmodified clients at two brokers with TLS, logins and ACLs: groups, transactions, mistakes."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import sparklog
from tests.harness.certificates import DAY, CertificateAuthority
from tests.harness.waiting import eventually
from tests.interop.secure_cluster import (
    CERTIFICATE,
    MECHANISMS,
    SESSION_MS,
    USER,
    SecureCluster,
    secure_cluster,
)
from tests.peers.kafka_tools import KafkaTools

CLIENTS = Path(__file__).with_name("secure_python_clients.py")
RECORDS = 200
AGAIN_S = 4 * SESSION_MS / 1000
"""A client that runs for so long logs in at least three times more."""
MOST_USED = ("SCRAM-SHA-512", "OAUTHBEARER")
"""The mechanisms of which `make test` runs the slower clients; `make soak` runs all."""
EACH = [
    pytest.param(name, marks=() if name in MOST_USED else pytest.mark.soak) for name in MECHANISMS
]
MakeTopic = Callable[[], str]
OVER = "the session of the login is over"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    with secure_cluster(tmp_path_factory.mktemp("secure")) as running:
        yield running


@pytest.fixture
def make_topic(cluster: SecureCluster) -> MakeTopic:
    """Create topics of two partitions."""

    def make() -> str:
        name = f"t-{uuid4().hex[:8]}"
        with sparklog.open_log(cluster.root) as log:
            log.create_topic(name, partitions=2)
        return name

    return make


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic()


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


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_transacts_and_consumes_in_a_group(
    cluster: SecureCluster, topic: str, mechanism: str
) -> None:
    producer = Producer(cluster.librdkafka(mechanism, transactional_id=topic))
    producer.init_transactions(60)
    for prefix, ends in (("aborted", producer.abort_transaction), ("v", None)):
        producer.begin_transaction()
        for value in values(prefix):
            producer.produce(topic, value)
        (ends or producer.commit_transaction)(60)
    group = {"group.id": topic, "auto.offset.reset": "earliest"}
    reader = cluster.librdkafka(mechanism, isolation_level="read_committed")
    consumer = Consumer({**reader, **group})
    consumer.subscribe([topic])
    assert sorted(consumed(consumer, RECORDS)) == sorted(values())
    consumer.commit(asynchronous=False)
    committed = consumer.committed([TopicPartition(topic, n) for n in range(2)], 30)
    assert sum(max(one.offset, 0) for one in committed) >= RECORDS
    consumer.close()


def test_each_client_is_sent_to_the_listener_by_which_it_came(cluster: SecureCluster) -> None:
    listed = AdminClient(cluster.librdkafka()).list_topics(timeout=30).brokers.values()
    assert sorted(f"{one.host}:{one.port}" for one in listed) == sorted(cluster.external.split(","))
    internal = cluster.brokers.bootstrap.split(",")
    assert not set(internal) & set(cluster.external.split(","))


@contextmanager
def python_client(
    cluster: SecureCluster, client: str, mechanism: str, topic: str, pause_s: float = 0.0
) -> Iterator[subprocess.Popen[str]]:
    """Run a client that sends to a topic while its group reads it."""
    asked = {
        "client": client,
        # A busy machine may take a session for what aiokafka does between two requests.
        "settings": cluster.python(mechanism, "EXTERNAL" if pause_s else "STEADY"),
        "authority": cluster.authority,
        "store": cluster.client_store if mechanism == CERTIFICATE else "",
        "token": cluster.token_file.read_text() if mechanism == "OAUTHBEARER" else "",
        "topic": topic,
        "values": [value.decode() for value in values()],
        "pause_s": pause_s,
    }
    words = [sys.executable, str(CLIENTS), json.dumps(asked)]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def found_by(client: subprocess.Popen[str]) -> list[bytes]:
    """Return the values that a client has consumed, in one order."""
    output, errors = client.communicate(timeout=200)
    assert client.returncode == 0, errors[-4000:]
    return sorted(value.encode() for value in json.loads(output))


@pytest.mark.parametrize("mechanism", EACH)
def test_python_clients_transact_and_consume_in_a_group(
    cluster: SecureCluster, make_topic: MakeTopic, mechanism: str
) -> None:
    with (
        python_client(cluster, "kafka-python", mechanism, make_topic()) as one,
        python_client(cluster, "aiokafka", mechanism, make_topic()) as other,
    ):
        assert found_by(one) == sorted(values())
        assert found_by(other) == sorted(values())


def test_clients_log_in_again_without_a_lost_or_repeated_record(
    cluster: SecureCluster, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    check_logins_again(cluster, make_topic, caplog, "SCRAM-SHA-512")


@pytest.mark.soak
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_each_mechanism_logs_in_again(
    cluster: SecureCluster, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture, mechanism: str
) -> None:
    check_logins_again(cluster, make_topic, caplog, mechanism)


@pytest.mark.soak
def test_aiokafka_connects_again_after_each_session(
    cluster: SecureCluster, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    """This client knows no second login on a connection."""
    caplog.set_level("INFO", "sparklog.broker.network.connection")
    pause_s = AGAIN_S / RECORDS
    with python_client(cluster, "aiokafka", "SCRAM-SHA-512", make_topic(), pause_s) as client:
        assert found_by(client) == sorted(values())
    assert caplog.text.count(OVER) >= 3


def check_logins_again(
    cluster: SecureCluster,
    make_topic: MakeTopic,
    caplog: pytest.LogCaptureFixture,
    mechanism: str,
) -> None:
    """Run two clients for four sessions: no connection may end."""
    caplog.set_level("INFO", "sparklog.broker.network.connection")
    topic, pause_s = make_topic(), AGAIN_S / RECORDS
    before = cluster.logins_again(mechanism)
    with python_client(cluster, "kafka-python", mechanism, make_topic(), pause_s) as client:
        assert librdkafka_sends(cluster, mechanism, topic)
        assert found_by(client) == sorted(values())
    # At least a producer and a consumer each, three times.
    assert cluster.logins_again(mechanism) - before >= 12
    assert OVER not in caplog.text


def librdkafka_sends(cluster: SecureCluster, mechanism: str, topic: str) -> bool:
    """Send for four sessions while a group reads; return whether each record came once."""
    lost: list[KafkaError] = []
    producer = Producer(cluster.librdkafka(mechanism, enable_idempotence=True))
    group = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**cluster.librdkafka(mechanism), **group})
    consumer.subscribe([topic])
    found: list[bytes] = []
    end_s, sent = time.monotonic() + AGAIN_S, 0
    while time.monotonic() < end_s:
        producer.produce(
            topic, b"%d" % sent, partition=0,
            on_delivery=lambda error, _: lost.append(error) if error is not None else None,
        )  # fmt: skip
        sent += 1
        producer.poll(0.01)
        found += consumed(consumer, 100, within_s=0.01)
    assert producer.flush(60) == 0
    assert lost == []
    found += consumed(consumer, sent - len(found))
    found += consumed(consumer, 1, within_s=0.5)  # nothing may come twice
    consumer.close()
    assert found == [b"%d" % n for n in range(sent)]
    return sent > 0


def test_kafkas_tools_log_in_with_a_properties_file(cluster: SecureCluster, topic: str) -> None:
    properties = cluster.properties("SCRAM-SHA-512")
    tool = KafkaTools(cluster.external)
    described = tool(
        "TopicCommand", "--describe", "--topic", topic, "--command-config", str(properties)
    )
    assert "PartitionCount: 2" in described[0]


def first_error(settings: Mapping[str, Any]) -> str:
    """Return the first error that librdkafka reports, with its name."""
    errors: list[KafkaError] = []
    producer = Producer({**settings, "error_cb": errors.append})
    end_s = time.monotonic() + 20
    while not errors and time.monotonic() < end_s:
        producer.poll(0.1)
    assert errors, "librdkafka reports no error"
    return f"{errors[0].name()} {errors[0].str()}"


def mistakes(cluster: SecureCluster, folder: Path) -> dict[str, tuple[dict[str, Any], str, str]]:
    """Return mistakes: the settings of a client, a part of its error, and of the broker's line.

    Without a login librdkafka has no error: it connects again.
    """
    (folder / "other.pem").write_text(CertificateAuthority("another").pem)
    old = cluster.authorities.issue(USER, lasts=-DAY).write(folder / "old.pem")
    lasts_s = time.time() + 60

    def with_token(token: str) -> dict[str, Any]:
        return cluster.librdkafka("OAUTHBEARER") | {"oauth_cb": lambda _: (token, lasts_s)}

    def at(listener: str, **settings: Any) -> dict[str, Any]:
        own = {name.replace("_", "."): value for name, value in settings.items()}
        trust = {"ssl.ca.location": cluster.authority}
        return {"bootstrap.servers": cluster.at(listener), **trust, **own}

    refused = "_AUTHENTICATION"
    store = {"ssl_certificate_location": str(old), "ssl_key_location": str(old)}
    return {
        "wrong password": (
            cluster.librdkafka() | {"sasl.password": "guess"},
            "invalid credentials",
            "the login failed: wrong password. user='etl'",
        ),
        "expired token": (
            with_token(cluster.issuer.token(USER, -60)), refused, "expired",
        ),
        "token for another audience": (
            with_token(cluster.issuer.token(USER, audience="other")), refused, "audience",
        ),
        "foreign authority": (
            cluster.librdkafka() | {"ssl.ca.location": str(folder / "other.pem")},
            "certificate verify failed",
            "the client does not trust the broker's certificate",
        ),
        "expired certificate": (
            at("MUTUAL", security_protocol="SSL", **store),
            "alert certificate expired",
            "the client's certificate is not valid: certificate has expired",
        ),
        "no certificate": (
            at("MUTUAL", security_protocol="SSL"), "alert certificate required",
            "the client has no certificate",
        ),
        "no TLS": (at("EXTERNAL"), "_", "the client does not speak TLS"),
        "no login": (at("EXTERNAL", security_protocol="SSL"), "", "before it logged in"),
        # librdkafka says "SSL handshake failed" or "SSL connection closed", as it sees the end.
        "TLS without need": (
            at("OPEN", security_protocol="SSL"), "SSL", "the peer speaks TLS, and this listener",
        ),
    }  # fmt: skip


def test_a_mistake_is_an_error_of_the_client_and_a_line_of_the_broker(
    cluster: SecureCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for kind, (settings, error, line) in mistakes(cluster, tmp_path).items():
        if error:
            assert error in first_error(settings), kind
        else:
            Producer(settings).poll(1)

        def lines(named: str = line) -> list[str]:
            return [text for text in caplog.messages if named in text]

        eventually(lines, f"the broker names the mistake: {kind}", 10.0)
        assert lines()[0].startswith("closing a connection: "), kind
        assert "client=127.0.0.1" in lines()[0], kind
