"""Delegation tokens: what derives from the brokers' key, and logins by SCRAM."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from sparklog.core.entropy import SYSTEM_ENTROPY
from sparklog.security.principal import USER, Principal
from sparklog.security.sasl.credentials import CredentialStore, ScramMechanism
from sparklog.security.sasl.delegation_tokens import (
    DelegationToken,
    IssuedToken,
    TokenSecrets,
    password_of,
)
from sparklog.security.sasl.mechanism import Authenticated, Check, SaslFailure, Step
from sparklog.security.sasl.scram import ScramClient, ScramServer, TokenStore, new_scram_nonce

ALICE, BOB = Principal(USER, "alice"), Principal(USER, "bob")
SECRETS = TokenSecrets("key")
TOKEN = DelegationToken("id-1", ALICE, BOB, (BOB,), 1000, 9000, 5000)
NOBODY = CredentialStore({}, b"cluster")


def first_step(server: ScramServer, message: bytes, now_ms: int) -> Step:
    found = server.evaluate(message, now_ms)
    assert isinstance(found, Check)
    return found.run()


def log_in(
    mechanism: ScramMechanism,
    token_id: str = TOKEN.token_id,
    password: str = password_of(SECRETS.hmac(TOKEN.token_id)),
    now_ms: int = 2000,
) -> Authenticated | None:
    """Run a whole exchange; return who logged in."""
    server = ScramServer(
        mechanism, NOBODY, new_scram_nonce(SYSTEM_ENTROPY), TokenStore({"id-1": TOKEN}, SECRETS)
    )
    nonce = new_scram_nonce(SYSTEM_ENTROPY)
    client = ScramClient(mechanism, token_id, password, nonce, by_token=True)
    first = first_step(server, client.first(), now_ms)
    last = server.evaluate(client.final(first.token), now_ms)
    assert isinstance(last, Step)
    client.verify(last.token)
    return last.authenticated


def test_the_secret_is_kafkas_hmac_of_the_id() -> None:
    assert SECRETS.hmac("id-1") == hmac.new(b"key", b"id-1", hashlib.sha512).digest()
    assert (
        IssuedToken(TOKEN, SECRETS.hmac("id-1")).password
        == base64.b64encode(SECRETS.hmac("id-1")).decode()
    )
    assert "hmac" not in repr(IssuedToken(TOKEN, b"secret"))


def test_a_token_is_found_by_its_secret_in_each_list_of_tokens() -> None:
    other = DelegationToken("id-2", BOB, BOB, (), 0, 1, 1)
    one, both = {"id-1": TOKEN}, {"id-1": TOKEN, "id-2": other}
    assert SECRETS.find(SECRETS.hmac("id-1"), one) == TOKEN
    assert SECRETS.find(SECRETS.hmac("id-2"), one) is None
    assert SECRETS.find(SECRETS.hmac("id-2"), both) == other
    assert SECRETS.find(SECRETS.hmac("id-1"), {"id-2": other}) is None
    assert SECRETS.find(b"", both) is None


def test_a_token_has_an_expiry_and_principals() -> None:
    assert not TOKEN.expired(5000)
    assert TOKEN.expired(5001)
    assert TOKEN.belongs_to(ALICE)
    assert TOKEN.belongs_to(BOB)
    assert not TOKEN.belongs_to(Principal("Group", "bob"))


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_the_holder_logs_in_as_the_owner_until_the_expiry(mechanism: ScramMechanism) -> None:
    expected = Authenticated("alice", 5000, by_token=True)
    assert log_in(mechanism) == expected
    assert log_in(mechanism, now_ms=5000) == expected  # by the kept credential


@pytest.mark.parametrize(
    ("token_id", "password", "now_ms", "reason"),
    [
        ("id-1", "wrong", 2000, "wrong HMAC of a token"),
        ("id-1", password_of(SECRETS.hmac("id-1")), 5001, "unknown or expired token"),
        ("id-9", password_of(SECRETS.hmac("id-9")), 2000, "unknown or expired token"),
        ("alice", "wrong", 2000, "unknown or expired token"),
    ],
)
def test_a_wrong_token_fails_at_the_proof(
    token_id: str, password: str, now_ms: int, reason: str
) -> None:
    with pytest.raises(SaslFailure, match=reason):
        log_in(ScramMechanism.SHA_256, token_id, password, now_ms)


def test_a_token_is_no_password_of_a_user_and_a_password_is_no_token() -> None:
    server = ScramServer(
        ScramMechanism.SHA_256, NOBODY, "nonce", TokenStore({"id-1": TOKEN}, SECRETS)
    )
    client = ScramClient(ScramMechanism.SHA_256, "id-1", "any", "own")
    step = server.evaluate(client.first(), 2000)
    assert isinstance(step, Step)
    with pytest.raises(SaslFailure, match="unknown user"):
        server.evaluate(client.final(step.token), 2000)


def test_without_a_key_a_login_by_token_names_the_setting() -> None:
    server = ScramServer(ScramMechanism.SHA_256, NOBODY, "nonce")
    client = ScramClient(ScramMechanism.SHA_256, "id-1", "any", "own", by_token=True)
    with pytest.raises(SaslFailure, match=r"delegation\.token\.secret\.key"):
        server.evaluate(client.first(), 0)


def test_each_key_derives_a_credential_of_its_own() -> None:
    for mechanism in ScramMechanism:
        found = SECRETS.credential(mechanism, "id-1")
        assert found == TokenSecrets("key").derived_credential(mechanism, "id-1")
        assert found.proves(mechanism, password_of(SECRETS.hmac("id-1")))
        assert found.salt != SECRETS.credential(mechanism, "id-2").salt
        assert found.salt != TokenSecrets("other").credential(mechanism, "id-1").salt
