"""TLS of a broker: the context of each listener, and that for calls to other brokers.

A context is made again when one of its files changes, and serves the connections that come then.
Connections that are open keep theirs. A renewed certificate must have the distinguished name and
the host names of the one before, unless a setting allows otherwise; see KIP-978.

  NETWORK-TLS-1: a wrong file never replaces a good context: it is reported, and the old one stays
      in use
  NETWORK-TLS-2: files are looked at once a second at most, however many clients connect
"""

from __future__ import annotations

import logging
import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509

from sparklog.broker.network.listeners import Endpoint
from sparklog.broker.network.tls_alerts import AlertingContext
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.config.properties import referenced_files
from sparklog.core.config.providers import SecretReader, read_bounded
from sparklog.core.config.security import setting_in_force
from sparklog.core.errors import InvalidConfig
from sparklog.security.pem import normal_pem
from sparklog.security.tls import (
    TlsIdentity,
    load_identity,
    load_trust,
    set_versions,
    tls_reason,
)

logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0
"""The time between two looks at the files."""
GROUPS_CHEAP_SINCE: Final = (3, 5)
"""The version of OpenSSL that dropped the largest groups of the key exchange from its defaults."""
CHEAP_GROUP: Final = "prime256v1"
"""The group that older versions use: each client of TLS 1.3 has it. By default a client could ask
for ffdhe8192, which takes 147 ms. Python before 3.15 can allow one group or all. Source: RFC 8446.
"""
_LOCATIONS: Final = ("ssl.keystore.location", "ssl.truststore.location")
_WITH_REFERENCES: Final = (
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.truststore.certificates",
)
"""Settings whose values may refer to files."""
_AUTH: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_NO_TLS: Final = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "UNKNOWN_PROTOCOL",
    "RECORD_LAYER_FAILURE",
)
_UNTRUSTING: Final = ("UNKNOWN_CA", "CERTIFICATE_UNKNOWN", "BAD_CERTIFICATE", "CERTIFICATE_EXPIRED")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The settings of one listener's TLS, with secrets as they are now."""

    identity: TlsIdentity
    trusted: str
    """PEM text; empty if no client is trusted by a certificate."""
    trusted_from: str
    client_auth: str
    versions: tuple[str, ...]
    ciphers: tuple[str, ...]

    @property
    def chain(self) -> str:
        """Return the certificate chain as PEM."""
        if self.identity.key:
            return self.identity.certificate_chain
        return read_bounded(Path(self.identity.certificate_location), "ssl.keystore.location")


