"""Two brokers with TLS, logins and ACLs, and the settings by which each client reaches them.

Brokers reach each other by a listener with certificates on both ends. Clients log in at the
listener EXTERNAL, or at STEADY, where sessions have no end. At MUTUAL they show a certificate. Each
of them is the user `etl`, who has all rights by ACLs and is no super user. The listener OPEN has
neither TLS nor logins.
"""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from confluent_kafka import Consumer, Producer, TopicPartition

import sparklog
from sparklog.core.config.broker import STANDARD_AUTHORIZER
from sparklog.security.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from sparklog.security.principal import Principal
from tests.harness.certificates import CertificateAuthority
from tests.harness.tokens import AUDIENCE, ISSUER, TokenIssuer
from tests.interop.brokers import Brokers
from tests.peers.kafka_tools import properties_text

HOST: Final = "127.0.0.1"
USER, PASSWORD = "etl", 'pass"word\\ =;'
SESSION_MS: Final = 2_000
"""The time after which a client that has logged in has to do so again."""
CERTIFICATE: Final = "CERTIFICATE"
"""In place of a mechanism: the client shows a certificate, and does not log in."""
PASSWORDS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = (*PASSWORDS, "OAUTHBEARER", CERTIFICATE)
READ_S: Final = 60.0
_MODULES: Final = "org.apache.kafka.common.security"
ALLOWED_URLS: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""The property without which Java reads no token from a URL."""


@dataclass(frozen=True)
class SecureCluster:
    """The running brokers, and what clients need."""

    brokers: Brokers
    root: str
    folder: Path
    issuer: TokenIssuer
    authorities: CertificateAuthority

    @property
    def authority(self) -> str:
        return str(self.folder / "ca.pem")

    @property
    def external(self) -> str:
        """Bootstrap servers of the listener with logins."""
        return self.at("EXTERNAL")

    def at(self, listener: str) -> str:
        """Return the bootstrap servers of a listener."""
        with sparklog.open_log(self.root) as log:
            found = [broker.at(listener) for broker in log.refresh().live_brokers()]
        return ",".join(f"{one.host}:{one.port}" for one in found if one is not None)

    def bootstrap(self, mechanism: str) -> str:
        return self.at("MUTUAL" if mechanism == CERTIFICATE else "EXTERNAL")

    def logins_again(self, mechanism: str) -> int:
        """Return how often clients have logged in again, on connections that they kept."""
        name = "kafka_server_socketservermetrics_successful_reauthentication_total"
        shown = f'{name}{{listener="EXTERNAL",mechanism="{mechanism}"}} '
        pages = (
            _page(f"http://{one.host}:{one.metrics_port}/metrics") for one in self.brokers.ready
        )
        lines = (line for page in pages for line in page.splitlines())
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith(shown))

    @property
    def client_store(self) -> str:
        """File with the key and the certificate of the user."""
        return str(self.folder / "client.pem")

    @property
    def token_file(self) -> Path:
        return self.folder / "token"

    def librdkafka(self, mechanism: str = "SCRAM-SHA-512", **more: Any) -> dict[str, Any]:
        given = {name.replace("_", "."): value for name, value in more.items()}
        tls = {
            "bootstrap.servers": self.bootstrap(mechanism),
            "ssl.ca.location": self.authority,
        }
        if mechanism == CERTIFICATE:
            store = {
                "security.protocol": "SSL",
                "ssl.certificate.location": self.client_store,
                "ssl.key.location": self.client_store,
            }
            return {**tls, **store, **given}
        login: dict[str, Any] = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism}
        if mechanism == "OAUTHBEARER":
            login["oauth_cb"] = self.fresh_token
        else:
            login |= {"sasl.username": USER, "sasl.password": PASSWORD}
        return {**tls, **login, **given}

    def fresh_token(self, _: str) -> tuple[str, float]:
        """Return a token and when it ends, as librdkafka asks for it."""
        lasts_s = 3 * SESSION_MS // 1000
        return self.issuer.token(USER, lasts_s), time.time() + lasts_s

    def python(self, mechanism: str, listener: str) -> dict[str, Any]:
        """Return the settings of kafka-python and aiokafka that are not about TLS."""
        if mechanism == CERTIFICATE:
            servers = self.bootstrap(mechanism).split(",")
            return {"bootstrap_servers": servers, "security_protocol": "SSL"}
        place = {"bootstrap_servers": self.at(listener).split(",")}
        login = {"security_protocol": "SASL_SSL", "sasl_mechanism": mechanism}
        if mechanism in PASSWORDS:
            login |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
        return {**place, **login}

    def java(self, mechanism: str, password: str = PASSWORD) -> dict[str, str]:
        """Return the properties of a client in Java, as text of a properties file."""
        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.authority}
        if mechanism == CERTIFICATE:
            store = {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.client_store}
            return {"security.protocol": "SSL", **trust, **store}
        login = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism}
        return {**trust, **login, **_jaas(mechanism, password, self.token_file)}

    @property
    def jvm(self) -> tuple[str, ...]:
        """Options of a Java that may read the token's file."""
        return (f"-D{ALLOWED_URLS}={self.token_file.as_uri()}",)

    def properties(self, mechanism: str, **more: str) -> Path:
        """Return a file of properties for Kafka's tools."""
        given = {name.replace("_", "."): value for name, value in more.items()}
        path = self.folder / f"client-{uuid4().hex[:8]}.properties"
        return write_properties(path, {**self.java(mechanism), **given})


