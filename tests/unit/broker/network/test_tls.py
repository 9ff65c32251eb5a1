"""Listeners with TLS over real sockets: certificates, renewals, and failed handshakes."""

from __future__ import annotations

import asyncio
import logging
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from sparklog.broker.network.broker_client import TcpNetwork
from sparklog.broker.network.prometheus import MetricsServer
from sparklog.broker.network.tls import GROUPS_CHEAP_SINCE, LOOK_S
from sparklog.broker.network.tls_alerts import UNEXPECTED_MESSAGE, AlertingContext
from sparklog.broker.runtime.environment import Address, Unreachable
from sparklog.core.errors import InvalidConfig
from sparklog.protocol.messages import frames
from tests.harness.certificates import DAY, CertificateAuthority, IssuedCertificate
from tests.harness.secured_server import (
    AUTHORITY,
    SASL_PLAIN,
    Peer,
    Secured,
    serve,
)
from tests.unit.broker.network.test_server import metadata


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a PEM file with a certificate for this machine, and its key."""
    return AUTHORITY.issue("broker", "127.0.0.1", "localhost").write(tmp_path / "broker.pem")


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    path = tmp_path / "ca.pem"
    path.write_text(AUTHORITY.pem)
    return path


def client_tls(
    identity: IssuedCertificate | None = None, folder: Path | None = None, trusted: str = ""
) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=trusted or AUTHORITY.pem)
    if identity is not None and folder is not None:
        context.load_cert_chain(identity.write(folder / "client.pem"))
    return context


def spoil(path: Path) -> None:
    path.write_text("nothing")


def test_the_name_in_a_certificate_is_the_principal(
    store: Path, authority: Path, tmp_path: Path
) -> None:
    identity = AUTHORITY.issue("etl")

    async def story(secured: Secured) -> None:
        at = secured.at("SSL")
        peer = await Peer.connect(at, client_tls(identity, tmp_path))
        await peer.ask(metadata())
        anonymous = await Peer.connect(at, client_tls())
        await anonymous.ask(metadata())
        assert secured.principals == ["User:etl", "User:ANONYMOUS"]
        peer.writer.close()
        anonymous.writer.close()

    serve(
        story,
        {
            "listeners": "SSL://127.0.0.1:0",
            "ssl.keystore.location": str(store),
            "ssl.truststore.location": str(authority),
            "ssl.client.auth": "requested",
            "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
        },
    )


def test_handshakes_that_fail_are_named_in_the_log(
    store: Path, authority: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = CertificateAuthority("another authority")
    stranger, expired = foreign.issue("mallory"), AUTHORITY.issue("etl", lasts=-DAY)

    async def is_closed(at: Address, context: ssl.SSLContext) -> bool:
        try:
            return await (await Peer.connect(at, context)).closed()
        except (ssl.SSLError, ConnectionError):
            return True

    async def story(secured: Secured) -> None:
        at = secured.at("SSL")
        for context in (
            client_tls(stranger, tmp_path),
            client_tls(expired, tmp_path),
            client_tls(),
        ):
            assert await is_closed(at, context)
        plain = await Peer.connect(at)
        plain.writer.write(frames.encode_request(metadata(), 1, "test"))
        await plain.closed()
        for cause in (
            "self-signed certificate in certificate chain",
            "certificate has expired",
            "the client has no certificate",
            "the client does not speak TLS",
        ):
            (line,) = [text for text in caplog.messages if cause in text]
            assert "listener=SSL client=127.0.0.1" in line
        assert secured.contexts == []
        assert secured.server.connections == 0

    serve(
        story,
        {
            "listeners": "SSL://127.0.0.1:0",
            "ssl.keystore.location": str(store),
            "ssl.truststore.location": str(authority),
            "ssl.client.auth": "required",
        },
    )


def test_a_connection_without_bytes_is_not_accepted_before_others(store: Path) -> None:
    async def story(secured: Secured) -> None:
        at = secured.at("SSL")
        silent = await Peer.connect(at)
        peer = await Peer.connect(at, client_tls())
        await peer.ask(metadata())
        assert secured.server.connections == 1
        silent.writer.write(frames.encode_request(metadata(), 1, "test"))
        assert (await silent.reader.read()) == UNEXPECTED_MESSAGE
        peer.writer.close()
        silent.writer.close()

    serve(story, {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(store)})


def test_a_listener_exchanges_keys_in_groups_that_are_cheap(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(secured: Secured) -> None:
        at = secured.at("SSL")
        for group in ("prime256v1", ""):
            context = client_tls()
            if group:
                context.set_ecdh_curve(group)
            peer = await Peer.connect(at, context)
            await peer.ask(metadata())
            peer.writer.close()
        context = client_tls()
        context.set_ecdh_curve("secp521r1")
        if ssl.OPENSSL_VERSION_INFO < GROUPS_CHEAP_SINCE:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await Peer.connect(at, context)
            assert "NO_SUITABLE_KEY_SHARE" in caplog.text

    serve(story, {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(store)})


def test_a_context_measures_each_step_of_a_handshake(store: Path) -> None:
    steps: list[bool] = []

    class Measured(AlertingContext):
        def measured(self, cost_s: float, *, begins: bool) -> None:
            assert cost_s > 0
            steps.append(begins)

    context, trusting = Measured(ssl.PROTOCOL_TLS_SERVER), client_tls()
    context.load_cert_chain(store)
    for _ in range(2):
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = context.wrap_bio(to_server, to_client, server_side=True)
        client = trusting.wrap_bio(to_client, to_server, server_hostname="127.0.0.1")
        for side in (client, server, client, server):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
        assert server.version() == "TLSv1.3"
    assert steps == [True, False] * 2


def test_the_average_of_handshakes_counts_all_their_steps() -> None:
    context = AlertingContext(ssl.PROTOCOL_TLS_SERVER)
    for _ in range(200):
        context.measured(0.0, begins=True)
        context.measured(0.004, begins=False)
        context.measured(0.001, begins=False)
    assert 0.004 < context.handshake_s < 0.006


def test_a_client_with_tls_on_a_plain_port_is_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def story(secured: Secured) -> None:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await Peer.connect(secured.at("SASL_PLAINTEXT"), client_tls())
        assert "the peer speaks TLS, and this listener does not" in caplog.text

    serve(story, SASL_PLAIN)


def test_a_renewed_certificate_is_used_for_new_connections(
    store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def serial(at: Address) -> tuple[Peer, bytes | None]:
        peer = await Peer.connect(at, client_tls())
        return peer, peer.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)

    async def story(secured: Secured) -> None:
        at = secured.at("SSL")
        first, before = await serial(at)
        AUTHORITY.issue("broker", "127.0.0.1", "localhost").write(store)
        await asyncio.sleep(LOOK_S + 0.1)
        second, after = await serial(at)
        assert before != after
        await first.ask(metadata())
        await second.ask(metadata())
        AUTHORITY.issue("another", "127.0.0.1").write(store)
        await asyncio.sleep(LOOK_S + 0.1)
        third, kept = await serial(at)
        assert kept == after
        assert "the distinguished name has changed" in caplog.text
        spoil(store)
        await asyncio.sleep(LOOK_S + 0.1)
        fourth, kept = await serial(at)
        assert kept == after
        for peer in (first, second, third, fourth):
            peer.writer.close()

    serve(story, {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(store)})


def test_brokers_verify_each_others_certificates(store: Path, tmp_path: Path) -> None:
    async def story(secured: Secured) -> None:
        network = TcpNetwork("broker-2", secured.listeners.peer_access(None))
        await network.call(secured.addresses.inter_broker, metadata(), timeout_s=5)
        AUTHORITY.issue("broker", "elsewhere.example").write(store)
        await asyncio.sleep(LOOK_S + 0.1)
        await network.close()
        with pytest.raises(Unreachable, match="no TLS connection"):
            await network.call(secured.addresses.inter_broker, metadata(), timeout_s=5)
        await network.close()

    serve(
        story,
        {
            "listeners": "SSL://127.0.0.1:0",
            "ssl.keystore.location": str(store),
            "ssl.allow.san.changes": "true",
        },
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "a listener with TLS needs a certificate"),
        ({"ssl.keystore.type": "JKS"}, "only PEM stores are read"),
        ({"ssl.keystore.location": "/no/such/file"}, "cannot be used"),
        ({"ssl.cipher.suites": "TLS_NO_SUCH_SUITE"}, "none of the cipher suites is known"),
    ],
)
def test_wrong_tls_settings_are_errors_at_the_start(
    settings: dict[str, str], message: str, store: Path
) -> None:
    async def story(secured: Secured) -> None:
        raise AssertionError("it must not start")

    if "ssl.cipher.suites" in settings:
        settings = {**settings, "ssl.keystore.location": str(store)}
    with pytest.raises(InvalidConfig, match=message):
        serve(story, {"listeners": "SSL://127.0.0.1:0", **settings})


def test_a_cipher_suite_is_named_as_in_kafka(store: Path) -> None:
    async def story(secured: Secured) -> None:
        peer = await Peer.connect(secured.at("SSL"), client_tls())
        cipher, version, _ = peer.writer.get_extra_info("ssl_object").cipher()
        assert (cipher, version) == ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2")
        peer.writer.close()

    serve(
        story,
        {
            "listeners": "SSL://127.0.0.1:0",
            "ssl.keystore.location": str(store),
            "ssl.enabled.protocols": "TLSv1.2",
            "ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        },
    )


def test_the_metrics_page_has_the_tls_of_a_listener(store: Path, authority: Path) -> None:
    async def page(secured: Secured, context: ssl.SSLContext) -> bytes:
        metrics = MetricsServer(secured.metrics, tls=secured.listeners.metrics_tls())
        port = await metrics.start("127.0.0.1", 0)
        try:
            peer = await Peer.connect(Address("127.0.0.1", port), context)
            peer.writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            return await peer.reader.read()
        finally:
            await metrics.stop()

    async def story(secured: Secured) -> None:
        answer = await page(secured, client_tls())
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert b"kafka_server_socketservermetrics_connection_count" in answer
        with pytest.raises(ssl.SSLError):
            await page(secured, client_tls(trusted=CertificateAuthority("another").pem))

    settings = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(store)}
    serve(story, {**settings, "metrics.listener.name": "ssl"})


def test_the_metrics_page_needs_a_listener_with_tls(store: Path) -> None:
    async def story(secured: Secured) -> None:
        with pytest.raises(InvalidConfig, match="the name of a listener with TLS"):
            secured.listeners.metrics_tls()

    settings = {"listeners": "SSL://127.0.0.1:0", "ssl.keystore.location": str(store)}
    serve(story, {**settings, "metrics.listener.name": "other"})
