"""Listeners with logins over real sockets: the users who get in, and those who do not."""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
import time
from dataclasses import replace
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from sparklog.broker.network.broker_client import TcpNetwork
from sparklog.broker.network.client_login import AGAIN_PAUSE_S, ClientLogin
from sparklog.broker.network.listeners import listeners_of
from sparklog.broker.network.login import BROKER_USER, ListenerLogin, LoginTools
from sparklog.broker.network.login_checks import LoginChecks
from sparklog.broker.network.service import FailedLogin
from sparklog.broker.runtime.environment import Unreachable
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.config.broker import parse_broker_configs
from sparklog.core.entropy import SYSTEM_ENTROPY
from sparklog.core.errors import InvalidConfig
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages import frames
from sparklog.protocol.messages.builder import build_request
from sparklog.security.principal import ANONYMOUS, USER, Principal
from sparklog.security.sasl.client import SaslLogin, sasl_exchange
from sparklog.security.sasl.delegation_tokens import DelegationToken, TokenSecrets, password_of
from sparklog.security.sasl.plain import plain_token
from tests.harness.secured_server import (
    AUTHORITY,
    IMAGE,
    SASL_PLAIN,
    SECRET,
    Peer,
    Secured,
    serve,
)
from tests.unit.broker.network.test_server import metadata, versions


def alice(
    mechanism: str = "SCRAM-SHA-512", password: str = "wonder land", *, by_token: bool = False
) -> SaslLogin:
    return SaslLogin(mechanism, "alice", password, by_token=by_token)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
def test_a_user_logs_in_and_is_the_principal_of_its_requests(mechanism: str) -> None:
    async def story(secured: Secured) -> None:
        peer = await Peer.connect(secured.at("SASL_PLAINTEXT"))
        assert await peer.ask(build_request(Api.API_VERSIONS, 0)) == versions()
        assert await peer.log_in(alice(mechanism)) == (ErrorCode.none, None, 0)
        await peer.ask(metadata())
        assert secured.principals == ["User:ANONYMOUS", "User:alice"]
        assert secured.contexts[-1].listener == "SASL_PLAINTEXT"
        assert secured.metrics.authentications == {("SASL_PLAINTEXT", mechanism, True): 1}
        peer.writer.close()

    serve(story, SASL_PLAIN)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
