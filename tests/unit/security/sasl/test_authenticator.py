"""The state of an authentication: order, errors with Kafka's texts, sessions, and A1-A4."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.core.errors import IllegalSaslState
from sparklog.security.sasl.authenticator import (
    HandshakeReply,
    SaslAuthenticator,
    SaslState,
    TokenReply,
)
from sparklog.security.sasl.mechanism import Authenticated, Check, SaslFailure, SaslServer, Step

NOW_MS = 1_000_000


class NamingServer:
    """A mechanism in two steps: the first token is repeated, the second names the user."""

    def __init__(self, expires_ms: int | None = None) -> None:
        self._expires_ms = expires_ms
        self._steps = 0

    def evaluate(self, token: bytes, now_ms: int) -> Step | Check:
        self._steps += 1
        if self._steps == 1:
            return Step(token)
        if token == b"wrong":
            raise SaslFailure("wrong password. user='alice'")
        if token == b"slow":
            return Check(lambda: Step(b"", Authenticated("alice", self._expires_ms)))
        return Step(b"done", Authenticated(token.decode(), self._expires_ms))


def authenticator(max_reauth_ms: int = 0, expires_ms: int | None = None) -> SaslAuthenticator:
    maker: Callable[[], SaslServer] = lambda: NamingServer(expires_ms)  # noqa: E731
    return SaslAuthenticator({"A": maker, "B": maker}, max_reauth_ms)


def log_in(
    sasl: SaslAuthenticator, name: bytes = b"alice", mechanism: str = "A", now_ms: int = NOW_MS
) -> TokenReply:
    reply = sasl.handshake(mechanism, 1, now_ms)
    assert reply.error is None
    first = sasl.authenticate(b"x", now_ms)
    if isinstance(first, TokenReply) and first.error is None:
        return answered(sasl, name, now_ms)
    assert isinstance(first, TokenReply)
    return first


def answered(sasl: SaslAuthenticator, token: bytes, now_ms: int = NOW_MS) -> TokenReply:
    reply = sasl.authenticate(token, now_ms)
    assert isinstance(reply, TokenReply)
    return reply


def error_of(reply: TokenReply | HandshakeReply) -> tuple[int, str]:
    assert reply.error is not None
    return reply.error.kafka_code, str(reply.error)


def test_a_login_completes_with_the_name() -> None:
    sasl = authenticator()
    sasl.api_versions(supported=True)
    assert log_in(sasl) == TokenReply(b"done", 0, complete=True)
    assert sasl.complete
    assert sasl.name == "alice"
    assert not sasl.expired(NOW_MS * 1000)


def test_api_versions_may_come_once_and_first() -> None:
    sasl = authenticator()
    sasl.api_versions(supported=False)
    sasl.api_versions(supported=True)
    with pytest.raises(
        IllegalSaslState,
        match="Unexpected Kafka request of type API_VERSIONS during SASL handshake",
    ):
        sasl.api_versions(supported=True)
    assert sasl.state is SaslState.FAILED


def test_unknown_mechanism_gets_the_list_of_offered_ones() -> None:
    sasl = authenticator()
    reply = sasl.handshake("GSSAPI", 1, NOW_MS)
    assert error_of(reply)[0] == 33
    assert reply.mechanisms == ("A", "B")
    assert reply.close


def test_a_wrong_password_has_kafkas_text_and_does_not_show_the_user() -> None:
    reply = log_in(authenticator(), b"wrong")
    assert error_of(reply) == (
        58,
        (
            "Authentication failed during authentication due to invalid credentials"
            " with SASL mechanism A"
        ),
    )
    assert reply.reason == "wrong password. user='alice'"


def test_a_token_after_a_failure_or_without_a_handshake_is_illegal() -> None:
    sasl = authenticator()
    log_in(sasl, b"wrong")
    assert error_of(answered(sasl, b"alice"))[0] == 34
    assert error_of(answered(authenticator(), b"alice"))[0] == 34


def test_a_second_handshake_within_an_exchange_is_illegal() -> None:
    sasl = authenticator()
    sasl.handshake("A", 1, NOW_MS)
    reply = sasl.handshake("A", 1, NOW_MS)
    assert error_of(reply) == (
        34,
        "Unexpected Kafka request of type SASL_HANDSHAKE during SASL authentication.",
    )
    assert reply.close


def test_a_handshake_of_version_0_has_tokens_without_headers() -> None:
    sasl = authenticator()
    sasl.handshake("A", 0, NOW_MS)
    assert sasl.raw_tokens


def test_a_slow_check_is_left_to_the_caller() -> None:
    sasl = authenticator(60_000)
    sasl.handshake("A", 1, NOW_MS)
    sasl.authenticate(b"x", NOW_MS)
    check = sasl.authenticate(b"slow", NOW_MS)
    assert isinstance(check, Check)
    assert not sasl.complete
    assert sasl.checked(check.run(), NOW_MS + 5) == TokenReply(b"", 60_000, complete=True)


@pytest.mark.parametrize(
    ("max_reauth_ms", "expires_ms", "lifetime_ms"),
    [
        (0, None, 0),
        (5000, None, 5000),
        (0, NOW_MS + 700, 700),
        (5000, NOW_MS + 700, 700),
        (500, NOW_MS + 700, 500),
        (500, NOW_MS - 700, 1),
    ],
)
def test_a_session_ends_with_the_earlier_of_setting_and_credential(
    max_reauth_ms: int, expires_ms: int | None, lifetime_ms: int
) -> None:
    sasl = authenticator(max_reauth_ms, expires_ms)
    assert log_in(sasl).session_lifetime_ms == lifetime_ms
    if lifetime_ms:
        assert not sasl.expired(NOW_MS + lifetime_ms)
        assert sasl.expired(NOW_MS + lifetime_ms + 1)


def test_a_client_authenticates_again_and_again() -> None:
    sasl = authenticator(5000)
    log_in(sasl)
    for again in range(1, 4):
        now_ms = NOW_MS + again * 4000
        assert log_in(sasl, now_ms=now_ms).complete
        assert not sasl.expired(now_ms + 5000)


def test_other_requests_are_rejected_during_reauthentication() -> None:
    sasl = authenticator(5000)
    log_in(sasl)
    sasl.handshake("A", 1, NOW_MS + 4000)
    assert not sasl.complete
    with pytest.raises(IllegalSaslState):
        sasl.api_versions(supported=True)


def test_another_principal_cannot_take_over_a_connection() -> None:
    sasl = authenticator()
    log_in(sasl)
    reply = log_in(sasl, b"bob", now_ms=NOW_MS + 4000)
    assert error_of(reply) == (
        58,
        "Cannot change principals during re-authentication from User.alice: User.bob",
    )
    assert sasl.state is SaslState.FAILED


def test_another_mechanism_is_rejected_at_the_first_token() -> None:
    sasl = authenticator()
    log_in(sasl)
    reply = log_in(sasl, mechanism="B", now_ms=NOW_MS + 4000)
    assert error_of(reply) == (
        58,
        (
            "SASL mechanism 'B' requested by client is not supported for re-authentication of "
            "mechanism 'A'"
        ),
    )


def test_a_wrong_password_of_a_second_login_is_named_as_such() -> None:
    sasl = authenticator()
    log_in(sasl)
    reply = log_in(sasl, b"wrong", now_ms=NOW_MS + 4000)
    assert "during re-authentication due to" in error_of(reply)[1]


def test_a_client_may_not_authenticate_again_every_moment() -> None:
    sasl = authenticator()
    log_in(sasl)
    assert log_in(sasl, now_ms=NOW_MS + 10).complete
    reply = sasl.handshake("A", 1, NOW_MS + 11)
    assert error_of(reply)[0] == 34
    assert not reply.close
    assert sasl.complete


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("versions"), st.booleans()),
        st.tuples(st.just("handshake"), st.sampled_from(["A", "B", "C"])),
        st.tuples(st.just("token"), st.sampled_from([b"x", b"wrong", b"alice", b"bob"])),
    ),
    max_size=12,
)


@given(STEPS)
def test_no_order_of_requests_completes_without_a_right_token(steps: list[tuple[str, Any]]) -> None:
    sasl = authenticator()
    now_ms, names = NOW_MS, set()
    for kind, value in steps:
        now_ms += 2000
        before = sasl.state
        try:
            if kind == "versions":
                sasl.api_versions(supported=value)
            elif kind == "handshake":
                sasl.handshake(value, 1, now_ms)
            else:
                reply = answered(sasl, value, now_ms)
                assert reply.complete == (sasl.complete and reply.error is None)
        except IllegalSaslState:
            assert sasl.state is SaslState.FAILED
        if sasl.complete and before is not SaslState.COMPLETE:
            assert kind == "token"
            assert before is SaslState.AUTHENTICATE
            names.add(sasl.name)
        assert before is not SaslState.FAILED or sasl.state is SaslState.FAILED
    assert len(names) <= 1