def send_paced(
    client: Mapping[str, Any], topic: str, values: Sequence[str], within_s: float
) -> None:
    """Send values at an even pace."""
    producer = Producer(dict(client))
    for number, value in enumerate(values):
        producer.produce(topic, value.encode(), str(number).encode())
        producer.poll(0)
        time.sleep(within_s / len(values))  # sends must spread over several sessions of a login
    assert producer.flush(READ_S) == 0


def read_all(
    client: Mapping[str, Any], topic: str, at_least: int, partitions: int = 1
) -> list[tuple[bytes | None, bytes | None]]:
    """Return keys and values that are committed, once `at_least` are there."""
    ends = {"enable.partition.eof": True, "group.id": "none", "auto.offset.reset": "earliest"}
    consumer = Consumer({**client, **ends, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, n, 0) for n in range(partitions)])
    found: list[tuple[bytes | None, bytes | None]] = []
    at_end: set[int] = set()
    end_s = time.monotonic() + READ_S
    while (len(at_end) < partitions or len(found) < at_least) and time.monotonic() < end_s:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append((message.key(), message.value()))
        elif message is not None:
            at_end.add(message.partition() or 0)
    consumer.close()
    return found


def write_properties(path: Path, settings: Mapping[str, str]) -> Path:
    """Write a file of properties."""
    path.write_text(properties_text(settings))
    return path


def _page(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        text: str = answer.read().decode()
        return text


def _jaas(mechanism: str, password: str, token_file: Path) -> dict[str, str]:
    if mechanism == "OAUTHBEARER":
        package = f"{_MODULES}.oauthbearer"
        return {
            "sasl.jaas.config": f"{package}.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": f"{package}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": token_file.as_uri(),
        }
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    words = f'required username="{USER}" password="{quoted}";'
    return {"sasl.jaas.config": f"{_MODULES}.{module} {words}"}


@contextmanager
def secure_cluster(
    folder: Path, root: str = "", more: Mapping[str, str] | None = None
) -> Iterator[SecureCluster]:
    """Start the brokers; `more` has further settings of them."""
    authority, issuer = CertificateAuthority(), TokenIssuer()
    (folder / "ca.pem").write_text(authority.pem)
    store = authority.issue("broker", HOST, "localhost").write(folder / "broker.pem")
    authority.issue(USER).write(folder / "client.pem")
    (folder / "token").write_text(issuer.token(USER))
    jwks = issuer.write_jwks(folder / "jwks.json")
    root = root or f"file://{folder}/log"
    with sparklog.open_log(root) as log:
        log.set_password(USER, PASSWORD)
        log.create_acls(_all_rights(USER))
    settings = {
        "listeners": f"INTERNAL://{HOST}:0,EXTERNAL://{HOST}:0,MUTUAL://{HOST}:0,STEADY://{HOST}:0,"
        f"OPEN://{HOST}:0",
        "listener.security.protocol.map": "INTERNAL:SSL,EXTERNAL:SASL_SSL,MUTUAL:SSL,"
        "STEADY:SASL_SSL,OPEN:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        "ssl.keystore.location": str(store),
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.internal.ssl.client.auth": "required",
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
        "sasl.enabled.mechanisms": ",".join((*PASSWORDS, "OAUTHBEARER")),
        "listener.name.external.connections.max.reauth.ms": str(SESSION_MS),
        "sasl.oauthbearer.jwks.endpoint.url": jwks.as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "metrics.port": "0",
        "sasl.oauthbearer.clock.skew.seconds": "0",
        **(more or {}),
    }
    internal = {
        "security.protocol": "SSL",
        "ssl.ca.location": str(folder / "ca.pem"),
        "ssl.certificate.location": str(store),
        "ssl.key.location": str(store),
    }
    with Brokers(root, 2, settings, internal) as brokers:
        yield SecureCluster(brokers, root, folder, issuer, authority)


def _all_rights(user: str) -> list[AclBinding]:
    names = {
        ResourceType.TOPIC: "*",
        ResourceType.GROUP: "*",
        ResourceType.TRANSACTIONAL_ID: "*",
        ResourceType.CLUSTER: CLUSTER_NAME,
    }
    return [
        AclBinding(
            kind, name, PatternType.LITERAL, Principal("User", user), "*", AclOperation.ALL,
            AclPermission.ALLOW,
        )
        for kind, name in names.items()
    ]  # fmt: skip
