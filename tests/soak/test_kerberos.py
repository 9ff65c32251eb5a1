"""Logins by Kerberos tickets: a KDC of this machine, and the clients that can log in by them.

`make soak` installs the KDC and the extra `sparklog[gssapi]` where it can.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

import sparklog
from sparklog.broker.network.service import FailedLogin
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request
from sparklog.security.sasl.gssapi import gssapi_exchange
from sparklog.security.sasl.kerberos import client_context
from tests.harness.kerberos_realm import CLOCK_SKEW_S, REALM, KerberosRealm
from tests.harness.secured_server import Peer, Secured, serve
from tests.interop.brokers import Brokers
from tests.interop.secure_cluster import write_properties
from tests.peers.kafka_tools import QUICK_JVM, ToolFailed, run_tool
from tests.unit.broker.network.test_server import metadata

pytestmark = [pytest.mark.soak, pytest.mark.timeout(400)]
HOST = "localhost"
MODULE = "com.sun.security.auth.module.Krb5LoginModule"
SESSION_MS = 2000
RECORDS = 100
KAFKA_PYTHON = """
import sys
from kafka import KafkaConsumer, KafkaProducer

login = {
    "bootstrap_servers": sys.argv[1].split(","),
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "GSSAPI",
    "sasl_kerberos_service_name": "kafka",
}
producer = KafkaProducer(**login)
producer.send("python", b"by a ticket").get(30)
producer.close()
consumer = KafkaConsumer("python", auto_offset_reset="earliest", **login)
assert next(consumer).value == b"by a ticket"
consumer.close()
"""


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KerberosRealm]:
    # The library reads the environment of this process.
    with (
        KerberosRealm(tmp_path_factory.mktemp("kerberos")) as running,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in running.environment.items():
            patch.setenv(name, value)
        yield running


@pytest.fixture(scope="module")
def keytab(realm: KerberosRealm) -> Path:
    """Return the keytab of the brokers."""
    return realm.add(f"kafka/{HOST}")


@pytest.fixture(scope="module")
def alice(realm: KerberosRealm) -> Path:
    return realm.add("alice")


def settings_of(keytab: Path, listener: str = "sasl_plaintext") -> dict[str, str]:
    """Return settings without a principal, so that each key of the keytab counts."""
    return {
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        f"listener.name.{listener}.gssapi.sasl.jaas.config": f"{MODULE} required useKeyTab=true "
        f'storeKey=true keyTab="{keytab}" principal="*";',
    }


LISTENER = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0"}


async def log_in(peer: Peer, keytab: Path, principal: str) -> tuple[ErrorCode, int]:
    """Log in by a keytab; return the last code, and the session's length in ms."""
    await peer.ask(build_request(Api.SASL_HANDSHAKE, 1, mechanism="GSSAPI"))
    exchange = gssapi_exchange(client_context(HOST, "kafka", str(keytab), principal))
    token = next(exchange)
    while True:
        answer = await peer.ask(build_request(Api.SASL_AUTHENTICATE, 1, auth_bytes=token))
        session_ms = round(answer.session_lifetime.total_seconds() * 1000)
        if answer.error_code is not ErrorCode.none:
            return answer.error_code, session_ms
        try:
            token = exchange.send(answer.auth_bytes)
        except StopIteration:
            return answer.error_code, session_ms


def test_the_ticket_decides_about_the_user_and_the_session(
    realm: KerberosRealm, keytab: Path, alice: Path
) -> None:
    rules = r"RULE:[2:$1-of-$2@$0](.*@SPARKLOG\.TEST)s/@.*///U,DEFAULT"
    job = realm.add("etl/host7")

    async def story(secured: Secured) -> None:
        peer = await Peer.connect(secured.at("SASL_PLAINTEXT"))
        code, session_ms = await log_in(peer, alice, "alice")
        assert code is ErrorCode.none
        # A ticket lasts an hour, and the library adds the clock skew that it allows.
        assert 3_500_000 < session_ms <= 3_600_000 + CLOCK_SKEW_S * 1000
        await peer.ask(metadata())
        assert secured.principals[-1] == "User:alice"
        await asyncio.sleep(1.1)  # a client may not log in again at once
        assert (await log_in(peer, alice, "alice"))[0] is ErrorCode.none
        peer.writer.close()
        other = await Peer.connect(secured.at("SASL_PLAINTEXT"))
        assert (await log_in(other, job, "etl/host7"))[0] is ErrorCode.none
        await other.ask(metadata())
        assert secured.principals[-1] == "User:ETL-OF-HOST7"
        other.writer.close()

    mapping = {"sasl.kerberos.principal.to.local.rules": rules}
    serve(story, {**LISTENER, **settings_of(keytab), **mapping})


