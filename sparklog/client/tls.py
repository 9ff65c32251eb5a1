"""TLS of a client's connection: the context from PEM settings, and errors that name the mistake."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Final

from sparklog.client.addresses import BrokerAddress
from sparklog.client.security_settings import TlsSettings
from sparklog.core.config.providers import read_bounded
from sparklog.core.errors import InvalidConfig, SparklogError, Unavailable
from sparklog.security.tls import (
    TlsIdentity,
    load_identity,
    load_trust,
    set_versions,
    tls_reason,
)

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
    set_versions(context, tls.versions)
    trusted = tls.truststore_certificates
    if tls.truststore_location:
        setting = "setting=ssl.truststore.location"
        trusted = read_bounded(Path(tls.truststore_location), setting)
    if trusted:
        load_trust(context, trusted, tls.truststore_location or "inline")
    else:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    identity = TlsIdentity(
        tls.certificate_location, tls.key_location, tls.certificate_chain, tls.key, tls.key_password
    )
    if identity.is_given:
        load_identity(context, identity, "client")
    return context


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
    reason = tls_reason(error)
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
