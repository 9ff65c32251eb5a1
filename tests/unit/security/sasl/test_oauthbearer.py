"""OAUTHBEARER: claims, signatures, algorithms, and keys that change."""

from __future__ import annotations

import base64
import hmac
import json
import warnings
from typing import Any

import pytest
from joserfc import jwk, jws
from joserfc.errors import SecurityWarning

from sparklog.core.errors import InvalidConfig
from sparklog.security.sasl.jwks import EARLY_REFRESH_MS, JwksCache, parse_jwks
from sparklog.security.sasl.mechanism import SaslFailure
from sparklog.security.sasl.oauthbearer import (
    CONTROL_A,
    INVALID_TOKEN,
    OauthBearerServer,
    TokenRules,
    oauthbearer_token,
    validate_token,
)

NOW_MS = 1_700_000_000_000
RSA = jwk.RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig"})
EC = jwk.ECKey.generate_key("P-256", {"kid": "ec"})
ED = jwk.OKPKey.generate_key("Ed25519", {"kid": "ed"})
SMALL = {"kty": "RSA", "kid": "small", "e": "AQAB", "n": "w" * 171}
SHARED = jwk.OctKey.generate_key(256, {"kid": "shared"})
RULES = TokenRules(frozenset({"kafka", "other"}), "https://issuer")
GOOD: dict[str, Any] = {
    "sub": "alice",
    "iss": "https://issuer",
    "aud": "kafka",
    "exp": NOW_MS // 1000 + 60,
}


def jwks_of(*keys: Any) -> bytes:
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]}).encode()


def cache(*keys: Any) -> JwksCache:
    found = JwksCache()
    found.loaded(jwks_of(*(keys or (RSA, EC, ED))), NOW_MS)
    return found


def token(key: Any = RSA, alg: str = "RS256", **claims: Any) -> str:
    merged = {k: v for k, v in {**GOOD, **claims}.items() if v is not None}
    registry = jws.JWSRegistry(algorithms=[alg])
    header = {"alg": alg, "kid": key.kid}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SecurityWarning)
        return jws.serialize_compact(header, json.dumps(merged).encode(), key, registry=registry)


def unsigned(**header: Any) -> str:
    parts = (json.dumps(part).encode() for part in (header, GOOD))
    first, second = (base64.urlsafe_b64encode(p).decode().rstrip("=") for p in parts)
    return f"{first}.{second}."


