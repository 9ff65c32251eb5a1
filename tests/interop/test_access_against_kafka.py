"""Missing rights: brokers answer each request with the codes of a real Kafka of the same version.

The clients of Kafka log in with SASL, since its brokers are `User:ANONYMOUS` to each other. Clients
of ours are `User:ANONYMOUS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest

from sparklog.client.addresses import bootstrap_addresses
from sparklog.client.admin import Admin
from sparklog.client.security import NO_SECURITY, SecuritySettings
from sparklog.client.wire import WireConnection
from sparklog.cluster.log import open_log
from sparklog.core.config.broker import STANDARD_AUTHORIZER
from sparklog.protocol.api_keys import Api
from sparklog.protocol.topic_ids import uuid_of
from sparklog.security.acls import AclBinding, AclPermission, PatternType
from sparklog.security.principal import ANONYMOUS
from tests.harness.access_case import AccessCase, Grant
from tests.harness.access_requests import access_cases
from tests.harness.partial_requests import HALF_RIGHTS, compared, partial_requests
from tests.harness.plain_requests import codes_of, plain_request
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers
from tests.peers.kafka import HOST, KafkaCluster, free_ports

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
NOT_COMPARED = frozenset({Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE, Api.BROKER_HEARTBEAT})
"""On a SASL listener the first two log in again, and a broker of Kafka takes no heartbeat."""
ABOUT_TOKENS = frozenset(
    {
        Api.CREATE_DELEGATION_TOKEN,
        Api.RENEW_DELEGATION_TOKEN,
        Api.EXPIRE_DELEGATION_TOKEN,
        Api.DESCRIBE_DELEGATION_TOKEN,
    }
)
"""Clients need a login for these. `test_table` has the codes of our handlers."""
CASES = [one for one in access_cases(UUID(int=1)) if one.request.__api_key__ not in NOT_COMPARED]
DELETIONS_LAST = sorted(
    (one for one in CASES if one.grants),
    key=lambda one: one.request.__api_key__ == Api.DELETE_TOPICS,
)
NOBODY, HALF = "nobody", "half"
TOPICS = ("t", "u")
MOVES = {5, 14, 15, 16}
DENIALS = {29, 30, 31, 53, 65}
CREATES = {"CREATE_TOPICS-v7"}
"""The grantee may not see the settings of its topic, which is an error of its own."""


def user_of(case: AccessCase) -> str:
    """Return the user with exactly the rights of a case."""
    return f"u{CASES.index(case)}"


@dataclass(frozen=True)
class Side:
    """A cluster with the topics `t` and `u`, and connections of its clients."""

    address: str
    ids: dict[str, UUID]
    logs_in: bool

    def ask(self, request: Any, user: str) -> Any:
        """Return the answer that a user gets."""
        security = NO_SECURITY
        if self.logs_in:
            jaas = f'{PLAIN} username="{user}" password="{user}";'
            settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
            security = SecuritySettings({**settings, "sasl.jaas.config": jaas})
        (address,) = bootstrap_addresses(self.address)
        with WireConnection(address, 30.0, security) as connection:
            return connection.call(request)

    def codes(self, case: AccessCase, user: str) -> list[int]:
        """Return the codes that a user gets for the request of a case."""
        found = [one for one in access_cases(self.ids["t"])
                 if one.request.__api_key__ not in NOT_COMPARED]  # fmt: skip
        return codes_of(self.ask(found[CASES.index(case)].request, user))

    def compared(self, what: str, user: str) -> list[Any]:
        """Return what is compared of an answer, once the coordinator is there."""
        names = {one: name for name, one in self.ids.items()}
        find = partial_requests(self.ids)["coordinators"]  # which creates the topic of groups
        eventually(lambda: not MOVES & set(codes_of(self.ask(find, user))), "it is there", 30.0)

        def answered() -> Any:
            answer = self.ask(partial_requests(self.ids)[what], user)
            return None if MOVES & set(codes_of(answer)) else answer

        return compared(eventually(answered, f"{what} is answered", 30.0), names)


@pytest.fixture(scope="module")
def theirs() -> Iterator[Side]:
    """Kafka with a user for each case, who has exactly its rights."""
    ports = free_ports(3)
    opened, login = (f"{HOST}:{port}" for port in ports[:2])
    listeners = f"OPEN://{opened},LOGIN://{login}"
    users = [NOBODY, HALF, *map(user_of, CASES)]
    known = " ".join(f'user_{user}="{user}"' for user in users)
    settings = {
        "listeners": f"{listeners},CONTROLLER://{HOST}:{ports[2]}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": (
            "OPEN:PLAINTEXT,LOGIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "inter.broker.listener.name": "OPEN",
        "controller.quorum.voters": f"1@{HOST}:{ports[2]}",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": f"{PLAIN} {known};",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:ANONYMOUS",
    }
    with KafkaCluster(settings=settings, heap="256m"):
        with Admin(opened) as admin:
            for name in TOPICS:
                admin.create_topic(name, partitions=2)
        (address,) = bootstrap_addresses(opened)
        with WireConnection(address, 30.0) as connection:
            creations = [
                {
                    "resource_type": kind, "resource_name": name, "resource_pattern_type": 3,
                    "principal": f"User:{user}", "host": "*", "operation": operation,
                    "permission_type": 3,
                }
                for user, grants in [(HALF, HALF_RIGHTS), *((user_of(c), c.grants) for c in CASES)]
                for operation, kind, name in grants
            ]  # fmt: skip
            created = connection.call(plain_request(Api.CREATE_ACLS, 3, creations=creations))
            assert not any(codes_of(created))
            asked = plain_request(Api.METADATA, 12, topics=[{"name": name} for name in TOPICS])
            ids = {one.name: one.topic_id for one in connection.call(asked).topics}
        yield Side(login, ids, logs_in=True)


@contextmanager
def guarded_broker(grants: tuple[Grant, ...]) -> Iterator[Side]:
    """Run a broker with an authorizer, whose clients have these rights."""
    root = f"memory://{uuid4()}"
    allow, literal = AclPermission.ALLOW, PatternType.LITERAL
    with open_log(root) as log:
        for name in TOPICS:
            log.create_topic(name, partitions=2)
        ids = {name: uuid_of(log.refresh().topics[name].topic_id) for name in TOPICS}
        log.create_acls(
            AclBinding(kind, name, literal, ANONYMOUS, "*", operation, allow)
            for operation, kind, name in grants
        )
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER}
    with Brokers(root, settings=settings) as brokers:
        yield Side(brokers.bootstrap, ids, logs_in=False)


@pytest.fixture(scope="module")
def ours() -> Iterator[Side]:
    """A broker without any ACL."""
    with guarded_broker(()) as side:
        yield side


@pytest.fixture(scope="module")
def ours_with_half() -> Iterator[Side]:
    """A broker whose clients have some rights."""
    with guarded_broker(HALF_RIGHTS) as side:
        yield side


@pytest.mark.parametrize("what", partial_requests({}))
def test_names_codes_and_operations_are_those_of_kafka(
    what: str, ours_with_half: Side, theirs: Side
) -> None:
    assert ours_with_half.compared(what, HALF) == theirs.compared(what, HALF)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_stranger_gets_the_codes_of_kafka(case: AccessCase, ours: Side, theirs: Side) -> None:
    expected = theirs.codes(case, NOBODY)
    found = expected if case.request.__api_key__ in ABOUT_TOKENS else ours.codes(case, NOBODY)
    assert (found, expected) == (expected, case.stranger)


@pytest.mark.parametrize("case", DELETIONS_LAST, ids=lambda case: case.name)
def test_the_rights_of_a_case_are_enough_for_kafka(case: AccessCase, theirs: Side) -> None:
    found: list[int] = []

    def is_allowed() -> bool:
        found[:] = theirs.codes(case, user_of(case))
        return not DENIALS & set(found) or case.name in CREATES

    eventually(is_allowed, f"{case.name} is allowed", 15.0, every_s=0.5)