def test_the_cause_of_a_failed_login_is_in_the_log(
    realm: KerberosRealm, keytab: Path, alice: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.keytab"
    shutil.copy(keytab, copy)

    async def story(secured: Secured) -> None:
        failed: list[FailedLogin] = []
        secured.server.audit_failed_login = failed.append

        async def cause_of(*tokens: bytes) -> str:
            peer = await Peer.connect(secured.at("SASL_PLAINTEXT"))
            await peer.ask(build_request(Api.SASL_HANDSHAKE, 1, mechanism="GSSAPI"))
            asked = [build_request(Api.SASL_AUTHENTICATE, 1, auth_bytes=one) for one in tokens]
            answer = [await peer.ask(one) for one in asked][-1]
            assert answer.error_code is ErrorCode.sasl_authentication_failed
            assert answer.error_message.endswith("invalid credentials with SASL mechanism GSSAPI")
            assert await peer.closed()
            assert "\n" not in failed[-1].reason
            return failed.pop().reason

        def token_of(keytab: Path, principal: str, service: str = "kafka") -> bytes:
            return client_context(HOST, service, str(keytab), principal).step(b"")

        brief = realm.add("brief", "-maxlife", "2s")
        expiring, late = token_of(brief, "brief"), token_of(alice, "alice")
        token = token_of(alice, "alice")
        assert "after the last one" in await cause_of(token, b"x")
        assert "the same token came before" in await cause_of(token)
        assert "Invalid token" in await cause_of(b"garbage")
        realm.add(f"http/{HOST}")
        wrong = token_of(alice, "alice", "http")
        assert "the keytab has no key of the ticket's service" in await cause_of(wrong)
        bob = realm.add("bob")
        realm.keytab(f"kafka/{HOST}")
        newer = token_of(bob, "bob")
        assert "the keytab has no key of the ticket's version" in await cause_of(newer)
        shutil.copy(keytab, copy)  # a renewed keytab needs no restart
        peer = await Peer.connect(secured.at("SASL_PLAINTEXT"))
        assert (await log_in(peer, bob, "bob"))[0] is ErrorCode.none
        peer.writer.close()
        await asyncio.sleep(2 + CLOCK_SKEW_S + 2)
        assert "the ticket has expired" in await cause_of(expiring)
        assert "the clocks differ" in await cause_of(late)

    serve(story, {**LISTENER, **settings_of(copy)})


def test_a_principal_of_another_realm_has_no_name_by_default(
    realm: KerberosRealm,
    keytab: Path,
    alice: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(secured: Secured) -> None:
        peer = await Peer.connect(secured.at("SASL_PLAINTEXT"))
        code, _ = await log_in(peer, alice, f"alice@{REALM}")
        assert code is ErrorCode.sasl_authentication_failed
        assert await peer.closed()
        (line,) = [text for text in caplog.messages if "the login failed" in text]
        assert f"is this the right realm? principal=alice@{REALM} default_realm=OTHER" in line

    realm.write_krb5_conf(tmp_path / "krb5.conf", "OTHER.TEST")
    monkeypatch.setenv("KRB5_CONFIG", str(tmp_path / "krb5.conf"))
    serve(story, {**LISTENER, **settings_of(keytab)})


@pytest.fixture(scope="module")
def brokers(keytab: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Return the root and the bootstrap servers of two brokers whose sessions end soon."""
    root = tmp_path_factory.mktemp("log").as_uri()
    settings = {
        **settings_of(keytab, "external"),
        "listeners": f"INTERNAL://127.0.0.1:0,EXTERNAL://{HOST}:0",
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:SASL_PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "connections.max.reauth.ms": str(SESSION_MS),
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "2",
    }
    with Brokers(root, 2, settings), sparklog.open_log(root) as log:
        found = [broker.at("EXTERNAL") for broker in log.refresh().live_brokers()]
        yield root, ",".join(f"{one.host}:{one.port}" for one in found if one is not None)


def keytab_login(keytab: Path, principal: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": f'{MODULE} required useKeyTab=true storeKey=true keyTab="{keytab}" '
        f'principal="{principal}@{REALM}";',
    }


def test_javas_clients_send_and_read_while_they_log_in_again(
    realm: KerberosRealm, brokers: tuple[str, str], tmp_path: Path
) -> None:
    root, bootstrap = brokers
    with sparklog.open_log(root) as log:
        log.create_topic("java", 1, replication_factor=2)
    carol = keytab_login(realm.add("carol"), "carol")
    file = write_properties(tmp_path / "carol.properties", carol)
    tool = partial(run_tool, jvm=(*QUICK_JVM, f"-Djava.security.krb5.conf={realm.krb5_conf}"))
    at = ("--bootstrap-server", bootstrap, "--command-config", str(file))
    given = (*at, "--topic", "java", "--max-messages", str(RECORDS))
    pace = str(RECORDS // (4 * SESSION_MS // 1000))
    sent = tool("VerifiableProducer", *given, "--throughput", pace)
    assert sent.count('"producer_send_success"') == RECORDS
    group = ("--group-id", "java", "--reset-policy", "earliest", "--verbose")
    assert tool("VerifiableConsumer", *given, *group).count('"record_data"') == RECORDS
    realm.add(f"other/{HOST}")
    write_properties(file, {**carol, "sasl.kerberos.service.name": "other"})
    with pytest.raises(ToolFailed, match="SASL mechanism GSSAPI"):
        tool("TopicCommand", "--list", *at)


def test_admin_and_kafka_python_log_in_by_keytab_and_ticket_cache(
    realm: KerberosRealm, brokers: tuple[str, str]
) -> None:
    _, bootstrap = brokers
    dave = realm.add("dave")
    with sparklog.Admin(bootstrap, settings=keytab_login(dave, "dave")) as admin:
        admin.create_topic("python", 1)
        time.sleep(1.5 * SESSION_MS / 1000)  # the session ends, and the connection logs in again
        assert "python" in admin.topic_names()
    realm.kinit("dave", dave)
    # In a process of its own: this library has warnings, which are errors in tests.
    subprocess.run([sys.executable, "-c", KAFKA_PYTHON, bootstrap], check=True, timeout=120)
