"""SCRAM: RFC vectors, both sides together, decoys, and hostile messages."""

from __future__ import annotations

import base64
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.core.entropy import SYSTEM_ENTROPY, SeededEntropy
from sparklog.core.errors import UnacceptableCredential
from sparklog.security.sasl.credentials import (
    CredentialStore,
    ScramCredential,
    ScramMechanism,
    credential_of,
    new_credential,
)
from sparklog.security.sasl.mechanism import Check, SaslFailure, Step
from sparklog.security.sasl.scram import ScramClient, ScramServer, new_scram_nonce

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
ALICE = {m: new_credential(m, "secret", SeededEntropy(m), 4096) for m in ScramMechanism}
STORE = CredentialStore({"alice": ALICE}, b"cluster secret")


def step_of(server: ScramServer, token: bytes, now_ms: int) -> Step:
    found = server.evaluate(token, now_ms)
    return found.run() if isinstance(found, Check) else found


def log_in(
    mechanism: ScramMechanism, user: str, password: str, store: CredentialStore = STORE
) -> str | None:
    """Run a whole exchange; return the name that the server found."""
    server = ScramServer(mechanism, store, new_scram_nonce(SYSTEM_ENTROPY))
    client = ScramClient(mechanism, user, password, new_scram_nonce(SYSTEM_ENTROPY))
    first = step_of(server, client.first(), 0)
    assert first.authenticated is None
    last = step_of(server, client.final(first.token), 0)
    client.verify(last.token)
    return None if last.authenticated is None else last.authenticated.name


def test_the_server_accepts_the_exchange_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = SHA_256.salted_password("pencil", salt, 4096)
    store = CredentialStore({"user": {SHA_256: credential_of(SHA_256, salt, salted, 4096)}}, b"")
    server = ScramServer(SHA_256, store, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    first = step_of(server, b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO", 0)
    assert first.token == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    last = step_of(
        server,
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        0,
    )
    assert last.token == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert last.authenticated is not None
    assert last.authenticated.name == "user"


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_client_and_server_agree_when_the_password_is_right(mechanism: ScramMechanism) -> None:
    assert log_in(mechanism, "alice", "secret") == "alice"


@given(st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=20))
@settings(max_examples=30, deadline=None)
def test_any_user_name_survives_the_escapes(name: str) -> None:
    store = CredentialStore({name: ALICE}, b"s")
    assert log_in(SHA_256, name, "secret", store) == name


@pytest.mark.parametrize(
    ("user", "password", "reason"),
    [("alice", "Secret", "wrong password"), ("mallory", "secret", "unknown user")],
)
def test_a_wrong_login_fails_at_the_proof(user: str, password: str, reason: str) -> None:
    with pytest.raises(SaslFailure, match=reason):
        log_in(SHA_512, user, password)


def test_a_name_without_a_user_gets_the_same_salt_at_every_broker() -> None:
    other = CredentialStore(STORE.users, STORE.secret)
    assert STORE.decoy(SHA_256, "x") == other.decoy(SHA_256, "x")
    assert STORE.decoy(SHA_256, "x").salt != STORE.decoy(SHA_256, "y").salt
    assert STORE.decoy(SHA_256, "x").salt != STORE.decoy(SHA_512, "x").salt
    assert CredentialStore({}, b"other").decoy(SHA_256, "x") != STORE.decoy(SHA_256, "x")


def test_a_decoy_looks_like_a_user() -> None:
    many = {
        f"u{n}": {SHA_256: new_credential(SHA_256, "p", SeededEntropy(n), 8192)} for n in range(3)
    }
    store = CredentialStore(many, b"s")
    decoy, real = store.decoy(SHA_256, "nobody"), many["u0"][SHA_256]
    assert decoy.iterations == real.iterations
    assert len(decoy.salt) in (24, 25, 26)
    assert len(real.salt) in (24, 25, 26)
    assert len(decoy.stored_key) == len(real.stored_key)
    assert decoy.salt.isalnum()


@pytest.mark.parametrize("iterations", [0, 4095, 16_385])
def test_iterations_outside_of_kafkas_bounds_are_refused(iterations: int) -> None:
    with pytest.raises(UnacceptableCredential, match=r"Too (few|many) iterations"):
        new_credential(SHA_256, "p", SYSTEM_ENTROPY, iterations)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff",
        b"p=tls-unique,,n=alice,r=x",
        b"n,a=bob,n=alice,r=x",
        b"n,bob,n=alice,r=x",
        b"n,,n=alice",
        b"n,,m=ext,n=alice,r=x",
        b"n,,n=,r=x",
        b"n,,n=a=b,r=x",
        b"n,,n=alice,r=",
        b"n,,n=alice,r=x,tokenauth=true",
    ],
)
def test_a_wrong_first_message_fails(message: bytes) -> None:
    with pytest.raises(SaslFailure):
        step_of(ScramServer(SHA_256, STORE, new_scram_nonce(SYSTEM_ENTROPY)), message, 0)


