"""MirrorMaker copies ACLs of topics between a Kafka and brokers, both with an authorizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from sparklog.client.admin import Admin
from sparklog.security.acls import AclBinding, checked_binding
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers
from tests.interop.test_access_tools import GUARDED
from tests.interop.test_kafka_streams import running
from tests.peers.connect import MIRROR_MAKER, errors, mirroring, program
from tests.peers.jars import KAFKA_CONNECT
from tests.peers.kafka import KafkaCluster

pytestmark = pytest.mark.soak
ALL, READ, WRITE, DESCRIBE = 2, 3, 4, 8
DENY, ALLOW = 2, 3
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


@pytest.fixture(scope="module")
def guarded_brokers() -> Iterator[Brokers]:
    with Brokers(f"memory://{uuid4()}", settings=GUARDED | QUICK) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def guarded_kafka() -> Iterator[KafkaCluster]:
    with KafkaCluster(heap="256m", settings=GUARDED) as cluster:
        yield cluster


@pytest.mark.parametrize("to_brokers", [True, False], ids=["to brokers", "from brokers"])
def test_acls_of_a_topic_are_copied_without_writes(
    guarded_kafka: KafkaCluster, guarded_brokers: Brokers, tmp_path: Path, to_brokers: bool
) -> None:
    old, new = guarded_kafka.bootstrap, guarded_brokers.bootstrap
    if not to_brokers:
        old, new = new, old
    topic = f"t-{uuid4().hex[:6]}"

    def acl(user: str, operation: int, permission: int = ALLOW) -> AclBinding:
        return checked_binding(2, topic, 3, f"User:{user}", "*", operation, permission)

    def of_topic(bootstrap: str) -> set[AclBinding]:
        with Admin(bootstrap) as admin:
            return {one for one in admin.acls() if one.resource_name == topic}

    given = {acl("a", READ), acl("b", WRITE), acl("c", ALL), acl("d", DESCRIBE, DENY)}
    with Admin(old) as admin:
        admin.create_topic(topic, 1)
        admin.create_acls(given)
    log = tmp_path / "mirror-maker.log"
    settings = mirroring(old, new, [topic], "nobody")
    settings |= {name: "1" for name in settings if name.endswith("replication.factor")}
    with running(KAFKA_CONNECT.class_path(), *program(MIRROR_MAKER, settings, tmp_path), log=log):
        # MirrorMaker leaves out writes, and makes reads of everything.
        copied = {acl("a", READ), acl("c", READ), acl("d", DESCRIBE, DENY)}
        eventually(lambda: of_topic(new) == copied, "the ACLs", 150.0, every_s=1)
    assert errors(log) == []
    assert of_topic(old) == given