@pytest.mark.parametrize("user", ["alice", "mallory"])
def test_a_failed_login_is_answered_and_closed_a_little_later(
    mechanism: str, user: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(secured: Secured) -> None:
        peer = await Peer.connect(secured.at("SASL_PLAINTEXT"))
        began_s = time.monotonic()
        code, message, _ = await peer.log_in(SaslLogin(mechanism, user, "guess"))
        assert code is ErrorCode.sasl_authentication_failed
        assert message == (
            "Authentication failed during authentication due to invalid credentials "
            f"with SASL mechanism {mechanism}"
        )
        assert await peer.closed()
        assert time.monotonic() - began_s >= 0.1
        (line,) = [text for text in caplog.messages if "the login failed" in text]
        assert f"user='{user}'" in line
        assert "client=127.0.0.1" in line
        assert "guess" not in line
        assert secured.metrics.authentications == {("SASL_PLAINTEXT", mechanism, False): 1}

    serve(story, SASL_PLAIN)


STORM = 200


@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_storm_of_wrong_logins_is_one_line_and_leaves_nothing(
    listener: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "ca.pem").write_text(AUTHORITY.pem)
    store = AUTHORITY.issue("broker", "127.0.0.1").write(tmp_path / "broker.pem")
    audited: list[FailedLogin] = []

    async def story(secured: Secured) -> None:
        secured.server.audit_failed_login = audited.append
        at = secured.at(listener)
        context = ssl.create_default_context(cadata=AUTHORITY.pem) if "SSL" in listener else None

        async def guess(number: int) -> float:
            peer = await Peer.connect(at, context)
            began_s = time.monotonic()
            code, _, _ = await peer.log_in(SaslLogin("SCRAM-SHA-256", "alice", f"guess{number}"))
            assert code is ErrorCode.sasl_authentication_failed
            assert await peer.closed()
            return time.monotonic() - began_s

        friend = await Peer.connect(at, context)
        assert (await friend.log_in(alice()))[0] is ErrorCode.none
        delays_s: list[float] = []
        for start in range(0, STORM, 50):
            delays_s += await asyncio.gather(*map(guess, range(start, start + 50)))
        assert min(delays_s) > 0.05
        for _ in range(500):
            if secured.server.connections == 1:
                break
            await asyncio.sleep(0.01)
        assert secured.server.connections == 1
        await friend.ask(metadata())
        friend.writer.close()

    serve(
        story,
        {**SASL_PLAIN, "listeners": f"{listener}://127.0.0.1:0",
         "ssl.keystore.location": str(store)},
    )  # fmt: skip
    lines = [text for text in caplog.messages if "the login failed" in text]
    assert "more=" not in lines[0]
    counted = [int(text.partition(" more=")[2].split()[0]) for text in lines[1:]]
    assert 1 + sum(counted) == STORM
    assert len(lines) <= 4
    assert len(audited) == STORM


def test_a_client_that_leaves_before_its_check_gets_no_answer() -> None:
    async def newest() -> MetadataImage:
        return IMAGE

    async def never(function: object, *arguments: object) -> None:
        await asyncio.get_running_loop().create_future()

    async def story() -> None:
        config = parse_broker_configs({"node.id": "1", **SASL_PLAIN})
        tools = LoginTools(newest, SYSTEM_CLOCK, SYSTEM_ENTROPY)
        listener = ListenerLogin(config, listeners_of(config)[0], tools)
        checks = LoginChecks(never)  # type: ignore[arg-type]
        logins = [ClientLogin(listener, checks) for _ in range(2)]
        token = build_request(Api.SASL_AUTHENTICATE, 1, auth_bytes=plain_token("alice", "guess"))
        tasks = []
        for login in logins:
            chosen = build_request(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
            await login.answer(Api.SASL_HANDSHAKE, chosen, "10.0.0.7")
            tasks.append(asyncio.create_task(
                login.answer(Api.SASL_AUTHENTICATE, token, "10.0.0.7")))  # fmt: skip
        await asyncio.sleep(0)
        for login in logins:
            login.client_left()
        answer = await tasks[1]
        assert answer.response is None
        assert answer.token == b""
        assert answer.fault == "the client left before its login was checked."
        assert not tasks[0].done()
        tasks[0].cancel()

    asyncio.run(story())


def test_no_request_is_handled_before_the_login(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def story(secured: Secured) -> None:
        peer = await Peer.connect(secured.at("SASL_PLAINTEXT"))
        peer.writer.write(frames.encode_request(metadata(), 1, "test"))
        assert await peer.closed()
        assert secured.contexts == []
        assert "before it logged in" in caplog.text
        assert "request=Metadata" in caplog.text
        behind = await Peer.connect(secured.at("SASL_PLAINTEXT"))
        chosen = build_request(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        behind.writer.write(frames.encode_request(chosen, 1, "test"))
        behind.writer.write(frames.encode_request(metadata(), 2, "test"))
        await behind.frame()
        assert await behind.closed()
        assert secured.contexts == []

    serve(story, SASL_PLAIN)


def test_a_large_request_is_rejected_before_the_login_only() -> None:
    async def story(secured: Secured) -> None:
        peer = await Peer.connect(secured.at("SASL_PLAINTEXT"))
        peer.writer.write(struct.pack(">i", 1001))
        assert await peer.closed()
        peer = await Peer.connect(secured.at("SASL_PLAINTEXT"))
        await peer.log_in(alice())
        await peer.ask(metadata("t" * 2000))
        assert len(secured.contexts) == 1
        peer.writer.close()

    serve(story, {**SASL_PLAIN, "sasl.server.max.receive.size": "1000"})


def test_a_second_api_versions_before_the_login_ends_the_connection() -> None:
    async def story(secured: Secured) -> None:
        peer = await Peer.connect(secured.at("SASL_PLAINTEXT"))
        await peer.ask(build_request(Api.API_VERSIONS, 0))
        peer.writer.write(frames.encode_request(build_request(Api.API_VERSIONS, 0), 2, "test"))
        assert await peer.closed()
        assert len(secured.contexts) == 1

    serve(story, SASL_PLAIN)


def test_an_unknown_mechanism_is_answered_with_those_that_there_are() -> None:
    async def story(secured: Secured) -> None:
        peer = await Peer.connect(secured.at("SASL_PLAINTEXT"))
        chosen = await peer.ask(build_request(Api.SASL_HANDSHAKE, 1, mechanism="GSSAPI"))
        assert chosen.error_code is ErrorCode.unsupported_sasl_mechanism
        assert chosen.mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
        assert await peer.closed()

    serve(story, SASL_PLAIN)


def test_an_old_client_logs_in_with_tokens_without_headers() -> None:
    async def story(secured: Secured) -> None:
        peer = await Peer.connect(secured.at("SASL_PLAINTEXT"))
        await peer.ask(build_request(Api.SASL_HANDSHAKE, 0, mechanism="SCRAM-SHA-256"))
        exchange = sasl_exchange(alice("SCRAM-SHA-256"), SYSTEM_ENTROPY)
        first = next(exchange)
        peer.writer.write(struct.pack(">i", len(first)) + first)
        final = exchange.send(await peer.frame())
        peer.writer.write(struct.pack(">i", len(final)) + final)
        proof = await peer.frame()
        with pytest.raises(StopIteration):
            exchange.send(proof)
        await peer.ask(metadata())
        assert secured.principals == ["User:alice"]
        peer.writer.close()

    serve(story, SASL_PLAIN)


def test_a_session_ends_unless_the_client_logs_in_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def story(secured: Secured) -> None:
        peer = await Peer.connect(secured.at("SASL_PLAINTEXT"))
        assert (await peer.log_in(alice()))[2] == 1200
        await asyncio.sleep(1.1)
        assert (await peer.log_in(alice()))[2] == 1200
        await asyncio.sleep(0.3)
        await peer.ask(metadata())
        await asyncio.sleep(1.0)
        peer.writer.write(frames.encode_request(metadata(), 1, "test"))
        assert await peer.closed()
        assert len(secured.contexts) == 1
        assert "the session of the login is over" in caplog.text
        key = ("SASL_PLAINTEXT", "SCRAM-SHA-512", True)
        assert secured.metrics.authentications == {key: 1}
        assert secured.metrics.reauthentications == {key: 1}

    serve(story, {**SASL_PLAIN, "connections.max.reauth.ms": "1200"})


def test_earlier_answers_arrive_before_those_of_a_further_login() -> None:
    async def story(secured: Secured) -> None:
        peer = await Peer.connect(secured.at("SASL_PLAINTEXT"))
        await peer.log_in(alice())
        chosen = build_request(Api.SASL_HANDSHAKE, 1, mechanism="SCRAM-SHA-512")
        began_s = time.monotonic()
        for number, request in enumerate((metadata(), metadata(), chosen)):
            peer.writer.write(frames.encode_request(request, number, "test"))
        for _ in range(3):
            await peer.frame()
        assert time.monotonic() - began_s > AGAIN_PAUSE_S / 2
        peer.writer.close()

    serve(story, SASL_PLAIN)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_the_holder_of_a_token_is_its_owner_until_the_token_expires(
    mechanism: str, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("key of tokens\n")
    now_ms, secrets = SYSTEM_CLOCK.now_ms(), TokenSecrets("key of tokens")
    carol = Principal(USER, "carol")
    token = DelegationToken("id", carol, ANONYMOUS, (), now_ms, now_ms + 99_000, now_ms + 60_000)
    password = password_of(secrets.hmac("id"))

    async def story(secured: Secured) -> None:
        peer = await Peer.connect(secured.at("SASL_PLAINTEXT"))
        login = SaslLogin(mechanism, "id", password, by_token=True)
        code, _, session_ms = await peer.log_in(login)
        assert code is ErrorCode.none
        assert 0 < session_ms <= 60_000
        await peer.ask(metadata())
        assert secured.principals == ["User:carol"]
        assert secured.contexts[0].by_token
        peer.writer.close()
        for wrong in (SaslLogin(mechanism, "id", password), alice(mechanism, by_token=True)):
            peer = await Peer.connect(secured.at("SASL_PLAINTEXT"))
            assert (await peer.log_in(wrong))[0] is ErrorCode.sasl_authentication_failed
            peer.writer.close()

    key = {"delegation.token.secret.key": f"${{dir:{tmp_path}:key}}"}
    serve(story, {**SASL_PLAIN, **key}, replace(IMAGE, tokens={"id": token}))


def test_brokers_log_in_to_each_other_by_the_clusters_secret() -> None:
    async def story(secured: Secured) -> None:
        network = TcpNetwork("broker-2", secured.listeners.peer_access(lambda: SECRET))
        await network.call(secured.addresses.inter_broker, metadata(), timeout_s=5)
        assert secured.principals == [f"User:{BROKER_USER}"]
        await network.close()
        stranger = TcpNetwork("broker-3", secured.listeners.peer_access(lambda: "8" * 32))
        with pytest.raises(Unreachable, match="rejected the login"):
            await stranger.call(secured.addresses.inter_broker, metadata(), timeout_s=5)
        await stranger.close()

    serve(story, {**SASL_PLAIN, "sasl.enabled.mechanisms": "PLAIN"})


def test_static_users_of_plain_log_in_beside_those_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "users").write_text('bob=it\\\'s "me"\n')
    line = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'user_bob="${{file:{tmp_path}/users:bob}}";'
    )

    async def story(secured: Secured) -> None:
        for login in (SaslLogin("PLAIN", "bob", 'it\'s "me"'), alice("PLAIN")):
            peer = await Peer.connect(secured.at("SASL_PLAINTEXT"))
            assert (await peer.log_in(login))[0] is ErrorCode.none
            await peer.ask(metadata())
            peer.writer.close()
        assert secured.principals == ["User:bob", "User:alice"]

    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    serve(story, {**SASL_PLAIN, name: line})


def test_plain_needs_tls_or_a_setting_that_allows_clear_text() -> None:
    async def story(secured: Secured) -> None:
        raise AssertionError("it must not start")

    with pytest.raises(InvalidConfig, match="PLAIN sends passwords in clear text"):
        serve(story, {**SASL_PLAIN, "sparklog.sasl.plain.allow.cleartext": "false"})
