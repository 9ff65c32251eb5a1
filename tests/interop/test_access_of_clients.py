"""Real clients against brokers that obey ACLs: what they may do, until the ACL is gone.

Each client of a plain listener is `User:ANONYMOUS`. ACLs are created in the storage, as
`sparklog acls --root` does.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from uuid import uuid4

import confluent_kafka as ck
import pytest
from kio.schema.errors import ErrorCode

from sparklog.broker.runtime.identity import Ready
from sparklog.client.addresses import bootstrap_addresses
from sparklog.client.admin import Admin
from sparklog.client.consumer import Consumer
from sparklog.client.producer import Producer
from sparklog.client.values import EARLIEST
from sparklog.client.wire import WireConnection
from sparklog.cluster.log import Log, open_log
from sparklog.cluster.metadata.image import Broker
from sparklog.core.config.broker import STANDARD_AUTHORIZER
from sparklog.core.errors import (
    ClusterAuthorizationFailed,
    SaslAuthenticationFailed,
    SparklogError,
    TopicAlreadyExists,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from sparklog.core.topic_names import AUDIT_TOPIC
from sparklog.core.types import TopicPartition
from sparklog.protocol.api_keys import Api
from sparklog.security.acls import (
    ANY_NAME,
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from sparklog.security.principal import ANONYMOUS
from tests.harness.plain_requests import codes_of, plain_request
from tests.harness.replica_cluster import batch
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,LOGIN://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "sparklog.audit.level": "INFO",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
}
soon = partial(eventually, within_s=30)
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER


@dataclass(frozen=True)
class GuardedCluster:
    """Three brokers with topics `t` and `u`, and their log."""

    brokers: Brokers
    log: Log

    def grant(self, kind: ResourceType, name: str, *operations: AclOperation) -> None:
        self.log.create_acls(
            AclBinding(kind, name, PatternType.LITERAL, ANONYMOUS, "*", one, AclPermission.ALLOW)
            for one in operations
        )

    def revoke(self, kind: ResourceType, name: str) -> None:
        self.log.delete_acls([AclFilter(kind, name)])


@pytest.fixture(scope="module")
def cluster() -> Iterator[GuardedCluster]:
    root = f"memory://{uuid4()}"
    with open_log(root) as log:
        for name in ("t", "u"):
            log.create_topic(name)
        with Brokers(root, count=3, settings=SETTINGS) as brokers:
            yield GuardedCluster(brokers, log)


@pytest.fixture(autouse=True)
def no_rights(cluster: GuardedCluster) -> None:
    """Delete the ACLs of the test before."""
    cluster.log.delete_acls([AclFilter()])
    with Admin(cluster.brokers.bootstrap) as admin:
        soon(lambda: not admin.topic_names(), "no topic is seen")


def error_of(action: Callable[[], object]) -> type[SparklogError] | None:
    try:
        action()
    except SparklogError as error:
        return type(error)
    return None


def test_a_revoked_right_acts_on_an_open_connection(cluster: GuardedCluster) -> None:
    def leader() -> Ready | None:
        led = cluster.log.refresh().topics["t"].partition_states[0].leader
        return next((one for one in cluster.brokers.ready if one.broker_id == led), None)

    ready = soon(leader, "the partition has a leader")
    part = {"index": 0, "records": batch(b"x")}
    request = plain_request(
        Api.PRODUCE, 9, acks=-1, timeout=timedelta(seconds=10),
        topic_data=[{"name": "t", "partition_data": [part]}],
    )  # fmt: skip
    denied = [ErrorCode.topic_authorization_failed]
    (address,) = bootstrap_addresses(f"{ready.host}:{ready.port}")
    with WireConnection(address, 30.0) as connection:
        for _ in range(2):
            assert codes_of(connection.call(request)) == denied
            cluster.grant(TOPIC, "t", AclOperation.WRITE)
            soon(lambda: codes_of(connection.call(request)) == [0], "the client may write")
            cluster.revoke(TOPIC, "t")
            soon(lambda: codes_of(connection.call(request)) == denied, "it may not write")


def fail_to_log_in(broker: Broker) -> None:
    at = broker.at("LOGIN")
    assert at is not None
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "mallory",
        "sasl.password": "guess",
    }
    with (
        pytest.raises(SaslAuthenticationFailed),
        Admin(f"{at.host}:{at.port}", settings=login) as a,
    ):
        a.topic_names()


def test_all_brokers_write_denials_to_the_audit_topic(cluster: GuardedCluster) -> None:
    def produced(ready: Ready, topic: str) -> list[int]:
        (address,) = bootstrap_addresses(f"{ready.host}:{ready.port}")
        part = {"index": 0, "records": batch(b"x")}
        request = plain_request(
            Api.PRODUCE, 9, acks=-1, timeout=timedelta(seconds=10),
            topic_data=[{"name": topic, "partition_data": [part]}],
        )  # fmt: skip
        with WireConnection(address, 30.0) as connection:
            return codes_of(connection.call(request))

    name, brokers = f"denied-{uuid4().hex[:8]}", cluster.brokers.ready
    for broker in cluster.log.refresh().live_brokers():
        fail_to_log_in(broker)
    for ready in brokers:
        assert produced(ready, name) == [ErrorCode.topic_authorization_failed]
    cluster.grant(GROUP, ANY_NAME, AclOperation.READ)
    cluster.grant(TOPIC, ANY_NAME, AclOperation.ALL)
    with Admin(cluster.brokers.bootstrap) as admin:
        soon(lambda: "u" in admin.topic_names(), "the ACL acts")
        assert AUDIT_TOPIC not in admin.topic_names()
        cluster.grant(TOPIC, AUDIT_TOPIC, AclOperation.READ, AclOperation.WRITE)
        soon(lambda: AUDIT_TOPIC in admin.topic_names(), "the topic is seen")
    found: set[int] = set()
    failed: dict[int, int] = {}

    def all_read() -> bool:
        for record in consumer.poll():
            event = json.loads(record.value or b"")
            if event["event"] == "FAILED_LOGIN":
                assert (event["listener"], event["mechanism"]) == ("LOGIN", "SCRAM-SHA-512")
                assert "user='mallory'" in event["reason"]
                failed[event["broker_id"]] = event["failures"]
            elif event["resource_name"] == name:
                assert record.key == b"User:ANONYMOUS"
                assert (event["operation"], event["allowed"]) == ("WRITE", False)
                found.add(event["broker_id"])
        return found == set(failed) == {ready.broker_id for ready in brokers}

    with Consumer(cluster.brokers.bootstrap) as consumer:
        consumer.assign({TopicPartition(AUDIT_TOPIC, 0): EARLIEST})
        soon(all_read, "the records of all brokers are read")
    assert set(failed.values()) == {1}
    for ready in brokers:
        assert produced(ready, AUDIT_TOPIC) == [ErrorCode.invalid_topic_exception]


def test_administrators_need_rights_on_the_cluster(cluster: GuardedCluster) -> None:
    with Admin(cluster.brokers.bootstrap) as admin:

        def create() -> None:
            admin.create_topic("new", partitions=1)

        assert error_of(create) is TopicAuthorizationFailed
        assert error_of(lambda: admin.topic("t")) in (
            TopicAuthorizationFailed, UnknownTopicOrPartition,
        )  # fmt: skip
        assert error_of(admin.client_quotas) is ClusterAuthorizationFailed
        cluster.grant(TOPIC, "new", AclOperation.CREATE, AclOperation.DESCRIBE)
        cluster.grant(CLUSTER, CLUSTER_NAME, AclOperation.DESCRIBE_CONFIGS)
        created = (None, TopicAlreadyExists)  # a broker that lags may hide the first success
        soon(lambda: error_of(create) in created, "the topic is created")
        assert admin.topic_names() == ["new"]
        assert admin.client_quotas() == {}
        assert error_of(lambda: admin.delete_topic("new")) is TopicAuthorizationFailed
        cluster.grant(TOPIC, "new", AclOperation.DELETE)
        soon(lambda: error_of(lambda: admin.delete_topic("new")) is None, "it is deleted")


def test_a_group_and_a_transaction_work_with_exactly_their_rights(cluster: GuardedCluster) -> None:
    cluster.grant(TOPIC, "t", AclOperation.READ, AclOperation.WRITE)
    cluster.grant(GROUP, "g", AclOperation.READ)
    cluster.grant(ResourceType.TRANSACTIONAL_ID, "x", AclOperation.WRITE)
    with Admin(cluster.brokers.bootstrap) as admin:
        soon(lambda: admin.topic_names() == ["t"], "the topic is seen")
    producer = ck.Producer(
        {"bootstrap.servers": cluster.brokers.bootstrap, "transactional.id": "x"}
    )
    producer.init_transactions(30)
    consumer = ck.Consumer({
        "bootstrap.servers": cluster.brokers.bootstrap, "group.id": "g",
        "auto.offset.reset": "earliest", "isolation.level": "read_committed",
    })  # fmt: skip
    consumer.subscribe(["t"])
    value = uuid4().bytes
    producer.begin_transaction()
    producer.produce("t", value)
    producer.commit_transaction(30)
    found: list[bytes | None] = []

    def reads() -> bool:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(message.value())
        return value in found

    soon(reads, "the record is read")
    producer.begin_transaction()
    positions = [ck.TopicPartition("t", 0, 1)]
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 30)
    producer.commit_transaction(30)
    consumer.commit(asynchronous=False)
    consumer.close()


def test_the_consumer_protocol_hides_topics_from_a_pattern(cluster: GuardedCluster) -> None:
    cluster.grant(TOPIC, "t", AclOperation.READ)
    cluster.grant(GROUP, "p", AclOperation.READ)
    with Admin(cluster.brokers.bootstrap) as admin:
        soon(lambda: admin.topic_names() == ["t"], "the topic is seen")
    consumer = ck.Consumer({
        "bootstrap.servers": cluster.brokers.bootstrap, "group.id": "p",
        "group.protocol": "consumer",
    })  # fmt: skip
    consumer.subscribe(["^[tu]$"])

    def topics() -> set[str]:
        consumer.poll(0.2)
        return {one.topic for one in consumer.assignment()}

    soon(lambda: topics() == {"t"}, "the visible topic is assigned")
    consumer.close()


class Successes(threading.Thread):
    """Repeats an action until its right is gone or `end`, and knows when it succeeded last."""

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._action = action
        self._ended = threading.Event()
        self.count = 0
        self.last_s = 0.0
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            while not self._ended.is_set():
                if self._action():
                    self.last_s = time.monotonic()
                    self.count += 1
        except Exception as error:
            self.error = error

    def end(self) -> None:
        """Stop after the action under way."""
        self._ended.set()
        self.join(60)

    def has_begun(self) -> bool:
        """Return whether some actions succeeded; fails if one did not."""
        assert self.error is None, self.error
        return self.count > 20


def knows_u(admin: Admin) -> bool:
    return admin.topic_names() == ["u"]


def test_a_revoked_acl_stops_live_clients_within_a_second(cluster: GuardedCluster) -> None:
    cluster.grant(TOPIC, "u", AclOperation.READ, AclOperation.WRITE)
    cluster.grant(GROUP, ANY_NAME, AclOperation.READ)  # librdkafka finds a coordinator in any case
    cluster.grant(CLUSTER, CLUSTER_NAME, AclOperation.ALTER)
    bootstrap = cluster.brokers.bootstrap
    for address in bootstrap.split(","):
        with Admin(address) as one_broker:
            soon(partial(knows_u, one_broker), f"{address} knows the rights")
    with (
        Admin(bootstrap) as admin,
        Producer(bootstrap) as producer,
        Consumer(bootstrap) as consumer,
    ):
        soon(lambda: error_of(admin.acls) is None, "the client may change ACLs")
        consumer.assign({TopicPartition("u", 0): EARLIEST})
        live = [
            Successes(lambda: producer.send("u", b"x").result(30)),
            Successes(consumer.poll),
        ]
        try:
            soon(lambda: all(one.has_begun() for one in live), "records flow")
            admin.delete_acls([AclFilter(TOPIC, "u")])
            revoked_s = time.monotonic()
            for one in live:
                one.join(30)
        finally:
            for one in live:
                one.end()
        for one in live:
            assert isinstance(one.error, TopicAuthorizationFailed)
            assert one.last_s - revoked_s < 1.0
        with pytest.raises(TopicAuthorizationFailed):
            producer.flush()
