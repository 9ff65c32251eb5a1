"""OAUTHBEARER: a signed JWT as the credential. Source: RFC 7628, RFC 7519, KIP-255, KIP-768.

Only asymmetric signatures are accepted. The principal is the token's subject, and the session ends
when the token expires.
"""

from __future__ import annotations

import base64
import binascii
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from joserfc import jws
from joserfc.errors import JoseError, SecurityWarning

from sparklog.core.bounded_json import parse_json
from sparklog.security.sasl.jwks import JwksCache
from sparklog.security.sasl.mechanism import Authenticated, SaslFailure, Step

TOKEN_BYTES_MAX: Final = 64 * 1024
ALGORITHMS: Final = frozenset(
    {
        "RS256",
        "RS384",
        "RS512",
        "PS256",
        "PS384",
        "PS512",
        "ES256",
        "ES384",
        "ES512",
        "EdDSA",
        "Ed25519",
        "Ed448",
    }
)
INVALID_TOKEN: Final = b'{"status":"invalid_token"}'
"""The challenge that reports a failure; the client acknowledges it with `CONTROL_A`."""
CONTROL_A: Final = b"\x01"
_CLIENT_FIRST: Final = re.compile(r"n,(?:a=([^,]*))?,\x01((?:[A-Za-z]+=[^\x01]*\x01)+)\x01", re.S)
_REGISTRY: Final = jws.JWSRegistry(algorithms=sorted(ALGORITHMS), strict_check_header=False)


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The claims that a token must have."""

    audiences: frozenset[str] = frozenset()
    """One of them must be in `aud`; empty accepts every token."""
    issuer: str = ""
    """The exact `iss`; empty accepts every token."""
    clock_skew_ms: int = 30_000
    subject_claim: str = "sub"
    scope_claim: str = "scope"


class OauthBearerServer:
    """The server side of one exchange."""

    def __init__(self, keys: JwksCache, rules: TokenRules) -> None:
        """Accept tokens that are signed by one of `keys` and follow `rules`."""
        self._keys = keys
        self._rules = rules
        self._failure: SaslFailure | None = None

    def evaluate(self, token: bytes, now_ms: int) -> Step:
        """Return the last step, or the challenge that reports a failure.

        Raises:
            SaslFailure: a malformed message, or the client's reply to that challenge.
        """
        if self._failure is not None:
            raise self._failure
        authzid, jwt = _client_first(token)
        try:
            authenticated = validate_token(jwt, self._keys, self._rules, now_ms)
            if authzid not in ("", authenticated.name):
                raise _invalid(
                    "the authorization id differs from the token's subject. "
                    f"authzid={authzid!r} subject={authenticated.name!r}"
                )
        except SaslFailure as failure:
            self._failure = failure
            return Step(INVALID_TOKEN)
        return Step(b"", authenticated)


def oauthbearer_token(jwt: str) -> bytes:
    """Return the client's first message."""
    return f"n,,\x01auth=Bearer {jwt}\x01\x01".encode()


def validate_token(jwt: str, keys: JwksCache, rules: TokenRules, now_ms: int) -> Authenticated:
    """Return the subject of a valid token, and when the token expires.

    Raises:
        SaslFailure: the token is malformed, expired, not signed by a known key, or for others.
    """
    return validated_claims(jwt, keys, rules, now_ms)[0]


def validated_claims(
    jwt: str, keys: JwksCache, rules: TokenRules, now_ms: int
) -> tuple[Authenticated, Mapping[str, Any]]:
    """Return the subject of a valid token with its expiry, and all its claims.

    Raises as `validate_token`.
    """
    header, claims = _parts(jwt)
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise _invalid(f"the token's algorithm is not accepted. alg={str(algorithm)[:40]!r}")
    if "crit" in header:
        raise _invalid("the token has a critical header, which is not supported.")
    key_id = header.get("kid")
    if key_id is not None and not (isinstance(key_id, str) and len(key_id) <= 1000):
        raise _invalid("the token's key id is malformed.")
    key = keys.find(key_id, now_ms)
    if key is None:
        raise _invalid(f"no key of the JWKS has the token's key id. kid={str(key_id)[:100]!r}")
    try:
        with warnings.catch_warnings():
            # RFC 9864 renames EdDSA; providers still sign with the old name.
            warnings.simplefilter("ignore", SecurityWarning)
            jws.deserialize_compact(jwt, key, algorithms=[algorithm], registry=_REGISTRY)
    except (JoseError, ValueError, TypeError, AttributeError) as error:
        raise _invalid("the token's signature is wrong.") from error
    return _checked_claims(claims, rules, now_ms), claims


