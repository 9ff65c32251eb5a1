"""The own clients at brokers with TLS and SASL listeners: logins, renewals, mistakes.

Each test runs against Apache Kafka and against sparklog, which have the same settings.
"""

from __future__ import annotations

import base64
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from sparklog.client import login as client_login
from sparklog.client.addresses import bootstrap_addresses
from sparklog.client.admin import Admin
from sparklog.client.consumer import Consumer, Record
from sparklog.client.producer import Producer
from sparklog.client.security import SecuritySettings, process_security
from sparklog.client.values import EARLIEST
from sparklog.client.wire import WireConnection
from sparklog.core.errors import (
    IllegalSaslState,
    InvalidConfig,
    OutcomeUnknown,
    SaslAuthenticationFailed,
    Unavailable,
)
from sparklog.core.types import TopicPartition
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request
from tests.cli.conftest import Cli
from tests.harness.certificates import CertificateAuthority
from tests.harness.tokens import AUDIENCE, ISSUER, TokenIssuer
from tests.interop.brokers import Brokers
from tests.interop.token_story import (
    KAFKAS_ANSWERS,
    OUR_ANSWERS,
    SECRET_KEY,
    can_log_in,
    properties_file,
    token_answers,
    token_login,
    token_tool,
)
from tests.peers.kafka import HOST, KafkaCluster, free_ports
from tests.peers.kafka_tools import run_tool

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
ODD_PASSWORD = 'a"b\\=ü;'
SESSION_MS = 3000
"""Kafka refuses a client that logs in again within a second."""


@dataclass(frozen=True)
class SecureKafka:
    """A running broker, its listeners by name, and what its clients need."""

    addresses: dict[str, str]
    folder: Path
    authority: CertificateAuthority
    issuer: TokenIssuer

    def tls(self, **more: str) -> dict[str, str]:
        names = {name.replace("_", "."): text for name, text in more.items()}
        return {"ssl.truststore.location": str(self.folder / "ca.pem"), **names}


def login(mechanism: str, user: str, password: str) -> dict[str, str]:
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} username="{user}" password="{password}";',
    }


@pytest.fixture(scope="module", params=["kafka", "sparklog"])
def secure(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureKafka]:
    """One node with a listener of each kind."""
    folder = tmp_path_factory.mktemp("secure-kafka")
    authority = CertificateAuthority()
    (folder / "ca.pem").write_text(authority.pem)
    authority.issue("broker", HOST, "localhost").write(folder / "broker.pem")
    issuer = TokenIssuer()
    jwks = issuer.write_jwks(folder / "jwks.json").as_uri()
    names = ("OPEN", "TLS", "MUTUAL", "LOGIN", "CLEAR", "SHORT")
    protocols = ("PLAINTEXT", "SSL", "SSL", "SASL_SSL", "SASL_PLAINTEXT", "SASL_SSL")
    ports = free_ports(len(names) + 1)
    addresses = {name: f"{HOST}:{port}" for name, port in zip(names, ports, strict=False)}
    listeners = ",".join(f"{name}://{address}" for name, address in addresses.items())
    controller = f"CONTROLLER://{HOST}:{ports[-1]}"
    security_map = ",".join(f"{n}:{p}" for n, p in zip(names, protocols, strict=True))
    plain = f'{PLAIN} username="b" password="b" user_b="b" user_alice="secret";'
    settings = {
        "listeners": f"{listeners},{controller}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": f"{security_map},CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "OPEN",
        "controller.quorum.voters": f"1@{HOST}:{ports[-1]}",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.oauthbearer.jwks.endpoint.url": jwks,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "delegation.token.secret.key": SECRET_KEY,
    }
    for name in ("login", "clear", "short"):
        prefix = f"listener.name.{name}"
        settings |= {
            f"{prefix}.plain.sasl.jaas.config": plain,
            f"{prefix}.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
            f"{prefix}.scram-sha-512.sasl.jaas.config": f"{SCRAM};",
            f"{prefix}.oauthbearer.sasl.jaas.config": f"{OAUTH};",
            f"{prefix}.oauthbearer.sasl.server.callback.handler.class": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
            ),
        }
        mechanisms = ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer")
        if name == "short":
            settings |= {f"{prefix}.{m}.connections.max.reauth.ms": str(SESSION_MS)
                         for m in mechanisms}  # fmt: skip
    node = _kafka(settings, jwks) if request.param == "kafka" else _sparklog(settings, listeners)
    with node:
        _add_users(addresses["OPEN"], {"alice": "secret", "odd": ODD_PASSWORD})
        yield SecureKafka(addresses, folder, authority, issuer)


