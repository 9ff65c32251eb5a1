"""SCRAM credentials: derivation from a password, the store of all users, and decoys.

A credential has the derived keys only. The holder of a stored credential can impersonate the
server to that user, but cannot log in as the user.

Source: RFC 5802, section 3; KIP-554 for the bounds of the iterations.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Final

from sparklog.core.entropy import Entropy
from sparklog.core.errors import UnacceptableCredential

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384
_SALT_BITS: Final = 130
_BASE_36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
PASSWORD_BYTES_MAX: Final = 4096
"""A longer password is refused: it would only cost time."""


class ScramMechanism(IntEnum):
    """A SCRAM mechanism under Kafka's number."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """Return the mechanism's name in SASL."""
        return f"SCRAM-SHA-{self.hash_name[3:]}"

    @property
    def hash_name(self) -> str:
        """Return the name of its hash in `hashlib`."""
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    @property
    def key_bytes(self) -> int:
        """Return the size of its keys in bytes."""
        return hashlib.new(self.hash_name).digest_size

    def hmac(self, key: bytes, message: bytes) -> bytes:
        """Return the keyed hash of a message."""
        return hmac.digest(key, message, self.hash_name)

    def hash(self, data: bytes) -> bytes:
        """Return the hash of the data."""
        return hashlib.new(self.hash_name, data).digest()

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Return the salted password. Cost: 1.5 ms (SHA-256) or 5 ms (SHA-512) at 4096 rounds."""
        return hashlib.pbkdf2_hmac(self.hash_name, password.encode(), salt, iterations)


SCRAM_NAMES: Final = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}
"""The SCRAM mechanisms by their SASL name."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The stored form of a password for one mechanism."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    def proves(self, mechanism: ScramMechanism, password: str) -> bool:
        """Return True if it was derived from this password. Cost: one derivation."""
        salted = mechanism.salted_password(password, self.salt, self.iterations)
        derived = credential_of(mechanism, self.salt, salted, self.iterations)
        return hmac.compare_digest(derived.stored_key, self.stored_key)


def check_iterations(iterations: int) -> None:
    """Check a number of iterations.

    Raises:
        UnacceptableCredential: outside of 4096 to 16384.
    """
    if iterations < ITERATIONS_MIN:
        raise UnacceptableCredential(f"Too few iterations. iterations={iterations}")
    if iterations > ITERATIONS_MAX:
        raise UnacceptableCredential(f"Too many iterations. iterations={iterations}")


def credential_of(
    mechanism: ScramMechanism, salt: bytes, salted_password: bytes, iterations: int
) -> ScramCredential:
    """Return the credential of a salted password, which itself is not kept."""
    client_key = mechanism.hmac(salted_password, b"Client Key")
    server_key = mechanism.hmac(salted_password, b"Server Key")
    return ScramCredential(salt, mechanism.hash(client_key), server_key, iterations)


@dataclass(frozen=True, slots=True)
class SaltedPassword:
    """A password as a client sends it to brokers."""

    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)
    iterations: int


def salted(
    mechanism: ScramMechanism, password: str, entropy: Entropy, iterations: int = ITERATIONS_MIN
) -> SaltedPassword:
    """Return a password with a new salt. Cost: one derivation.

    Raises:
        UnacceptableCredential: an empty or very long password, or a wrong number of iterations.
    """
    check_iterations(iterations)
    try:
        size = len(password.encode())
    except UnicodeEncodeError:
        raise UnacceptableCredential("a password is text that UTF-8 can encode.") from None
    if not 0 < size <= PASSWORD_BYTES_MAX:
        raise UnacceptableCredential(
            f"a password has 1 to {PASSWORD_BYTES_MAX} bytes. bytes={size}"
        )
    salt = _salt(int.from_bytes(entropy.random_bytes(17)))
    return SaltedPassword(salt, mechanism.salted_password(password, salt, iterations), iterations)


def new_credential(
    mechanism: ScramMechanism,
    password: str,
    entropy: Entropy,
    iterations: int = ITERATIONS_MIN,
) -> ScramCredential:
    """Return a credential of a password with a new salt.

    Raises:
        UnacceptableCredential: as `salted`.
    """
    made = salted(mechanism, password, entropy, iterations)
    return credential_of(mechanism, made.salt, made.salted_password, iterations)


def _salt(number: int) -> bytes:
    """Return 130 bits as text in base 36, the form in which Kafka's tools make salts."""
    number %= 1 << _SALT_BITS
    digits = []
    while number:
        number, digit = divmod(number, 36)
        digits.append(_BASE_36[digit])
    return "".join(reversed(digits)).encode()


ScramCredentials = Mapping[str, Mapping[ScramMechanism, ScramCredential]]
"""Credentials by user and mechanism."""


@dataclass(frozen=True)
class CredentialStore:
    """The users of a cluster, and decoys for names that are not users.

    A decoy is the same at every try and at every broker, because it is derived from the cluster's
    secret. So the first reply of a SCRAM exchange does not show whether a user exists.
    """

    users: ScramCredentials
    secret: bytes = field(repr=False)

    def find(self, mechanism: ScramMechanism, name: str) -> ScramCredential | None:
        """Return a user's credential, or None."""
        return self.users.get(name, {}).get(mechanism)

    def find_any(self, name: str) -> tuple[ScramMechanism, ScramCredential, bool]:
        """Return a credential that a password can be compared with, and whether it is a user's.

        A name that is no user has a decoy. It costs as much time as the credential of most users.
        """
        known = self.users.get(name, {})
        mechanism = next((one for one in ScramMechanism if one in known), self._usual_mechanism)
        decoy = self.decoy(mechanism, name)
        return mechanism, known.get(mechanism, decoy), mechanism in known

    def decoy(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        """Return a credential that no password proves, with a salt that stays the same."""
        key = b"decoy %d " % mechanism + name.encode()
        salt = _salt(int.from_bytes(hmac.digest(self.secret, b"salt " + key, "sha512")))
        keys = hmac.digest(self.secret, b"keys " + key, "sha512")[: mechanism.key_bytes]
        return ScramCredential(salt, keys, keys, self._usual_iterations[mechanism])

    @cached_property
    def _usual_mechanism(self) -> ScramMechanism:
        """The mechanism that the passwords of most users are compared by."""
        firsts = Counter(min(credentials) for credentials in self.users.values() if credentials)
        return firsts.most_common(1)[0][0] if firsts else ScramMechanism.SHA_256

    @cached_property
    def _usual_iterations(self) -> dict[ScramMechanism, int]:
        """The most frequent number of iterations, so that decoys do not differ from users."""
        usual = {}
        for mechanism in ScramMechanism:
            counts = Counter(
                credentials[mechanism].iterations
                for credentials in self.users.values()
                if mechanism in credentials
            )
            usual[mechanism] = counts.most_common(1)[0][0] if counts else ITERATIONS_MIN
        return usual
