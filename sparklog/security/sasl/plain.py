"""PLAIN: user name and password in clear text. Source: RFC 4616, KIP-43.

The password is compared with the users' SCRAM credentials, so PLAIN and SCRAM have one user store.
Users of a `plain.sasl.jaas.config` are static users of one broker; they come first.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from sparklog.security.sasl.credentials import (
    PASSWORD_BYTES_MAX,
    CredentialStore,
    ScramMechanism,
)
from sparklog.security.sasl.mechanism import Authenticated, Check, SaslFailure, Step


class PlainServer:
    """The server side of one exchange, which is a single message."""

    def __init__(self, credentials: CredentialStore, static_users: Mapping[str, str]) -> None:
        """Authenticate by `credentials`, and by the passwords of `static_users`."""
        self._credentials = credentials
        self._static_users = static_users

    def evaluate(self, token: bytes, now_ms: int) -> Step | Check:
        """Return a check of the password, or the last step for a static user.

        Raises:
            SaslFailure: the message is malformed.
        """
        user, password = _user_and_password(token)
        static = self._static_users.get(user)
        if static is not None:
            if not hmac.compare_digest(static.encode(), password.encode()):
                raise _wrong_password(user)
            return Step(b"", Authenticated(user))
        return Check(lambda: self._verified(user, password))

    def _verified(self, user: str, password: str) -> Step:
        found = [
            (mechanism, credential)
            for mechanism in ScramMechanism
            if (credential := self._credentials.find(mechanism, user)) is not None
        ]
        if not found:
            # The same work as for a known user, so that the time does not show the difference.
            mechanism = ScramMechanism.SHA_256
            self._credentials.decoy(mechanism, user).proves(mechanism, password)
            raise SaslFailure(f"unknown user. user={user!r} mechanism=PLAIN")
        mechanism, credential = found[0]
        if not credential.proves(mechanism, password):
            raise _wrong_password(user)
        return Step(b"", Authenticated(user))


def plain_token(user: str, password: str) -> bytes:
    """Return the client's only message."""
    return f"\0{user}\0{password}".encode()


def _user_and_password(token: bytes) -> tuple[str, str]:
    try:
        parts = token.decode().split("\0")
    except UnicodeDecodeError as error:
        raise SaslFailure("the PLAIN message is no UTF-8.") from error
    if len(parts) != 3:
        raise SaslFailure(f"the PLAIN message has {len(parts)} parts instead of 3.")
    authzid, user, password = parts
    if not user or not password:
        raise SaslFailure("the PLAIN message has no user name or no password.")
    if len(password.encode()) > PASSWORD_BYTES_MAX:
        raise SaslFailure(f"the PLAIN message has a very long password. user={user!r}")
    if authzid not in ("", user):
        raise SaslFailure(
            f"the authorization id differs from the user. user={user!r} authzid={authzid!r}"
        )
    return user, password


def _wrong_password(user: str) -> SaslFailure:
    return SaslFailure(f"wrong password. user={user!r} mechanism=PLAIN")