def _kafka(settings: dict[str, str], jwks: str) -> KafkaCluster:
    return KafkaCluster(
        settings=settings,
        heap="256m",
        jvm_options=(f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={jwks}",),
    )


def _sparklog(settings: dict[str, str], listeners: str) -> Brokers:
    """Return a broker with Kafka's settings, but for those of Kafka's controller."""
    own = {name: text for name, text in settings.items() if not name.startswith("controller.")}
    own["listeners"] = listeners
    own["listener.security.protocol.map"] = own["listener.security.protocol.map"].replace(
        ",CONTROLLER:PLAINTEXT", ""
    )
    # Kafka always allows passwords in clear text.
    own["sparklog.sasl.plain.allow.cleartext"] = "true"
    return Brokers(f"memory://{uuid4()}", settings=own)


def _add_users(address: str, users: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    for user, password in users.items():
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(mechanism, 4096)
            change = UserScramCredentialUpsertion(user, info, password.encode())
            for future in admin.alter_user_scram_credentials([change]).values():
                future.result(30)


def connected(address: str, settings: dict[str, str]) -> WireConnection:
    (found,) = bootstrap_addresses(address)
    return WireConnection(found, 10.0, SecuritySettings(settings))


def metadata_request(connection: WireConnection) -> int:
    """Ask for metadata; return the number of brokers."""
    request = build_request(
        Api.METADATA,
        11,
        topics=(),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    return len(connection.call(request).brokers)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_each_mechanism_logs_in(secure: SecureKafka, mechanism: str) -> None:
    settings = {**login(mechanism, "alice", "secret"), **secure.tls()}
    with connected(secure.addresses["LOGIN"], settings) as connection:
        assert metadata_request(connection) == 1
        assert not connection.ended
    clear = login(mechanism, "alice", "secret") | {"security.protocol": "SASL_PLAINTEXT"}
    with connected(secure.addresses["CLEAR"], clear) as connection:
        assert metadata_request(connection) == 1


def test_password_with_odd_characters_comes_from_a_file(
    secure: SecureKafka, tmp_path: Path
) -> None:
    (tmp_path / "password").write_text(ODD_PASSWORD + "\n")
    settings = login("SCRAM-SHA-512", "odd", f"${{dir:{tmp_path}:password}}")
    with connected(secure.addresses["LOGIN"], {**settings, **secure.tls()}) as connection:
        assert metadata_request(connection) == 1


def test_bearer_token_of_a_file_logs_in(secure: SecureKafka, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(secure.issuer.token("carol") + "\n")
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
        **secure.tls(),
    }
    with connected(secure.addresses["LOGIN"], settings) as connection:
        assert metadata_request(connection) == 1
    file.write_text(secure.issuer.token("carol", -3600))
    with pytest.raises(SaslAuthenticationFailed, match="rejected the login"):
        connected(secure.addresses["LOGIN"], settings)


def test_client_certificate_is_presented(secure: SecureKafka, tmp_path: Path) -> None:
    issued = secure.authority.issue("client", password="key password")
    issued.write(tmp_path / "client.pem")
    files = secure.tls(
        ssl_keystore_location=str(tmp_path / "client.pem"), ssl_key_password="key password"
    )
    one_line = " ".join(issued.chain.split("\n"))
    inline = secure.tls(
        ssl_keystore_key=" ".join(issued.key.split("\n")),
        ssl_keystore_certificate_chain=one_line,
        ssl_key_password="key password",
    )
    for settings in (files, inline):
        given = {"security.protocol": "SSL", **settings}
        with connected(secure.addresses["MUTUAL"], given) as connection:
            assert metadata_request(connection) == 1
    with pytest.raises(InvalidConfig, match=r"ssl\.key\.password right"):
        connected(
            secure.addresses["MUTUAL"],
            {"security.protocol": "SSL", **files, "ssl.key.password": "other"},
        )
    with pytest.raises(InvalidConfig, match="rejected the client's certificate"):
        connected(secure.addresses["MUTUAL"], {"security.protocol": "SSL", **secure.tls()})


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_wrong_password_is_an_error_at_once(secure: SecureKafka, mechanism: str, user: str) -> None:
    settings = {**login(mechanism, user, "marked-secret"), **secure.tls()}
    with pytest.raises(SaslAuthenticationFailed, match="correct the user") as caught:
        connected(secure.addresses["LOGIN"], settings)
    assert "marked-secret" not in str(caught.value)


def test_wrong_listeners_are_named(secure: SecureKafka) -> None:
    tls = {"security.protocol": "SSL", **secure.tls()}
    log_in = {**login("PLAIN", "alice", "secret"), **secure.tls()}
    with pytest.raises(InvalidConfig, match="speaks TLS; set security"):
        connected(secure.addresses["TLS"], {})
    with pytest.raises(Unavailable, match="expects no TLS"):
        connected(secure.addresses["OPEN"], tls)
    with pytest.raises(IllegalSaslState, match="expects no login"):
        connected(secure.addresses["TLS"], log_in)
    with (
        connected(secure.addresses["LOGIN"], tls) as connection,
        pytest.raises(OutcomeUnknown, match="TLS or a login"),
    ):
        metadata_request(connection)


def test_broker_of_another_authority_is_refused(secure: SecureKafka, tmp_path: Path) -> None:
    (tmp_path / "other.pem").write_text(CertificateAuthority("another").pem)
    settings = {"security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "other.pem")}
    with pytest.raises(InvalidConfig, match=r"not trusted; name its .* ssl\.truststore\.location"):
        connected(secure.addresses["TLS"], settings)


def test_host_name_is_verified_unless_the_setting_is_empty(secure: SecureKafka) -> None:
    wrong = secure.addresses["TLS"].replace(HOST, "127.1")  # the same host by another name
    tls = {"security.protocol": "SSL", **secure.tls()}
    with pytest.raises(InvalidConfig, match="names other hosts"):
        connected(wrong, tls)
    with connected(wrong, {**tls, "ssl.endpoint.identification.algorithm": ""}) as connection:
        assert metadata_request(connection) == 1


def test_session_is_renewed_before_it_ends(
    secure: SecureKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**login("SCRAM-SHA-512", "alice", "secret"), **secure.tls()}
    (address,) = bootstrap_addresses(secure.addresses["SHORT"])
    lifetimes: list[int] = []
    log_in = client_login.log_in

    def counted(*arguments: Any) -> int:
        lifetimes.append(log_in(*arguments))
        return lifetimes[-1]

    monkeypatch.setattr(client_login, "log_in", counted)
    with WireConnection(address, 10.0, SecuritySettings(settings)) as connection:
        while len(lifetimes) < 4:  # three renewals on one connection
            assert metadata_request(connection) == 1
            time.sleep(0.1)  # only time ends a session, and its end is what is tested
    assert set(lifetimes) == {SESSION_MS}


def test_clients_use_the_settings(secure: SecureKafka) -> None:
    settings = {**login("SCRAM-SHA-512", "alice", "secret"), **secure.tls()}
    address = secure.addresses["LOGIN"]
    with Admin(address, settings=settings) as admin:
        admin.create_topic("secured", partitions=1)
    with Producer(address, settings) as producer:
        assert producer.send("secured", b"hello").result().offset == 0
    with Consumer(address, settings=settings) as consumer:
        consumer.assign({TopicPartition("secured", 0): EARLIEST})
        records: list[Record] = []
        while not records:
            records = consumer.poll()
        assert [record.value for record in records] == [b"hello"]


def user_at_login(secure: SecureKafka, kind: str) -> tuple[str, dict[str, str]]:
    """Return the address and the settings of a client, by its user or its lack of one."""
    at = secure.addresses
    if kind == "plaintext":
        return at["OPEN"], {}
    if kind == "one-way TLS":
        return at["TLS"], {"security.protocol": "SSL", **secure.tls()}
    mechanism, password = {
        "alice": ("SCRAM-SHA-512", "secret"), "odd": ("SCRAM-SHA-256", r'a\"b\\=ü;'),
        "b": ("PLAIN", "b"),
    }[kind]  # fmt: skip
    return at["LOGIN"], {**login(mechanism, kind, password), **secure.tls()}


def test_answers_about_delegation_tokens_are_kafkas(
    secure: SecureKafka, request: pytest.FixtureRequest
) -> None:
    is_kafka = request.node.callspec.params["secure"] == "kafka"
    expected = KAFKAS_ANSWERS if is_kafka else OUR_ANSWERS
    assert token_answers(partial(user_at_login, secure)) == expected


@pytest.mark.parametrize("secure", ["sparklog"], indirect=True)
def test_kafkas_tool_and_a_java_client_use_tokens(secure: SecureKafka, tmp_path: Path) -> None:
    address, settings = user_at_login(secure, "alice")
    file = properties_file(tmp_path / "alice", settings)
    renewer = ("--renewer-principal", "User:odd")
    created = token_tool(address, file, "--create", "--max-life-time-period", "-1", *renewer)
    token_id, secret, *_ = created.splitlines()[-1].split()
    by_token = token_login("SCRAM-SHA-512", token_id, base64.b64decode(secret))
    own = properties_file(tmp_path / "token", {**settings, **by_token})
    topic = ("--create", "--topic", "by-token")
    run_tool("TopicCommand", "--bootstrap-server", address, "--command-config", str(own), *topic)
    with Admin(address, settings={**settings, **by_token}) as admin:
        assert "by-token" in admin.topic_names()
    hmac = ("--hmac", secret)
    renewed = token_tool(address, file, "--renew", "--renew-time-period", "-1", *hmac)
    assert "Completed renew operation" in renewed
    described = token_tool(address, file, "--describe", "--owner-principal", "User:alice")
    assert [line.split()[:5] for line in described.splitlines() if token_id in line] == [
        [token_id, secret, "User:alice", "User:alice", "[User:odd]"]
    ]
    expired = token_tool(address, file, "--expire", "--expiry-time-period", "-1", *hmac)
    assert "Completed expire operation" in expired
    assert not can_log_in(address, {**settings, **by_token})
    with pytest.raises(InvalidConfig, match="librdkafka"):
        Producer(address, {**settings, **by_token})


def test_librdkafka_logs_in_with_a_bearer_token(secure: SecureKafka, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(secure.issuer.token("carol"))
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": (tmp_path / "token").as_uri(),
        **secure.tls(),
    }
    with Producer(secure.addresses["LOGIN"], settings) as producer:
        assert producer.send("bearer", b"hello").result().offset == 0


@pytest.mark.parametrize("client", ["producer", "consumer"])
def test_librdkafka_reports_a_wrong_password(secure: SecureKafka, client: str) -> None:
    settings = {**login("SCRAM-SHA-512", "alice", "marked-secret"), **secure.tls()}
    with pytest.raises(SaslAuthenticationFailed) as caught:
        _use(client, secure.addresses["LOGIN"], settings)
    assert "marked-secret" not in str(caught.value)


def _use(client: str, address: str, settings: dict[str, str]) -> None:
    if client == "producer":
        with Producer(address, settings) as producer:
            producer.send("t", b"x").result(30)
    else:
        with Consumer(address, settings=settings) as consumer:
            consumer.assign({TopicPartition("t", 0): EARLIEST})
            for _ in range(30):
                consumer.poll()


def client_file(secure: SecureKafka, folder: Path, password: str) -> Path:
    """Write a client properties file whose password is in a file of its own."""
    (folder / "secrets").write_text(f"password={password}\n")
    settings = login("SCRAM-SHA-512", "alice", f"${{file:{folder}/secrets:password}}")
    lines = {**settings, **secure.tls(), "client.id": "me"}.items()
    file = folder / "client.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in lines))
    return file


def test_commands_take_a_client_file(
    secure: SecureKafka, tmp_path: Path, cli_at: Callable[[str], Cli]
) -> None:
    cli = cli_at(secure.addresses["LOGIN"])
    given = ("--command-config", str(client_file(secure, tmp_path, "secret")))
    topic = ("--topic", "by-command")
    created = cli.ok("topics", *given, "--create", *topic, "--partitions", "1")
    assert "only security.*, sasl.* and ssl.* act; others have no effect: ['client.id']" in (
        created.errors
    )
    cli.ok("produce", *given, *topic, stdin=b"a\nb\n")
    read = ("consume", *given, *topic, "--from-beginning", "--group", "g", "--max-messages", "1")
    assert cli.ok(*read).text == "a\n"
    described = cli.ok("groups", *given, "--describe", "--group", "g", "--lag-time").text
    assert "by-command" in described


def test_client_file_of_the_environment_acts(
    secure: SecureKafka,
    tmp_path: Path,
    cli_at: Callable[[str], Cli],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = client_file(secure, tmp_path, "secret")
    monkeypatch.setenv("SPARKLOG_COMMAND_CONFIG", str(file))
    assert cli_at(secure.addresses["LOGIN"]).ok("topics", "--list").code == 0
    assert process_security().given["security.protocol"] == "SASL_SSL"


def test_no_output_shows_a_secret(
    secure: SecureKafka,
    tmp_path: Path,
    cli_at: Callable[[str], Cli],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Plant a marked password and token, and search all that the clients print and log."""
    caplog.set_level("DEBUG")
    cli = cli_at(secure.addresses["LOGIN"])
    file = client_file(secure, tmp_path, "marked-secret")
    outcomes = [
        cli(command, "--command-config", str(file), *words, stdin=b"a\n")
        for command, *words in (
            ("topics", "--list"),
            ("produce", "--topic", "t"),
            ("groups", "--list"),
            ("configs", "--describe", "--topic", "t"),
        )
    ]
    assert {outcome.code for outcome in outcomes} == {1}
    assert all("correct the user and the password" in outcome.errors for outcome in outcomes)
    settings = login("SCRAM-SHA-512", "alice", "marked-secret") | secure.tls()
    with pytest.raises(SaslAuthenticationFailed) as caught:
        _use("producer", secure.addresses["LOGIN"], settings)
    shown = [
        caplog.text,
        repr(SecuritySettings(settings)),
        repr(SecuritySettings(settings).resolve()),
        "".join(traceback.format_exception(caught.value)),
        *(outcome.text + outcome.errors for outcome in outcomes),
        Path("/proc/self/cmdline").read_text(),
    ]
    assert [text for text in shown if "marked-secret" in text] == []
