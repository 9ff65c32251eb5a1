"""PLAIN: the one user store, static users, and hostile messages."""

from __future__ import annotations

import pytest

from sparklog.core.entropy import SeededEntropy
from sparklog.security.sasl.credentials import CredentialStore, ScramMechanism, new_credential
from sparklog.security.sasl.mechanism import Check, SaslFailure, Step
from sparklog.security.sasl.plain import PlainServer, plain_token

STORE = CredentialStore(
    {"alice": {m: new_credential(m, "secret", SeededEntropy(m)) for m in [ScramMechanism.SHA_512]}},
    b"secret of the cluster",
)


def outcome(token: bytes) -> str:
    """Return the user's name, or the reason of the failure."""
    try:
        step = PlainServer(STORE, {"static": "pass"}).evaluate(token, 0)
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
    server = PlainServer(STORE, {})
    assert isinstance(server.evaluate(plain_token("alice", "x"), 0), Check)
    assert isinstance(server.evaluate(plain_token("mallory", "x"), 0), Check)


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
