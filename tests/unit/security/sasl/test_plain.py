"""PLAIN: the one user store, static users, and hostile messages."""

from __future__ import annotations

import pytest

from sparklog.core.entropy import SeededEntropy
from sparklog.security.sasl.credentials import CredentialStore, ScramMechanism, new_credential
from sparklog.security.sasl.mechanism import Check, SaslFailure, Step
from sparklog.security.sasl.plain import PlainServer, plain_token

SECRET = b"of the process"
STORE = CredentialStore(
    {"alice": {m: new_credential(m, "secret", SeededEntropy(m)) for m in [ScramMechanism.SHA_512]}},
    b"secret of the cluster",
)


def outcome(token: bytes) -> str:
    """Return the user's name, or the reason of the failure."""
    try:
        step = PlainServer(STORE, {"static": "pass"}, SECRET).evaluate(token, 0)
        if isinstance(step, Check):
            step = step.run()
    except SaslFailure as failure:
        return str(failure)
    assert isinstance(step, Step)
    assert step.authenticated is not None
    return step.authenticated.name


def test_a_user_of_the_store_logs_in_with_the_scram_password() -> None:
    assert outcome(plain_token("alice", "secret")) == "alice"
    assert outcome(b"alice\0alice\0secret") == "alice"


def test_a_static_user_logs_in_with_its_password_only() -> None:
    assert outcome(plain_token("static", "pass")) == "static"
    assert outcome(plain_token("static", "secret")).startswith("wrong password")


def test_a_derivation_never_runs_on_the_caller() -> None:
    server = PlainServer(STORE, {}, SECRET)
    assert isinstance(server.evaluate(plain_token("alice", "x"), 0), Check)
    assert isinstance(server.evaluate(plain_token("mallory", "x"), 0), Check)


def key(server: PlainServer, user: str, password: str) -> bytes:
    check = server.evaluate(plain_token(user, password), 0)
    assert isinstance(check, Check)
    return check.key


def test_the_key_of_a_check_has_user_password_credential_and_process() -> None:
    first, user = PlainServer(STORE, {}, SECRET), ("alice", "secret")
    changed = {m: new_credential(m, "secret", SeededEntropy(9)) for m in ScramMechanism}
    others = {
        key(first, "alice", "x"),
        key(first, "bob", "secret"),
        key(PlainServer(STORE, {}, b"of another process"), *user),
        key(PlainServer(CredentialStore({"alice": changed}, b"x"), {}, SECRET), *user),
        key(PlainServer(CredentialStore({}, b"x"), {}, SECRET), *user),
    }
    assert key(first, *user) == key(PlainServer(STORE, {}, SECRET), *user)
    assert len({*others, key(first, *user)}) == 6


def test_a_wrong_login_costs_the_same_for_any_name() -> None:
    server = PlainServer(STORE, {"static": "pass"}, SECRET)
    for user in ("alice", "static", "mallory"):
        assert isinstance(server.evaluate(plain_token(user, "x"), 0), Check)
    mechanism, credential, known = STORE.find_any("alice")
    assert known
    for user in ("static", "mallory"):
        decoy_mechanism, decoy, known = STORE.find_any(user)
        assert (decoy_mechanism, decoy.iterations) == (mechanism, credential.iterations)
        assert not known


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (plain_token("alice", "Secret"), "wrong password"),
        (plain_token("mallory", "secret"), "unknown user"),
        (b"bob\0alice\0secret", "authorization id"),
        (b"\0\0secret", "no user name"),
        (b"\0alice\0", "no user name or no password"),
        (b"alice", "1 parts"),
        (b"\0a\0b\0c", "4 parts"),
        (b"\xff\0a\0b", "UTF-8"),
        (plain_token("alice", "x" * 5000), "very long"),
    ],
)
def test_a_wrong_message_fails(token: bytes, reason: str) -> None:
    assert reason in outcome(token)