def test_an_authorization_id_may_be_the_user() -> None:
    server = ScramServer(SHA_256, STORE, new_scram_nonce(SYSTEM_ENTROPY))
    assert step_of(server, b"n,a=alice,n=alice,r=x", 0).token.startswith(b"r=x")


def test_a_replayed_proof_fails() -> None:
    client = ScramClient(SHA_256, "alice", "secret", new_scram_nonce(SYSTEM_ENTROPY))
    server = ScramServer(SHA_256, STORE, new_scram_nonce(SYSTEM_ENTROPY))
    final = client.final(step_of(server, client.first(), 0).token)
    other = ScramServer(SHA_256, STORE, new_scram_nonce(SYSTEM_ENTROPY))
    step_of(other, client.first(), 0)
    with pytest.raises(SaslFailure, match="nonce"):
        step_of(other, final, 0)
    step_of(server, final, 0)
    with pytest.raises(SaslFailure, match="complete"):
        step_of(server, final, 0)


@given(st.binary(max_size=200), st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_arbitrary_bytes_end_as_a_failure_or_a_reply(first: bytes, final: bytes) -> None:
    server = ScramServer(SHA_256, STORE, new_scram_nonce(SYSTEM_ENTROPY))
    with suppress(SaslFailure):
        step_of(server, b"n,,n=alice,r=" + first, 0)
        assert step_of(server, final, 0).authenticated is None


@pytest.mark.parametrize(
    "answer",
    [
        b"r=other,s=QQ==,i=4096",
        b"r={nonce}x,s=QQ==,i=4095",
        b"r={nonce}x,s=QQ==,i=99999999999",
        b"r={nonce}x,s=?,i=4096",
        b"r={nonce},s=QQ==,i=4096",
        b"r={nonce}x,i=4096",
    ],
)
def test_a_client_refuses_a_wrong_server(answer: bytes) -> None:
    client = ScramClient(SHA_256, "alice", "secret", new_scram_nonce(SYSTEM_ENTROPY))
    nonce = client.first().rpartition(b"r=")[2]
    with pytest.raises(SaslFailure):
        client.final(answer.replace(b"{nonce}", nonce))


def test_a_client_refuses_a_server_that_does_not_know_the_credential() -> None:
    client = ScramClient(SHA_256, "alice", "secret", new_scram_nonce(SYSTEM_ENTROPY))
    server = ScramServer(SHA_256, STORE, new_scram_nonce(SYSTEM_ENTROPY))
    client.final(step_of(server, client.first(), 0).token)
    with pytest.raises(SaslFailure, match="did not prove"):
        client.verify(b"v=AAAA")
    with pytest.raises(SaslFailure, match="rejected"):
        client.verify(b"e=other-error")


def test_a_credential_shows_no_key_in_its_text() -> None:
    credential = ScramCredential(b"salt", b"stored", b"server", 4096)
    assert repr(credential) == "ScramCredential(iterations=4096)"
    assert "secret" not in repr(STORE)