def _checked_claims(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> Authenticated:
    expires_ms = _time_ms(claims, "exp")
    if expires_ms is None:
        raise _invalid("the token has no expiry time (exp).")
    if now_ms >= expires_ms + rules.clock_skew_ms:
        raise _invalid(f"the token has expired; get a new one. exp_ms={expires_ms}")
    for claim in ("nbf", "iat"):
        begins_ms = _time_ms(claims, claim)
        if begins_ms is not None and begins_ms > now_ms + rules.clock_skew_ms:
            raise _invalid(f"the token is not valid yet. {claim}_ms={begins_ms}")
    if rules.issuer and claims.get("iss") != rules.issuer:
        raise _invalid(
            "the token has another issuer than sasl.oauthbearer.expected.issuer. "
            f"iss={str(claims.get('iss'))[:200]!r}"
        )
    audience = claims.get("aud")
    audiences = audience if isinstance(audience, list) else [audience]
    if rules.audiences and not any(isinstance(a, str) and a in rules.audiences for a in audiences):
        raise _invalid(
            "the token is for another audience than sasl.oauthbearer.expected.audience. "
            f"aud={str(audience)[:200]!r}"
        )
    scope = claims.get(rules.scope_claim, "")
    if not isinstance(scope, str | list):
        raise _invalid(f"the token's scope is malformed. claim={rules.scope_claim}")
    subject = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not subject.strip() or len(subject) > 1000:
        raise _invalid(f"the token has no subject. claim={rules.subject_claim}")
    return Authenticated(subject, expires_ms)


def _parts(jwt: str) -> tuple[dict[str, Any], dict[str, Any]]:
    if len(jwt) > TOKEN_BYTES_MAX:
        raise _invalid(f"the token is too large. bytes={len(jwt)} most={TOKEN_BYTES_MAX}")
    parts = jwt.split(".")
    if len(parts) != 3 or not jwt.isascii():
        raise _invalid("the token is no signed JWT.")
    header, claims = (_json_part(part) for part in parts[:2])
    return header, claims


def _json_part(part: str) -> dict[str, Any]:
    try:
        data = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
        document = parse_json(data, "JWT", bytes_max=TOKEN_BYTES_MAX)
    except (binascii.Error, ValueError) as error:
        raise _invalid("the token is no signed JWT.") from error
    if not isinstance(document, dict):
        raise _invalid("the token is no signed JWT.")
    return document


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise _invalid(f"a time of the token is malformed. claim={name}")
    return int(value * 1000)


def _client_first(token: bytes) -> tuple[str, str]:
    try:
        match = _CLIENT_FIRST.fullmatch(token.decode())
    except UnicodeDecodeError as error:
        raise SaslFailure("the OAUTHBEARER message is no UTF-8.") from error
    if match is None:
        raise SaslFailure("the OAUTHBEARER message is malformed.")
    pairs = dict(pair.split("=", 1) for pair in match.group(2).split("\x01") if pair)
    scheme, _, jwt = pairs.get("auth", "").partition(" ")
    if scheme.lower() != "bearer" or not jwt.strip():
        raise SaslFailure("the OAUTHBEARER message has no bearer token.")
    authzid = (match.group(1) or "").replace("=2C", ",").replace("=3D", "=")
    return authzid, jwt.strip()


def _invalid(reason: str) -> SaslFailure:
    """Return a failure whose reason the holder of the token may see."""
    return SaslFailure(reason, client_message=f"{INVALID_TOKEN.decode()} {reason}")
