"""PLAIN: user name and password in clear text. Source: RFC 4616, KIP-43.

The password is compared with the users' SCRAM credentials, so PLAIN and SCRAM have one user store.
Users of a `plain.sasl.jaas.config` are static users of one broker; they come first. The time of a
wrong login shows neither whether the user exists nor of which kind it is.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from sparklog.security.sasl.credentials import PASSWORD_BYTES_MAX, CredentialStore
from sparklog.security.sasl.mechanism import Authenticated, Check, SaslFailure, Step


class PlainServer:
    """The server side of one exchange, which is a single message."""

    def __init__(
        self, credentials: CredentialStore, static_users: Mapping[str, str], secret: bytes
    ) -> None:
        """Authenticate by `credentials`, and by the passwords of `static_users`.

        `secret` is of this process and at random. It keys the hashes by which the process
        recognizes a password that it has checked before.
        """
        self._credentials = credentials
        self._static_users = static_users
        self._secret = secret

    def evaluate(self, token: bytes, now_ms: int) -> Step | Check:
        """Return a check of the password, or the last step for a static user.

        Raises:
            SaslFailure: the message is malformed.
        """
        user, password = _user_and_password(token)
        static = self._static_users.get(user)
        if static is not None and hmac.compare_digest(static.encode(), password.encode()):
            return Step(b"", Authenticated(user))
        mechanism, credential, known = self._credentials.find_any(user)
        reason = "wrong password" if known or static is not None else "unknown user"

        def verified() -> Step:
            # Names that are no users, and static ones, cost the same work as users of the log.
            proved = credential.proves(mechanism, password)
            if not proved or not known or static is not None:
                raise SaslFailure(f"{reason}. user={user!r} mechanism=PLAIN")
            return Step(b"", Authenticated(user))

        # A new password of the user has another stored key, and so another key of the check.
        compared = bytes((mechanism,)) + credential.stored_key
        return Check(verified, hmac.digest(self._secret, compared + token, "sha256"))


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
