"""GSSAPI without Kerberos: the exchange around a context, its bounds, and the errors for the log.

The contexts of this file share a key instead of a ticket. `tests/soak/test_kerberos.py` has a KDC.
"""

from __future__ import annotations

import hmac
import sys
from dataclasses import dataclass

import pytest

from sparklog.core.errors import InvalidConfig
from sparklog.security.kerberos_name import LocalNames
from sparklog.security.sasl.authenticator import SaslAuthenticator, SaslState, TokenReply
from sparklog.security.sasl.gssapi import (
    CHOICE_BYTES_MAX,
    GSSAPI,
    STEPS_MAX,
    TOKEN_BYTES_MAX,
    GssapiServer,
    gssapi_exchange,
)
from sparklog.security.sasl.kerberos import KerberosContext, cause_of, load_library
from sparklog.security.sasl.mechanism import Check, SaslFailure

REALM = "EXAMPLE.COM"
NOW_MS = 1_800_000_000_000
NAMES = LocalNames(["DEFAULT"], REALM)


@dataclass
class SharedKeyContext(KerberosContext):
    """A context of one or two messages, whose ends know one key."""

    accepts: bool
    key: bytes = b"of both"
    mutual: bool = True
    client: str = f"alice@{REALM}"
    service: str = f"kafka/broker1@{REALM}"
    left_s: int | None = 3600
    complete: bool = False

    def step(self, token: bytes) -> bytes:
        if self.accepts:
            if token != self._proof(b"client"):
                raise SaslFailure("the ticket was not accepted: a wrong key")
            self.complete = True
            return self._proof(b"broker") if self.mutual else b""
        if not token:
            self.complete = not self.mutual
            return self._proof(b"client")
        if token != self._proof(b"broker"):
            raise SaslFailure("the ticket was not accepted: a wrong key")
        self.complete = True
        return b""

    def wrap(self, message: bytes) -> bytes:
        return self._proof(message) + message

    def unwrap(self, token: bytes) -> bytes:
        if token[:32] != self._proof(token[32:]):
            raise SaslFailure("a message is not the peer's")
        return token[32:]

    def peers(self) -> tuple[str, str]:
        return self.client, self.service

    def lifetime_s(self) -> int | None:
        return self.left_s

    def _proof(self, message: bytes) -> bytes:
        return hmac.digest(self.key, message, "sha256")


def authenticator(context: SharedKeyContext) -> SaslAuthenticator:
    made = SaslAuthenticator({GSSAPI: lambda: GssapiServer(context, NAMES, "kafka")})
    assert made.handshake(GSSAPI, 1, NOW_MS).error is None
    return made


def answered(server: SaslAuthenticator, token: bytes) -> TokenReply:
    reply = server.authenticate(token, NOW_MS)
    if not isinstance(reply, Check):
        return reply
    try:
        return server.checked(reply.run(), NOW_MS)
    except SaslFailure as failure:
        return server.checked(failure, NOW_MS)


def log_in(server: SaslAuthenticator, client: SharedKeyContext) -> TokenReply:
    exchange = gssapi_exchange(client)
    token = next(exchange)
    while True:
        reply = answered(server, token)
        if reply.error is not None:
            return reply
        try:
            token = exchange.send(reply.token)
        except StopIteration:
            return reply


@pytest.mark.parametrize("mutual", [True, False])
@pytest.mark.parametrize("left_s", [90, None])
def test_a_ticket_logs_in_until_it_expires(mutual: bool, left_s: int | None) -> None:
    server = authenticator(SharedKeyContext(accepts=True, mutual=mutual, left_s=left_s))
    reply = log_in(server, SharedKeyContext(accepts=False, mutual=mutual))
    assert (reply.complete, server.name) == (True, "alice")
    assert reply.session_lifetime_ms == (0 if left_s is None else 90_000)


@pytest.mark.parametrize(
    ("broker", "why"),
    [
        (SharedKeyContext(accepts=True, key=b"other"), "the ticket was not accepted"),
        (SharedKeyContext(accepts=True, client="alice@OTHER"), "is this the right realm"),
        (SharedKeyContext(accepts=True, client="a/b/c@OTHER"), "not of the form"),
        (
            SharedKeyContext(accepts=True, service=f"http/broker1@{REALM}"),
            "for another service than sasl.kerberos.service.name",
        ),
    ],
)
def test_a_wrong_ticket_fails_with_its_cause_in_the_log(broker: SharedKeyContext, why: str) -> None:
    server = authenticator(broker)
    reply = log_in(server, SharedKeyContext(accepts=False))
    assert why in reply.reason
    assert server.state is SaslState.FAILED
    assert str(reply.error) == (
        "Authentication failed during authentication due to invalid credentials "
        "with SASL mechanism GSSAPI"
    )


