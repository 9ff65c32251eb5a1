"""SCRAM-SHA-256 and SCRAM-SHA-512, server and client side. Source: RFC 5802, KIP-84.

No channel binding, as in Kafka. An unknown user gets a reply like a known one and fails at the
proof; see `CredentialStore`. So does an unknown delegation token. A client that sends the extension
`tokenauth=true` has the id of a token as its user name, and logs in as the token's owner (KIP-48).
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sparklog.core.entropy import Entropy
from sparklog.security.sasl.credentials import (
    ITERATIONS_MIN,
    CredentialStore,
    ScramCredential,
    ScramMechanism,
    credential_of,
)
from sparklog.security.sasl.delegation_tokens import DelegationToken, Tokens, TokenSecrets
from sparklog.security.sasl.mechanism import Authenticated, Check, SaslFailure, Step

_NONCE_BYTES: Final = 24
CLIENT_ITERATIONS_MAX: Final = 1_000_000
"""A client refuses more: a server could keep it busy otherwise."""


@dataclass(frozen=True, slots=True)
class TokenStore:
    """The delegation tokens of a cluster, and what brokers derive for them."""

    tokens: Tokens
    secrets: TokenSecrets


class ScramServer:
    """The server side of one exchange."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        credentials: CredentialStore,
        nonce: str,
        tokens: TokenStore | None = None,
    ) -> None:
        """Authenticate by users, and by tokens.

        Args:
            mechanism: the mechanism.
            credentials: the users.
            nonce: from `new_scram_nonce`.
            tokens: the delegation tokens; None rejects logins by a token.
        """
        self._mechanism = mechanism
        self._credentials = credentials
        self._server_nonce = nonce
        self._tokens = tokens
        self._token: DelegationToken | None = None
        self._first: _ClientFirst | None = None
        self._server_first = ""
        self._credential: ScramCredential | None = None
        self._known = False
        self._done = False

    def evaluate(self, token: bytes, now_ms: int) -> Step | Check:
        """Return the server-first or the server-final message.

        For a delegation token, the server-first message is the result of a check.

        Raises:
            SaslFailure: a malformed message, an unknown user or a wrong proof.
        """
        if self._done:
            raise SaslFailure("the SCRAM exchange is complete; the client sent another message.")
        if self._first is None:
            return self._begin(_text(token), now_ms)
        self._done = True
        return self._finish(self._first, _text(token))

    def _begin(self, text: str, now_ms: int) -> Step | Check:
        first = self._first = _client_first(text)
        if first.authzid not in ("", first.user):
            raise SaslFailure(
                "the authorization id differs from the user. "
                f"user={first.user!r} authzid={first.authzid!r}"
            )
        if first.token_auth:
            derive = self._token_credential(first.user, now_ms)
            return Check(lambda: self._challenged(first, derive()))
        found = self._credentials.find(self._mechanism, first.user)
        decoy = self._credentials.decoy(self._mechanism, first.user)
        self._known = found is not None
        return self._challenged(first, decoy if found is None else found)

    def _token_credential(self, token_id: str, now_ms: int) -> Callable[[], ScramCredential]:
        """Find a token; return what derives its credential."""
        if self._tokens is None:
            raise SaslFailure(
                "the brokers have no delegation tokens: set delegation.token.secret.key. "
                f"token={token_id!r}"
            )
        token = self._tokens.tokens.get(token_id)
        self._known = token is not None and not token.expired(now_ms)
        secrets, mechanism = self._tokens.secrets, self._mechanism
        if token is None or not self._known:
            return lambda: secrets.derived_credential(mechanism, token_id)
        self._token = token
        return lambda: secrets.credential(mechanism, token_id)

    def _challenged(self, first: _ClientFirst, credential: ScramCredential) -> Step:
        self._credential = credential
        salt = base64.b64encode(credential.salt).decode()
        nonce = first.nonce + self._server_nonce
        self._server_first = f"r={nonce},s={salt},i={credential.iterations}"
        return Step(self._server_first.encode())

    def _finish(self, first: _ClientFirst, text: str) -> Step:
        assert self._credential is not None
        without_proof, _, proof_text = text.rpartition(",p=")
        fields = without_proof.split(",")
        binding = base64.b64encode(first.gs2_header.encode()).decode()
        if fields[0] != f"c={binding}":
            raise SaslFailure(f"the channel binding is not the one announced. user={first.user!r}")
        if len(fields) < 2 or fields[1] != f"r={first.nonce}{self._server_nonce}":
            raise SaslFailure(f"the nonce differs from the server's. user={first.user!r}")
        proof = _decoded(proof_text, "proof")
        mechanism, credential = self._mechanism, self._credential
        message = f"{first.bare},{self._server_first},{without_proof}".encode()
        signature = mechanism.hmac(credential.stored_key, message)
        if len(proof) != len(signature):
            raise SaslFailure(f"the proof has a wrong length. user={first.user!r}")
        key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        proved = hmac.compare_digest(mechanism.hash(key), credential.stored_key)
        if not (proved and self._known):
            raise SaslFailure(
                f"{self._reason(first)}. user={first.user!r} mechanism={mechanism.sasl_name}"
            )
        verifier = base64.b64encode(mechanism.hmac(credential.server_key, message)).decode()
        return Step(f"v={verifier}".encode(), self._authenticated(first))

    def _reason(self, first: _ClientFirst) -> str:
        if first.token_auth:
            return "wrong HMAC of a token" if self._known else "unknown or expired token"
        return "wrong password" if self._known else "unknown user"

    def _authenticated(self, first: _ClientFirst) -> Authenticated:
        token = self._token
        if token is None:
            return Authenticated(first.user)
        return Authenticated(token.owner.name, min(token.expiry_ms, token.max_ms), by_token=True)