@pytest.mark.parametrize(
    ("key", "alg"), [(RSA, "RS256"), (RSA, "PS512"), (EC, "ES256"), (ED, "EdDSA"), (ED, "Ed25519")]
)
def test_a_signed_token_gives_its_subject_and_expiry(key: Any, alg: str) -> None:
    found = validate_token(token(key, alg), cache(), RULES, NOW_MS)
    assert found.name == "alice"
    assert found.expires_ms == GOOD["exp"] * 1000


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": NOW_MS // 1000 - 31}, "expired"),
        ({"exp": None}, "no expiry"),
        ({"exp": "tomorrow"}, "malformed"),
        ({"nbf": NOW_MS // 1000 + 31}, "not valid yet"),
        ({"iat": NOW_MS // 1000 + 31}, "not valid yet"),
        ({"iss": "https://mallory"}, "issuer"),
        ({"iss": None}, "issuer"),
        ({"aud": "web"}, "audience"),
        ({"aud": ["web", 1]}, "audience"),
        ({"aud": None}, "audience"),
        ({"sub": " "}, "subject"),
        ({"sub": None}, "subject"),
        ({"sub": 5}, "subject"),
        ({"scope": 5}, "scope"),
    ],
)
def test_a_token_with_a_wrong_claim_is_refused(claims: dict[str, Any], reason: str) -> None:
    with pytest.raises(SaslFailure, match=reason) as caught:
        validate_token(token(**claims), cache(), RULES, NOW_MS)
    assert caught.value.client_message.startswith('{"status":"invalid_token"} ')


@pytest.mark.parametrize("claims", [{"exp": NOW_MS // 1000 - 29}, {"aud": ["web", "other"]}])
def test_token_within_clock_skew_or_for_many_audiences_is_accepted(
    claims: dict[str, Any],
) -> None:
    assert validate_token(token(**claims), cache(), RULES, NOW_MS).name == "alice"


@pytest.mark.parametrize(
    "jwt",
    [
        unsigned(alg="none"),
        unsigned(alg="none", kid="rsa"),
        unsigned(alg="RS256", kid="rsa"),
        unsigned(alg="RS256", kid="rsa", crit=["b64"], b64=False),
        unsigned(alg=["RS256"], kid="rsa"),
        unsigned(alg="HS256", kid="rsa"),
        unsigned(alg="RS256", kid=5),
        "a.b",
        "a.b.c",
        "x" * 70_000,
        token(RSA)[:-4] + "AAAA",
        token(EC, "ES256").replace(".", ".A", 1),
    ],
)
def test_a_forged_or_malformed_token_is_refused(jwt: str) -> None:
    with pytest.raises(SaslFailure):
        validate_token(jwt, cache(), RULES, NOW_MS)


def test_a_public_key_is_no_shared_secret() -> None:
    signed = unsigned(alg="HS256", kid="rsa")
    mac = hmac.digest(RSA.as_pem(private=False), signed[:-1].encode(), "sha256")
    forged = signed + base64.urlsafe_b64encode(mac).decode().rstrip("=")
    with pytest.raises(SaslFailure, match="algorithm"):
        validate_token(forged, cache(), RULES, NOW_MS)


def test_a_key_of_another_type_than_the_algorithm_is_refused() -> None:
    forged = jwk.RSAKey.import_key(RSA.as_dict(private=True), {"kid": "ec"})
    with pytest.raises(SaslFailure, match="signature"):
        validate_token(token(forged), cache(), RULES, NOW_MS)


def test_shared_and_small_keys_of_a_set_are_skipped() -> None:
    document = json.loads(jwks_of(RSA))
    document["keys"] += [
        SMALL,
        SHARED.as_dict(private=True),
        {"kty": "RSA"},
        "no key",
        {"kty": "PQ"},
    ]
    document["keys"] += [{**document["keys"][0], "kid": "enc", "use": "enc"}]
    assert list(parse_jwks(json.dumps(document).encode())) == ["rsa"]


@pytest.mark.parametrize("document", [b"", b"[]", b"{}", b'{"keys":[]}', b'{"keys":5}', b"\xff"])
def test_a_set_without_a_usable_key_is_refused(document: bytes) -> None:
    with pytest.raises(InvalidConfig, match="JWKS"):
        parse_jwks(document)


def test_unknown_key_id_causes_one_early_refresh() -> None:
    keys = cache(RSA)
    assert keys.due_ms == NOW_MS + 3_600_000
    for moment in (NOW_MS + 1, NOW_MS + 2):
        with pytest.raises(SaslFailure, match="key id"):
            validate_token(token(EC, "ES256"), keys, RULES, moment)
    assert keys.due_ms == NOW_MS + EARLY_REFRESH_MS
    keys.loaded(jwks_of(RSA, EC), NOW_MS + EARLY_REFRESH_MS)
    assert validate_token(token(EC, "ES256"), keys, RULES, NOW_MS + EARLY_REFRESH_MS)


def test_a_failed_load_keeps_the_keys_and_backs_off() -> None:
    keys = cache(RSA)
    pauses = []
    for _ in range(9):
        keys.failed(NOW_MS)
        pauses.append(keys.due_ms - NOW_MS)
    assert pauses == [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
    assert validate_token(token(), keys, RULES, NOW_MS).name == "alice"
    keys.loaded(jwks_of(RSA), NOW_MS)
    keys.failed(NOW_MS)
    assert keys.due_ms - NOW_MS == 100


def test_the_settings_bound_the_pauses_after_failed_loads() -> None:
    keys = JwksCache(backoff_ms=50, backoff_max_ms=120)
    pauses = []
    for _ in range(3):
        keys.failed(NOW_MS)
        pauses.append(keys.due_ms - NOW_MS)
    assert pauses == [50, 100, 120]


def test_a_client_learns_of_a_failure_as_rfc_7628_describes() -> None:
    server = OauthBearerServer(cache(), RULES)
    expired = token(exp=NOW_MS // 1000 - 100)
    assert server.evaluate(oauthbearer_token(expired), NOW_MS).token == INVALID_TOKEN
    with pytest.raises(SaslFailure, match="expired"):
        server.evaluate(CONTROL_A, NOW_MS)


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (oauthbearer_token(token()), "alice"),
        (b"n,a=alice,\x01host=h\x01auth=bearer " + token().encode() + b"\x01\x01", "alice"),
    ],
)
def test_a_first_message_may_have_an_authorization_id_and_extensions(
    message: bytes, name: str
) -> None:
    found = OauthBearerServer(cache(), RULES).evaluate(message, NOW_MS).authenticated
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(
    "message",
    [b"", b"\xff", b"n,,\x01\x01", b"n,,\x01auth=Basic x\x01\x01", b"n,,\x01auth=Bearer \x01\x01"],
)
def test_a_malformed_first_message_fails(message: bytes) -> None:
    with pytest.raises(SaslFailure):
        OauthBearerServer(cache(), RULES).evaluate(message, NOW_MS)


def test_token_of_another_subject_is_rejected() -> None:
    message = b"n,a=bob,\x01auth=Bearer " + token().encode() + b"\x01\x01"
    server = OauthBearerServer(cache(), RULES)
    assert server.evaluate(message, NOW_MS).token == INVALID_TOKEN
