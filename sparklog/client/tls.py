"""TLS of a client's connection: the context from PEM settings, and errors that name the mistake."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from sparklog.client.addresses import BrokerAddress
from sparklog.client.security_settings import TlsSettings
from sparklog.core.config.providers import read_bounded
from sparklog.core.errors import InvalidConfig, SparklogError, Unavailable

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")
"""OpenSSL's reasons for bytes that are no TLS record."""
_OUR_CERTIFICATE: Final = (
    "BAD_CERTIFICATE",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REQUIRED",
    "CERTIFICATE_REVOKED",
    "CERTIFICATE_UNKNOWN",
    "UNKNOWN_CA",
    "UNSUPPORTED_CERTIFICATE",
    "HANDSHAKE_FAILURE",
)
"""Alerts by which a broker rejects a client without a certificate, or its certificate."""


def client_context(tls: TlsSettings) -> ssl.SSLContext:
    """Return a context that verifies brokers, and has the client's certificate if there is one.

    Raises:
        InvalidConfig: a file cannot be read, is no PEM, or the key's password is wrong.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.verify_host
    versions = [_VERSIONS[name] for name in tls.versions]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    # As in Java, each certificate of the trust store is trusted, not roots alone.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    trusted = tls.truststore_certificates
    if tls.truststore_location:
        setting = "setting=ssl.truststore.location"
        trusted = read_bounded(Path(tls.truststore_location), setting)
    if not trusted:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        try:
            context.load_verify_locations(cadata=trusted)
        except (ssl.SSLError, ValueError) as error:
            raise InvalidConfig(
                "the trusted certificates are no PEM; see ssl.truststore.location or "
                f"ssl.truststore.certificates. file={tls.truststore_location or 'inline'} "
                f"problem={_reason(error)}"
            ) from None
    if tls.key or tls.key_location:
        _load_certificate(context, tls)
    return context


def _load_certificate(context: ssl.SSLContext, tls: TlsSettings) -> None:
    with ExitStack() as files:
        certificate, key = tls.certificate_location, tls.key_location
        if tls.key:
            certificate = files.enter_context(_memory_file(tls.certificate_chain))
            key = files.enter_context(_memory_file(tls.key))
        try:
            # Without a password OpenSSL would ask at the terminal.
            context.load_cert_chain(certificate, key, lambda: tls.key_password)
        except (OSError, ValueError) as error:
            raise InvalidConfig(
                "the client's certificate or key cannot be used: is it PEM, does the key belong "
                "to it, and is ssl.key.password right? "
                f"certificate={tls.certificate_location or 'inline'} "
                f"key={tls.key_location or 'inline'} problem={_reason(error)}"
            ) from None


@contextmanager
def _memory_file(text: str) -> Iterator[str]:
    """Yield the path of a file that is in memory only, for a library that reads files."""
    number = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        with open(number, "w", closefd=False) as file:
            file.write(text)
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)


def secured(plain: socket.socket, context: ssl.SSLContext, address: BrokerAddress) -> ssl.SSLSocket:
    """Return the connection with TLS, after the handshake.

    Raises:
        InvalidConfig: the broker is not the expected one, or does not speak TLS.
        Unavailable: it does not answer.
    """
    try:
        return context.wrap_socket(plain, server_hostname=address.host)
    except ssl.SSLError as error:
        raise tls_error(error, address) from error
    except OSError as error:
        raise Unavailable(
            "the broker ended the connection during the TLS handshake; if this goes on, its "
            "listener expects no TLS: correct security.protocol or the port. "
            f"broker={address} problem={error}"
        ) from error


def tls_error(error: OSError, address: BrokerAddress) -> SparklogError:
    """Return our error for one of OpenSSL's, with the setting that is wrong."""
    reason = _reason(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in (62, 64):  # X509_V_ERR_HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH
            advice = (
                "the broker's certificate names other hosts; connect to a name in it, or renew it"
            )
        elif error.verify_code == 10:  # X509_V_ERR_CERT_HAS_EXPIRED
            advice = "the broker's certificate has expired; renew it"
        else:
            advice = (
                "the broker's certificate is not trusted; name its certificate authority in "
                "ssl.truststore.location"
            )
        return InvalidConfig(f"{advice}. broker={address} problem={error.verify_message}")
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return Unavailable(
            "the broker ended the connection during the TLS handshake; if this goes on, its "
            "listener expects no TLS: correct security.protocol or the port. "
            f"broker={address}"
        )
    if reason.endswith(_NO_TLS):
        return InvalidConfig(
            "the broker's listener does not speak TLS; set security.protocol to PLAINTEXT or "
            f"SASL_PLAINTEXT, or use its port for TLS. broker={address}"
        )
    if reason.endswith(_OUR_CERTIFICATE):
        return InvalidConfig(
            "the broker rejected the client's certificate, or there is none; correct "
            f"ssl.keystore.location. broker={address} problem={reason}"
        )
    return Unavailable(f"TLS failed. broker={address} problem={reason}")


def _reason(error: Exception) -> str:
    """Return the cause in OpenSSL's or the system's words, without the values."""
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error.strerror or type(error).__name__)
    return str(getattr(error, "strerror", None) or type(error).__name__)
