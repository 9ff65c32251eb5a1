"""TLS contexts from PEM: versions, trusted certificates, and a certificate with its key.

As in Java, each certificate of a trust store is trusted, not roots alone. Source: KIP-651.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from sparklog.core.errors import InvalidConfig

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class TlsIdentity:
    """A certificate chain and its private key: paths of PEM files, or both as PEM text."""

    certificate_location: str = ""
    key_location: str = ""
    certificate_chain: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)

    @property
    def is_given(self) -> bool:
        """Return True if there is a key."""
        return bool(self.key or self.key_location)


def set_versions(context: ssl.SSLContext, names: Iterable[str]) -> None:
    """Allow the versions of TLS with Kafka's names only."""
    versions = [_VERSIONS[name] for name in names]
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def load_trust(context: ssl.SSLContext, trusted: str, where: str) -> None:
    """Trust the certificates of a PEM text.

    Args:
        context: the context to change.
        trusted: the text.
        where: the file's path or `inline`, for the error.

    Raises:
        InvalidConfig: the text has no certificates.
    """
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=trusted)
    except (ssl.SSLError, ValueError) as error:
        raise InvalidConfig(
            "the trusted certificates are no PEM; see ssl.truststore.location or "
            f"ssl.truststore.certificates. file={where} problem={tls_reason(error)}"
        ) from None


def load_identity(context: ssl.SSLContext, identity: TlsIdentity, owner: str) -> None:
    """Present a certificate.

    Args:
        context: the context to change.
        identity: the certificate and its key.
        owner: `client` or `broker`, for the error.

    Raises:
        InvalidConfig: a file cannot be read, is no PEM, or the key's password is wrong.
    """
    with ExitStack() as files:
        certificate, key = identity.certificate_location, identity.key_location
        if identity.key:
            certificate = files.enter_context(_memory_file(identity.certificate_chain))
            key = files.enter_context(_memory_file(identity.key))
        try:
            # Without a password OpenSSL would ask at the terminal.
            context.load_cert_chain(certificate, key, lambda: identity.key_password)
        except (OSError, ValueError) as error:
            raise InvalidConfig(
                f"the {owner}'s certificate or key cannot be used: is it PEM, does the key belong "
                "to it, and is ssl.key.password right? "
                f"certificate={identity.certificate_location or 'inline'} "
                f"key={identity.key_location or 'inline'} problem={tls_reason(error)}"
            ) from None


def tls_reason(error: Exception) -> str:
    """Return the cause in OpenSSL's or the system's words, without any value."""
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error.strerror or type(error).__name__)
    return str(getattr(error, "strerror", None) or type(error).__name__)


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