class ScramClient:
    """The client side of one exchange: `first`, `final`, then `verify`."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        password: str,
        nonce: str,
        *,
        by_token: bool = False,
    ) -> None:
        """Log in as `user`; `nonce` is from `new_scram_nonce`.

        With `by_token`, the user is the id of a delegation token and the password is its HMAC.
        """
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={self._nonce}{',tokenauth=true' if by_token else ''}"
        self._verifier = b""

    def first(self) -> bytes:
        """Return the client-first message."""
        return f"n,,{self._bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """Return the client-final message. Cost: one derivation from the password.

        Raises:
            SaslFailure: the server's message is malformed, or asks for an unsafe derivation.
        """
        text = _text(server_first)
        fields = _fields(text)
        nonce, iterations_text = fields.get("r", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise SaslFailure("the server's nonce does not extend the client's.")
        salt = _decoded(fields.get("s", ""), "salt")
        if not (iterations_text.isascii() and iterations_text.isdigit() and salt):
            raise SaslFailure("the server's first SCRAM message has no salt or no iterations.")
        iterations = int(iterations_text[:10])
        if not ITERATIONS_MIN <= iterations <= CLIENT_ITERATIONS_MAX:
            raise SaslFailure(
                f"the server asks for an unsafe number of iterations. iterations={iterations}"
            )
        mechanism = self._mechanism
        salted = mechanism.salted_password(self._password, salt, iterations)
        credential = credential_of(mechanism, salt, salted, iterations)
        without_proof = f"c=biws,r={nonce}"
        message = f"{self._bare},{text},{without_proof}".encode()
        signature = mechanism.hmac(credential.stored_key, message)
        client_key = mechanism.hmac(salted, b"Client Key")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._verifier = mechanism.hmac(credential.server_key, message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Check that the server knows the user's credential.

        Raises:
            SaslFailure: it does not, or it rejected the proof.
        """
        fields = _fields(_text(server_final))
        if "e" in fields:
            raise SaslFailure(f"the server rejected the login. error={fields['e'][:100]!r}")
        verifier = _decoded(fields.get("v", ""), "verifier")
        if not self._verifier or not hmac.compare_digest(verifier, self._verifier):
            raise SaslFailure("the server did not prove that it knows the user's credential.")


@dataclass(frozen=True, slots=True)
class _ClientFirst:
    """The fields of a client-first message."""

    gs2_header: str
    bare: str
    user: str
    authzid: str
    nonce: str
    token_auth: bool


def _client_first(text: str) -> _ClientFirst:
    binding, comma, rest = text.partition(",")
    authzid_field, second_comma, bare = rest.partition(",")
    if binding.startswith("p="):
        raise SaslFailure("the client asks for channel binding, which is not supported.")
    if binding not in ("n", "y") or not comma or not second_comma:
        raise SaslFailure("the first SCRAM message is malformed.")
    if authzid_field and not authzid_field.startswith("a="):
        raise SaslFailure("the first SCRAM message has a malformed authorization id.")
    name_field, _, after_name = bare.partition(",")
    nonce_field, _, extensions = after_name.partition(",")
    if not name_field.startswith("n=") or not nonce_field.startswith("r="):
        raise SaslFailure("the first SCRAM message has no user name or no nonce.")
    nonce = nonce_field[2:]
    if not nonce or not nonce.isascii() or not nonce.isprintable():
        raise SaslFailure("the nonce of the first SCRAM message is malformed.")
    token_auth = _fields(extensions).get("tokenauth", "").lower() == "true"
    header = f"{binding},{authzid_field},"
    user, authzid = _name(name_field[2:]), _name(authzid_field[2:])
    if not user:
        raise SaslFailure("the first SCRAM message has no user name.")
    return _ClientFirst(header, bare, user, authzid, nonce, token_auth)


def _name(text: str) -> str:
    """Return a user name: `=2C` stands for a comma and `=3D` for an equals sign."""
    if text.count("=") != text.count("=2C") + text.count("=3D") or "\0" in text:
        raise SaslFailure("a user name has a malformed escape; write =2C and =3D.")
    return text.replace("=2C", ",").replace("=3D", "=")


def _fields(text: str) -> dict[str, str]:
    return dict(field.split("=", 1) for field in text.split(",") if "=" in field)


def _text(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError as error:
        raise SaslFailure("a SCRAM message is no UTF-8.") from error


def _decoded(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SaslFailure(f"a SCRAM message has a {name} that is no base64.") from error


def new_scram_nonce(entropy: Entropy) -> str:
    """Return a nonce of 192 random bits for one exchange."""
    return base64.b64encode(entropy.random_bytes(_NONCE_BYTES)).decode()
