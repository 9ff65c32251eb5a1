"""Users and ACLs from their creation to their removal, with brokers that check both."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from sparklog.client.admin import Admin
from sparklog.cluster.log import open_log
from sparklog.core.config.broker import STANDARD_AUTHORIZER
from sparklog.core.errors import ClusterAuthorizationFailed
from sparklog.security.acls import AclFilter, checked_binding
from sparklog.security.jaas import SCRAM_MODULE
from sparklog.security.principal import USER, Principal
from sparklog.security.sasl.credentials import ScramMechanism
from tests.cli.conftest import Cli
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers

HOST = "127.0.0.1"
ADMIN, ETL = "admin", "etl"
FIRST, SECOND = "first-password", "second-password"
ADDED = ("users", "--add", ETL, "--password-stdin")
GRANT = ("--allow-principal", f"User:{ETL}", "--topic", "etl-", "--operation", "Write")
PREFIXED = ("--resource-pattern-type", "prefixed")
WAIT_S = 20.0
QUOTA = ({"user": ETL}, {"producer_byte_rate": 1e9})


class Guarded:
    """One broker with a listener for logins."""

    def __init__(self, brokers: Brokers, root: str, address: str) -> None:
        self.brokers, self.root, self.address = brokers, root, address

    def client(self, user: str, password: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": user,
            "sasl.password": password,
        }

    def admin(self, user: str, password: str) -> Admin:
        settings = self.client(user, password)
        return Admin(settings.pop("bootstrap.servers"), settings=settings)


@contextmanager
def serving(root: str) -> Iterator[Guarded]:
    settings = {
        "listeners": f"INTERNAL://{HOST}:0,CLIENTS://{HOST}:0",
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CLIENTS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{ADMIN};User:ANONYMOUS",
        "delegation.token.secret.key": "the key of all tokens",
    }
    with Brokers(root, 1, settings) as brokers, open_log(root) as log:
        (broker,) = log.refresh().live_brokers()
        listener = broker.at("CLIENTS")
        assert listener is not None
        yield Guarded(brokers, root, f"{listener.host}:{listener.port}")


@pytest.fixture
def root(tmp_path: Path) -> str:
    place = str(tmp_path / "log")
    with open_log(place) as log:
        log.set_password(ADMIN, FIRST)
        for topic in ("etl-1", "other"):
            log.create_topic(topic)
    return place


@pytest.fixture
def commands(root: str, cli_at: Callable[[str], Cli]) -> Cli:
    """The command line on the root itself."""
    cli = cli_at("")
    cli.root = root
    return cli


def sent(producer: Producer, topic: str) -> str:
    """Send a record, and return the name of the error, or nothing."""
    found: list[str] = []
    try:
        producer.produce(
            topic, b"x", on_delivery=lambda error, _: found.append(error.name() if error else "")
        )
    except KafkaException as refused:  # librdkafka knows already
        return str(refused.args[0].name())
    assert producer.flush(WAIT_S) == 0
    return found[0]


def logs_in(settings: dict[str, str]) -> bool:
    try:
        AdminClient({**settings, "log_level": 0}).list_topics(timeout=3)
    except KafkaException:
        return False
    return True


def test_grants_act_until_they_are_gone_and_come_back_from_the_bucket(
    root: str, commands: Cli, tmp_path: Path
) -> None:
    denied = "TOPIC_AUTHORIZATION_FAILED"
    with serving(root) as guarded:
        settings = guarded.client(ETL, FIRST)
        assert not logs_in(settings)
        commands.ok(*ADDED, stdin=FIRST.encode())
        eventually(lambda: logs_in(settings), "the user is known", WAIT_S)
        producer = Producer({**settings, "message.timeout.ms": 10_000})
        assert sent(producer, "etl-1") == denied
        commands.ok("acls", "--add", *GRANT, *PREFIXED)
        eventually(lambda: sent(producer, "etl-1") == "", "the ACL acts", WAIT_S)
        assert sent(producer, "other") == denied
        commands.ok("acls", "--remove", *GRANT, *PREFIXED)
        eventually(lambda: sent(producer, "etl-1") == denied, "it acts no longer", WAIT_S)
        commands.ok("acls", "--add", *GRANT, *PREFIXED)
        commands.ok(*ADDED, stdin=SECOND.encode())
        eventually(lambda: not logs_in(settings), "the old password is wrong", WAIT_S)
        assert logs_in(guarded.client(ETL, SECOND))
        with guarded.admin(ADMIN, FIRST) as admin:
            admin.alter_client_quotas(*QUOTA)
        with guarded.admin(ETL, SECOND) as own:
            token = own.create_token(renewers=[Principal(USER, ADMIN)])
        with open_log(root) as log:
            acls = log.acls()
    # Another machine has the bucket, and nothing else: brokers keep nothing outside of it.
    moved = str(tmp_path / "moved")
    shutil.move(root, moved)
    commands.root = moved
    with serving(moved) as guarded:
        settings = guarded.client(ETL, SECOND)
        producer = Producer({**settings, "message.timeout.ms": 10_000})
        assert sent(producer, "etl-1") == ""
        assert sent(producer, "other") == denied
        assert not logs_in(guarded.client(ETL, FIRST))
        with guarded.admin(ADMIN, FIRST) as admin:
            assert set(admin.users()) == {ADMIN, ETL}
            assert set(admin.acls()) == set(acls) != set()
            assert list(admin.client_quotas().values()) == [QUOTA[1]]
        with guarded.admin(ETL, SECOND) as own:
            assert own.tokens() == [token]
        login = f'{SCRAM_MODULE} required username="{token.token.token_id}" '
        by_token = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": f'{login} password="{token.password}" tokenauth="true";',
        }
        with Admin(guarded.address, settings=by_token) as holder:
            assert holder.topic_names() == ["etl-1"]
        commands.ok("users", "--remove", ETL)
        eventually(lambda: not logs_in(settings), "the user is gone", WAIT_S)


def test_only_permitted_users_see_and_change_access(root: str) -> None:
    with open_log(root) as log:
        log.set_password(ETL, FIRST)
        acls = log.acls()
    with serving(root) as guarded:
        with guarded.admin(ADMIN, FIRST) as admin:
            assert ADMIN in admin.users()
            assert admin.acls() == acls
        with guarded.admin(ETL, FIRST) as etl:
            for call in (
                etl.users,
                etl.acls,
                lambda: etl.create_acls([checked_binding(2, "t", 3, f"User:{ETL}", "*", 3, 3)]),
                lambda: etl.delete_acls([AclFilter()]),
                lambda: etl.set_password(ADMIN, "mine"),
                lambda: etl.remove_password(ADMIN, list(ScramMechanism)),
            ):
                with pytest.raises(ClusterAuthorizationFailed):
                    call()
        assert logs_in(guarded.client(ADMIN, FIRST))
    with open_log(root) as log:
        assert log.acls() == acls
