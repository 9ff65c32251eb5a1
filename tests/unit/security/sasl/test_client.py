"""The client side of SASL against the server side."""

from __future__ import annotations

from functools import partial

import pytest

from sparklog.core.entropy import SeededEntropy
from sparklog.core.errors import InvalidConfig
from sparklog.security.sasl.authenticator import SaslAuthenticator, TokenReply
from sparklog.security.sasl.client import SaslLogin, sasl_exchange
from sparklog.security.sasl.credentials import (
    CredentialStore,
    ScramMechanism,
    new_credential,
)
from sparklog.security.sasl.mechanism import Check, SaslFailure, Step
from sparklog.security.sasl.plain import PlainServer
from sparklog.security.sasl.scram import ScramServer, new_scram_nonce

ENTROPY = SeededEntropy(1)
STORE = CredentialStore(
    {"alice": {m: new_credential(m, "secret", ENTROPY) for m in ScramMechanism}}, b"cluster"
)


def authenticator() -> SaslAuthenticator:
    """Return a server with every mechanism that needs no keys."""
    return SaslAuthenticator(
        {
            "PLAIN": lambda: PlainServer(STORE, {}, b"secret of the process"),
            **{
                m.sasl_name: partial(ScramServer, m, STORE, new_scram_nonce(ENTROPY))
                for m in ScramMechanism
            },
        }
    )


def log_in(server: SaslAuthenticator, login: SaslLogin) -> TokenReply:
    """Run an exchange to its end, and return the server's last reply."""
    exchange = sasl_exchange(login, ENTROPY)
    assert server.handshake(login.mechanism, 1, 0).error is None
    token = next(exchange)
    while True:
        reply = server.authenticate(token, 0)
        if isinstance(reply, Check):
            try:
                reply = server.checked(reply.run(), 0)
            except SaslFailure as failure:
                reply = server.checked(failure, 0)
        if reply.error is not None:
            return reply
        try:
            token = exchange.send(reply.token)
        except StopIteration:
            return reply


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_login_succeeds_with_the_right_password_only(mechanism: str) -> None:
    server = authenticator()
    assert log_in(server, SaslLogin(mechanism, "alice", "secret")).complete
    assert server.name == "alice"
    wrong = log_in(authenticator(), SaslLogin(mechanism, "alice", "other"))
    assert wrong.error is not None
    assert wrong.error.kafka_code == 58


def test_scram_server_without_the_credential_is_refused() -> None:
    exchange = sasl_exchange(SaslLogin("SCRAM-SHA-256", "alice", "secret"), ENTROPY)
    server = ScramServer(ScramMechanism.SHA_256, STORE, "nonce")
    step = server.evaluate(next(exchange), 0)
    assert isinstance(step, Step)
    exchange.send(step.token)
    with pytest.raises(SaslFailure, match="did not prove"):
        exchange.send(b"v=" + b"A" * 43 + b"=")


def test_challenge_after_plain_is_refused() -> None:
    exchange = sasl_exchange(SaslLogin("PLAIN", "alice", "secret"), ENTROPY)
    assert next(exchange) == b"\0alice\0secret"
    with pytest.raises(SaslFailure, match="unexpected challenge"):
        exchange.send(b"more")


def test_bearer_token_is_sent_and_a_rejection_acknowledged() -> None:
    accepted = sasl_exchange(SaslLogin("OAUTHBEARER", token="a.b.c"), ENTROPY)
    assert next(accepted) == b"n,,\x01auth=Bearer a.b.c\x01\x01"
    with pytest.raises(StopIteration):
        accepted.send(b"")
    rejected = sasl_exchange(SaslLogin("OAUTHBEARER", token="a.b.c"), ENTROPY)
    next(rejected)
    assert rejected.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(SaslFailure, match="rejected the bearer token"):
        rejected.send(b"")


def test_unknown_mechanism_is_refused_and_secrets_are_hidden() -> None:
    login = SaslLogin("GSSAPI", "alice", "marked-secret", "marked-token")
    assert "marked" not in repr(login)
    with pytest.raises(InvalidConfig, match="choose from PLAIN"):
        sasl_exchange(login, ENTROPY)