class ListenerTls:
    """The TLS of one listener."""

    def __init__(
        self, config: BrokerConfig, listener: Endpoint, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """Read the settings and the files.

        Raises:
            InvalidConfig: a setting or a file cannot be used; the message names it.
        """
        self._config = config
        self._listener = listener
        self._clock = clock
        self._looked_s = clock.monotonic_s()
        self._seen = self._times()
        files = self._files()
        self._context = server_context(files)
        self._names = _names(files.chain)
        self._peer_context = peer_context(files, verify_host=self._verifies_hosts)

    @property
    def _verifies_hosts(self) -> bool:
        return bool(self._text("ssl.endpoint.identification.algorithm"))

    def context(self) -> ssl.SSLContext:
        """Return the context for the next connection of a client."""
        self._look()
        return self._context

    def handshake_s(self) -> float:
        """Return the average processor time of a recent handshake, in seconds."""
        return self._context.handshake_s

    def peer_context(self) -> ssl.SSLContext:
        """Return the context for the next connection to another broker."""
        self._look()
        return self._peer_context

    def _look(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s < self._looked_s + LOOK_S:
            return
        self._looked_s = now_s
        seen = self._times()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            files = self._files()
            context = server_context(files)
            names = _names(files.chain)
            self._check_names(names)
            self._peer_context = peer_context(files, verify_host=self._verifies_hosts)
        except InvalidConfig as error:
            logger.error(
                "a renewed certificate is not used, the one before stays listener=%s %s",
                self._listener.name,
                error,
            )
            return
        self._context, self._names = context, names
        logger.info("a renewed certificate is in use listener=%s", self._listener.name)

    def _check_names(self, names: tuple[str, frozenset[str]]) -> None:
        before, now = self._names, names
        if before[0] != now[0] and not self._flag("ssl.allow.dn.changes"):
            raise InvalidConfig(
                "the distinguished name has changed; set ssl.allow.dn.changes=true if that is "
                f"meant. before={before[0]!r} now={now[0]!r}"
            )
        gone = sorted(before[1] - now[1])
        if gone and not self._flag("ssl.allow.san.changes"):
            raise InvalidConfig(
                "names are missing that the certificate had; set ssl.allow.san.changes=true if "
                f"that is meant. missing={','.join(gone)}"
            )

    def _times(self) -> tuple[tuple[str, int], ...]:
        """Return the files of the settings, and when each of them changed."""
        paths = [self._text(name) for name in _LOCATIONS]
        for name in _WITH_REFERENCES:
            paths += referenced_files(self._text(name))
        return tuple((path, _changed(path)) for path in paths if path)

    def _files(self) -> TlsFiles:
        for kind in ("ssl.keystore.type", "ssl.truststore.type"):
            self._check_pem(kind)
        values = _Values(self._config, self._listener)
        location = self._text("ssl.keystore.location")
        key = values("ssl.keystore.key")
        if not (location or key):
            raise InvalidConfig(
                "a listener with TLS needs a certificate: set ssl.keystore.location to a PEM file "
                f"with the private key and the certificate chain. listener={self._listener.name}"
            )
        identity = TlsIdentity(
            location,
            location,
            normal_pem(values("ssl.keystore.certificate.chain"), "ssl.keystore.certificate.chain")
            if key
            else "",
            normal_pem(key, "ssl.keystore.key") if key else "",
            values("ssl.key.password"),
        )
        trusted_from = self._text("ssl.truststore.location")
        trusted = values("ssl.truststore.certificates")
        if trusted_from:
            trusted = read_bounded(Path(trusted_from), "setting=ssl.truststore.location")
        elif trusted:
            trusted = normal_pem(trusted, "ssl.truststore.certificates")
        return TlsFiles(
            identity,
            trusted,
            trusted_from or "inline",
            self._text("ssl.client.auth"),
            self._config.words(self._name("ssl.enabled.protocols")),
            self._config.words(self._name("ssl.cipher.suites")),
        )

    def _check_pem(self, setting: str) -> None:
        kind = self._text(setting).upper()
        if kind != "PEM":
            raise InvalidConfig(
                f"only PEM stores are read. Convert with `openssl pkcs12 -in STORE -out store.pem "
                f"-nodes` (a JKS store first with keytool -importkeystore). {setting}={kind}"
            )

    def _name(self, name: str) -> str:
        return setting_in_force(self._config, name, self._listener.name)

    def _text(self, name: str) -> str:
        return self._config.text(self._name(name))

    def _flag(self, name: str) -> bool:
        return self._config.flag(self._name(name))


class _Values:
    """Reads settings of one listener with their secrets."""

    def __init__(self, config: BrokerConfig, listener: Endpoint) -> None:
        self._config = config
        self._listener = listener
        self._reader = SecretReader()

    def __call__(self, name: str) -> str:
        found = setting_in_force(self._config, name, self._listener.name)
        return self._reader.value(found, self._config.text(found)).strip()


def _changed(path: str) -> int:
    """Return when a file changed, in ns; -1 if it cannot be looked at."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return -1


def server_context(files: TlsFiles) -> AlertingContext:
    """Return a context for clients.

    Raises:
        InvalidConfig: a certificate, a key or a cipher suite cannot be used.
    """
    context = AlertingContext(ssl.PROTOCOL_TLS_SERVER)
    set_versions(context, files.versions)
    if files.ciphers:
        try:
            context.set_ciphers(":".join(map(_openssl_name, files.ciphers)))
        except ssl.SSLError:
            raise InvalidConfig(
                "none of the cipher suites is known, or all are for TLS 1.3, where they are fixed. "
                f"ssl.cipher.suites={','.join(files.ciphers)}"
            ) from None
    if ssl.OPENSSL_VERSION_INFO < GROUPS_CHEAP_SINCE:
        context.set_ecdh_curve(CHEAP_GROUP)
    load_identity(context, files.identity, "broker")
    context.verify_mode = _AUTH[files.client_auth]
    if context.verify_mode is not ssl.CERT_NONE:
        if files.trusted:
            load_trust(context, files.trusted, files.trusted_from)
        else:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
    return context


def peer_context(files: TlsFiles, *, verify_host: bool) -> ssl.SSLContext:
    """Return a context for calls to other brokers, with the broker's own certificate.

    Without a trust store, the certificates of its own chain are trusted, and the system's.

    Raises:
        InvalidConfig: a certificate or a key cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = verify_host
    set_versions(context, files.versions)
    if files.trusted:
        load_trust(context, files.trusted, files.trusted_from)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        load_trust(context, files.chain, files.identity.certificate_location or "inline")
    load_identity(context, files.identity, "broker")
    return context


def handshake_fault(error: Exception) -> str:
    """Return the cause of a client's failed handshake, in words for the log."""
    if isinstance(error, TimeoutError):
        return "the client did not complete the TLS handshake in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not valid: {error.verify_message}"
    reason = tls_reason(error)
    if not isinstance(error, ssl.SSLError):
        return f"the client ended the connection during the TLS handshake ({reason})"
    if reason.endswith(_NO_TLS):
        return "the client does not speak TLS; set its security.protocol to SSL or SASL_SSL"
    if reason.endswith("PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        return "the client has no certificate, and ssl.client.auth is required"
    if "ALERT" in reason and reason.endswith(_UNTRUSTING):
        return f"the client does not trust the broker's certificate ({reason})"
    return f"the TLS handshake failed ({reason})"


def _names(chain: str) -> tuple[str, frozenset[str]]:
    """Return the distinguished name and the alternative names of a chain's first certificate."""
    try:
        certificate = x509.load_pem_x509_certificate(chain.encode())
    except ValueError as error:
        raise InvalidConfig(
            f"the broker's certificate is no PEM; see ssl.keystore.location. problem={error}"
        ) from None
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        hosts = frozenset(str(name.value) for name in names)
    except x509.ExtensionNotFound:
        hosts = frozenset()
    return certificate.subject.rfc4514_string(), hosts


def _openssl_name(suite: str) -> str:
    """Return OpenSSL's name for a cipher suite of TLS 1.2 with an IANA name."""
    text = suite.removeprefix("TLS_").replace("_WITH_", "_").replace("AES_", "AES")
    text = text.replace("_CBC_", "_").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    text = text.removeprefix("RSA_")
    return text.replace("_", "-")
