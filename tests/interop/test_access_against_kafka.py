"""Missing rights: brokers answer each request with the codes of a real Kafka of the same version.

The clients of Kafka log in with SASL, since its brokers are `User:ANONYMOUS` to each other. Clients
of ours are `User:ANONYMOUS`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
from tests.harness.access_case import AccessCase
from tests.harness.access_requests import access_cases
from tests.harness.plain_requests import codes_of, plain_request
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers
from tests.peers.kafka import HOST, KafkaCluster, free_ports

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
NOT_COMPARED = frozenset({Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE, Api.BROKER_HEARTBEAT})
"""On a SASL listener the first two log in again, and a broker of Kafka takes no heartbeat."""
CASES = [one for one in access_cases(UUID(int=1)) if one.request.__api_key__ not in NOT_COMPARED]
DELETIONS_LAST = sorted(
    (one for one in CASES if one.grants),
    key=lambda one: one.request.__api_key__ == Api.DELETE_TOPICS,
)
NOBODY = "nobody"
DENIALS = {29, 30, 31, 53}
CREATES = {"CREATE_TOPICS-v7"}
"""The grantee may not see the settings of its topic, which is an error of its own."""


def user_of(case: AccessCase) -> str:
    """Return the user with exactly the rights of a case."""
    return f"u{CASES.index(case)}"


@dataclass(frozen=True)
class Side:
    """A cluster with the topic `t`, and connections of its clients."""

    address: str
    topic_id: UUID
    logs_in: bool

    def codes(self, case: AccessCase, user: str) -> list[int]:
        """Return the codes that a user gets for the request of a case."""
        security = NO_SECURITY
        if self.logs_in:
            jaas = f'{PLAIN} username="{user}" password="{user}";'
            settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
            security = SecuritySettings({**settings, "sasl.jaas.config": jaas})
        number = CASES.index(case)
        found = [one for one in access_cases(self.topic_id)
                 if one.request.__api_key__ not in NOT_COMPARED]  # fmt: skip
        (address,) = bootstrap_addresses(self.address)
        with WireConnection(address, 30.0, security) as connection:
            return codes_of(connection.call(found[number].request))


@pytest.fixture(scope="module")
def theirs() -> Iterator[Side]:
    """Kafka with a user for each case, who has exactly its rights."""
    ports = free_ports(3)
    opened, login = (f"{HOST}:{port}" for port in ports[:2])
    listeners = f"OPEN://{opened},LOGIN://{login}"
    users = [NOBODY, *map(user_of, CASES)]
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
            admin.create_topic("t", partitions=2)
        (address,) = bootstrap_addresses(opened)
        with WireConnection(address, 30.0) as connection:
            creations = [
                {
                    "resource_type": kind, "resource_name": name, "resource_pattern_type": 3,
                    "principal": f"User:{user_of(case)}", "host": "*", "operation": operation,
                    "permission_type": 3,
                }
                for case in CASES
                for operation, kind, name in case.grants
            ]  # fmt: skip
            created = connection.call(plain_request(Api.CREATE_ACLS, 3, creations=creations))
            assert not any(codes_of(created))
            (topic,) = connection.call(
                plain_request(Api.METADATA, 12, topics=[{"name": "t"}])
            ).topics
        yield Side(login, topic.topic_id, logs_in=True)


@pytest.fixture(scope="module")
def ours() -> Iterator[Side]:
    """A broker with an authorizer and without any ACL."""
    root = f"memory://{uuid4()}"
    with open_log(root) as log:
        log.create_topic("t", partitions=2)
        topic_id = uuid_of(log.refresh().topics["t"].topic_id)
    settings = {"authorizer.class.name": STANDARD_AUTHORIZER}
    with Brokers(root, settings=settings) as brokers:
        yield Side(brokers.bootstrap, topic_id, logs_in=False)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_stranger_gets_the_codes_of_kafka(case: AccessCase, ours: Side, theirs: Side) -> None:
    expected = theirs.codes(case, NOBODY)
    assert (ours.codes(case, NOBODY), expected) == (expected, case.stranger)


@pytest.mark.parametrize("case", DELETIONS_LAST, ids=lambda case: case.name)
def test_the_rights_of_a_case_are_enough_for_kafka(case: AccessCase, theirs: Side) -> None:
    found: list[int] = []

    def is_allowed() -> bool:
        found[:] = theirs.codes(case, user_of(case))
        return not DENIALS & set(found) or case.name in CREATES

    eventually(is_allowed, f"{case.name} is allowed", 15.0, every_s=0.5)
