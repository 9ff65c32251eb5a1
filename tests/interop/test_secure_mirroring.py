"""MirrorMaker between a Kafka and brokers with TLS and logins: records, groups and ACLs move."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import confluent_kafka as ck
import pytest

from sparklog.client.admin import Admin
from sparklog.security.acls import AclBinding, checked_binding
from tests.harness.waiting import eventually
from tests.interop.secure_cluster import (
    CERTIFICATE,
    SESSION_MS,
    SecureCluster,
    read_all,
    secure_cluster,
    send_paced,
)
from tests.interop.test_access_tools import GUARDED
from tests.interop.test_kafka_streams import running
from tests.peers.connect import MIRROR_MAKER, errors, mirroring, program
from tests.peers.jars import KAFKA_CONNECT
from tests.peers.kafka import KafkaCluster

pytestmark = [pytest.mark.soak, pytest.mark.timeout(400)]
READ, WRITE, ALL, ALLOW = 3, 4, 2, 3
RECORDS = 400
AGAIN_S = 4 * SESSION_MS // 1000
WITHIN_S = 150.0
At = tuple[str, dict[str, str] | None]
"""Bootstrap servers, and the settings of our own clients there."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    with secure_cluster(tmp_path_factory.mktemp("secure-mirror")) as running:
        yield running


@pytest.fixture(scope="module")
def guarded_kafka() -> Iterator[KafkaCluster]:
    with KafkaCluster(heap="256m", settings=GUARDED) as cluster:
        yield cluster


def acl(topic: str, user: str, operation: int) -> AclBinding:
    return checked_binding(2, topic, 3, f"User:{user}", "*", operation, ALLOW)


def acls_of(at: At, topic: str) -> set[AclBinding]:
    with Admin(at[0], settings=at[1]) as admin:
        return {one for one in admin.acls() if one.resource_name == topic}


def grouped(client: dict[str, str], topic: str, group: str) -> int:
    """Return the offset that a group has committed."""
    consumer = ck.Consumer({**client, "group.id": group})
    try:
        (place,) = consumer.committed([ck.TopicPartition(topic, 0)], WITHIN_S)
        return int(place.offset)
    finally:
        consumer.close()


def commit(client: dict[str, str], group: str, place: ck.TopicPartition) -> None:
    """Commit an offset of a group; again while Kafka still makes its topic of offsets."""
    consumer = ck.Consumer({**client, "group.id": group})

    def committed() -> bool:
        try:
            consumer.commit(offsets=[place], asynchronous=False)
        except ck.KafkaException as error:
            if error.args[0].name() != "NOT_COORDINATOR":
                raise
            return False
        return True

    eventually(committed, "the commit", WITHIN_S, every_s=1)
    consumer.close()


@pytest.mark.parametrize(
    ("mechanism", "to_brokers"),
    [
        ("SCRAM-SHA-512", True),
        ("SCRAM-SHA-512", False),
        ("OAUTHBEARER", True),
        (CERTIFICATE, True),
        (CERTIFICATE, False),
    ],
)
def test_records_groups_and_acls_move(
    guarded_kafka: KafkaCluster,
    cluster: SecureCluster,
    tmp_path: Path,
    mechanism: str,
    to_brokers: bool,
) -> None:
    """The group goes on at the new cluster; MirrorMaker logs in again meanwhile."""
    plain = {"bootstrap.servers": guarded_kafka.bootstrap}
    ours, own = cluster.librdkafka(), cluster.java("SCRAM-SHA-512")
    kafka, brokers = guarded_kafka.bootstrap, cluster.bootstrap(mechanism)
    old, new = (kafka, brokers) if to_brokers else (brokers, kafka)
    sender, receiver = (plain, ours) if to_brokers else (ours, plain)
    at_kafka, at_brokers = (kafka, None), (cluster.external, own)
    old_admin: At = at_kafka if to_brokers else at_brokers
    new_admin: At = at_brokers if to_brokers else at_kafka
    topic, again = f"t-{uuid4().hex[:6]}", cluster.logins_again(mechanism)
    group = f"readers-{topic}"
    with Admin(old_admin[0], settings=old_admin[1]) as admin:
        admin.create_topic(topic, 1)
        admin.create_acls({acl(topic, "a", READ), acl(topic, "b", WRITE), acl(topic, "c", ALL)})
    producer = ck.Producer(sender)
    for number in range(RECORDS // 2):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(WITHIN_S) == 0
    # At the end: MirrorMaker translates an offset before its newest sync only roughly.
    commit(sender, group, ck.TopicPartition(topic, 0, RECORDS // 2))
    side = "new" if to_brokers else "old"
    login = {f"{side}.{name}": text for name, text in cluster.java(mechanism).items()}
    settings = mirroring(old, new, [topic], group, login)
    settings |= {name: "1" for name in settings if name.endswith("replication.factor")}
    log = tmp_path / "mirror-maker.log"
    words = program(MIRROR_MAKER, settings, tmp_path)
    with running(KAFKA_CONNECT.class_path(), *cluster.jvm, *words, log=log):
        # MirrorMaker leaves out writes, and makes reads of everything.
        copied = {acl(topic, "a", READ), acl(topic, "c", READ)}
        eventually(lambda: acls_of(new_admin, topic) == copied, "ACLs", WITHIN_S, every_s=1)
        eventually(
            lambda: grouped(receiver, topic, group) == RECORDS // 2,
            "the group",
            WITHIN_S,
            every_s=1,
        )
        send_paced(sender, topic, [str(n) for n in range(RECORDS // 2, RECORDS)], AGAIN_S)
        eventually(
            lambda: len(read_all(receiver, topic, 0)) >= RECORDS,
            "the records",
            WITHIN_S,
            every_s=1,
        )
    assert errors(log) == []
    values = [value for _, value in read_all(receiver, topic, RECORDS)]
    assert values == [b"%d" % number for number in range(RECORDS)]
    assert mechanism == CERTIFICATE or cluster.logins_again(mechanism) - again >= 9
