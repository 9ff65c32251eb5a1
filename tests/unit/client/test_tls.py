"""TLS of a client against a small TLS server: the certificates that Kafka's tests do not have."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from sparklog.client.addresses import BrokerAddress
from sparklog.client.security_settings import TlsSettings
from sparklog.client.tls import client_context, secured
from sparklog.core.errors import InvalidConfig, Unavailable
from tests.harness.certificates import CertificateAuthority, IssuedCertificate

HOST = "127.0.0.1"
AUTHORITY = CertificateAuthority()


@contextmanager
def listening(answer: IssuedCertificate | bytes, path: Path) -> Iterator[BrokerAddress]:
    """Serve one connection, with a certificate, or with bytes that are no TLS."""
    listener = socket.create_server((HOST, 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            if isinstance(answer, bytes):
                connection.recv(1)
                connection.sendall(answer)
                return
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(answer.write(path / "server.pem"))
            with context.wrap_socket(connection, server_side=True) as tls:
                tls.sendall((tls.version() or "").encode())
                tls.recv(1)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield BrokerAddress(*listener.getsockname()[:2])
    finally:
        thread.join(10)
        listener.close()


def version_of(address: BrokerAddress, settings: TlsSettings) -> str:
    """Connect, and return the version of TLS that the server chose."""
    with (
        socket.create_connection((address.host, address.port), 10) as plain,
        secured(plain, client_context(settings), address) as connection,
    ):
        return connection.recv(100).decode()


def trusting(**more: object) -> TlsSettings:
    return TlsSettings(truststore_certificates=AUTHORITY.pem, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_version_is_the_enabled_one(tmp_path: Path, version: str) -> None:
    with listening(AUTHORITY.issue("broker", HOST), tmp_path) as address:
        assert version_of(address, trusting(versions=(version,))) == version


def test_certificate_itself_may_be_trusted(tmp_path: Path) -> None:
    issued = AUTHORITY.issue("broker", HOST)
    leaf = issued.chain.split("-----END CERTIFICATE-----\n")[0] + "-----END CERTIFICATE-----\n"
    with listening(issued, tmp_path) as address:
        assert version_of(address, TlsSettings(truststore_certificates=leaf)) == "TLSv1.3"


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (AUTHORITY.issue("broker", HOST, lasts=timedelta(hours=-1)), "has expired; renew it"),
        (AUTHORITY.issue("broker", "example.com"), "names other hosts"),
        (AUTHORITY.issue("broker", "127.0.0.2"), "names other hosts"),
        (CertificateAuthority("b").issue("broker", HOST), r"in ssl\.truststore\.location"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak TLS"),
    ],
)
def test_wrong_peer_is_refused_with_the_reason(
    tmp_path: Path, answer: IssuedCertificate | bytes, match: str
) -> None:
    with (
        listening(answer, tmp_path) as address,
        pytest.raises(InvalidConfig, match=rf"{match}.* broker={HOST}"),
    ):
        version_of(address, trusting())


def test_peer_that_closes_is_unavailable(tmp_path: Path) -> None:
    with (
        listening(b"", tmp_path) as address,
        pytest.raises(Unavailable, match="expects no TLS"),
    ):
        version_of(address, trusting())


def test_wrong_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("marked-secret")
    with pytest.raises(InvalidConfig, match=r"no PEM; see ssl\.truststore.*empty\.pem") as caught:
        client_context(TlsSettings(truststore_location=str(tmp_path / "empty.pem")))
    assert "marked-secret" not in str(caught.value)
    with pytest.raises(InvalidConfig, match=r"ssl\.truststore\.location .*No such file"):
        client_context(TlsSettings(truststore_location=str(tmp_path / "absent.pem")))
    mine, other = AUTHORITY.issue("a"), AUTHORITY.issue("b")
    with pytest.raises(InvalidConfig, match="does the key belong to it") as caught:
        client_context(trusting(certificate_chain=mine.chain, key=other.key))
    assert other.key not in str(caught.value)