def established(mutual: bool = False) -> tuple[SaslAuthenticator, SharedKeyContext]:
    """Return a server that expects the client's choice, or without `mutual` an empty token."""
    server = authenticator(SharedKeyContext(accepts=True, mutual=mutual))
    client = SharedKeyContext(accepts=False, mutual=mutual)
    reply = answered(server, client.step(b""))
    if mutual:
        client.step(reply.token)
    else:
        assert client.unwrap(reply.token) == bytes([1, 0, 0, 0])
    return server, client


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        (bytes([2, 0, 1, 0]), "asks for a GSSAPI security layer"),
        (bytes([4, 0, 1, 0]) + b"alice", "asks for a GSSAPI security layer"),
        (bytes([3, 0, 0, 0]), "asks for a GSSAPI security layer"),
        (b"\x01\0\0", "asks for a GSSAPI security layer"),
        (b"", "asks for a GSSAPI security layer"),
    ],
)
def test_a_client_cannot_choose_a_layer(choice: bytes, why: str) -> None:
    server, client = established()
    assert why in answered(server, client.wrap(choice)).reason


@pytest.mark.parametrize("authzid", [b"", b"alice", b"kafka@broker1", b"admin", b"\xff"])
def test_an_authorization_id_grants_nothing(authzid: bytes) -> None:
    server, client = established()
    reply = answered(server, client.wrap(bytes([1, 255, 255, 255]) + authzid))
    assert (reply.complete, server.name) == (True, "alice")


def test_a_choice_without_proof_is_rejected() -> None:
    server, client = established()
    forged = SharedKeyContext(accepts=False, key=b"other").wrap(bytes([1, 0, 0, 0]))
    assert "not the peer's" in answered(server, forged).reason
    assert client.complete


def test_only_an_empty_token_follows_the_context() -> None:
    server, client = established(mutual=True)
    assert "after the last one" in answered(server, client.wrap(bytes([1, 0, 0, 0]))).reason


def test_sizes_of_tokens_are_bounded() -> None:
    server = authenticator(SharedKeyContext(accepts=True))
    assert "too large" in answered(server, bytes(TOKEN_BYTES_MAX + 1)).reason
    server, _ = established()
    assert "too large" in answered(server, bytes(CHOICE_BYTES_MAX + 1)).reason


def test_an_exchange_that_does_not_end_is_cut_off() -> None:
    class Endless(SharedKeyContext):
        def step(self, token: bytes) -> bytes:
            return b"more"

    server = authenticator(Endless(accepts=True))
    for _ in range(STEPS_MAX):
        assert answered(server, b"x").token == b"more"
    assert "no more steps" in answered(server, b"x").reason


@pytest.mark.parametrize("offer", [bytes([2, 0, 0, 0]), b"\x01", b""])
def test_a_client_accepts_no_demand_for_a_layer(offer: bytes) -> None:
    exchange = gssapi_exchange(SharedKeyContext(accepts=False, mutual=False))
    next(exchange)
    with pytest.raises(SaslFailure, match="demands a GSSAPI security layer"):
        exchange.send(SharedKeyContext(accepts=True).wrap(offer))


@pytest.mark.parametrize(
    ("code", "text", "cause"),
    [
        (2529638944, "Ticket expired", "the ticket has expired; the client must get a new one"),
        (-1765328352, "Ticket expired", "the ticket has expired; the client must get a new one"),
        (2529638949, "Clock skew too great", "the clocks differ by more than the clock skew"),
        (2529638947, "Request ticket server", "the keytab has no key of the ticket's service"),
        (2529638956, "Cannot find key", "the keytab has no key of the ticket's version"),
        (100001, "Some\n text ", "Some text"),
        (100001, "", "Kerberos error 100001"),
    ],
)
def test_an_error_of_the_library_has_its_cause(code: int, text: str, cause: str) -> None:
    found = cause_of(code, text)
    assert found.startswith(cause)
    assert "\n" not in found
    assert " ".join(text.split()) in found


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(InvalidConfig, match=r"needs the extra sparklog\[gssapi\]"):
        load_library()
