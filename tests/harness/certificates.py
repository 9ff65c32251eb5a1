"""Certificates for tests, as PEM: an authority issues them for hosts or for clients."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)
_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=True, content_commitment=False, key_encipherment=False,
    data_encipherment=False, key_agreement=False, key_cert_sign=True, crl_sign=True,
    encipher_only=False, decipher_only=False,
)  # fmt: skip


@dataclass(frozen=True)
class IssuedCertificate:
    """A certificate with its key."""

    chain: str
    key: str

    def write(self, path: Path) -> Path:
        """Write key and chain into one file, as `ssl.keystore.location` takes it."""
        path.write_text(self.key + self.chain)
        return path


class CertificateAuthority:
    """An authority that a test names as trusted."""

    def __init__(self, name: str = "test authority") -> None:
        self._name = _name(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = (
            unsigned(self._name, self._name, self._key.public_key(), DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_SIGNS_CERTIFICATES, critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        """Return the authority's certificate."""
        return self._certificate.public_bytes(Encoding.PEM).decode()

    def issue(
        self, name: str, *hosts: str, password: str = "", lasts: timedelta = DAY
    ) -> IssuedCertificate:
        """Return a certificate for `hosts`; a negative `lasts` makes an expired one."""
        key = ec.generate_private_key(ec.SECP256R1())
        # From Python 3.13 on, its default contexts want what RFC 5280 wants in a certificate.
        named = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = unsigned(_name(name), self._name, key.public_key(), lasts).add_extension(
            named, critical=False
        )
        if hosts:
            names = x509.SubjectAlternativeName([_host(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return IssuedCertificate(
            certificate.public_bytes(Encoding.PEM).decode() + self.pem,
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode(),
        )


def unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, lasts: timedelta
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 2 * DAY)
        .not_valid_after(now + lasts)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
