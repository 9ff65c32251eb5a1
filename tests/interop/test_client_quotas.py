"""Clients' quotas: Kafka's own tool sets them in the same words as in Kafka, and clients wait."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import confluent_kafka as ck
import pytest

import sparklog
from sparklog.broker.runtime.environment import Address
from sparklog.client.addresses import bootstrap_addresses
from sparklog.client.admin import Admin
from sparklog.core.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    entity_of,
)
from tests.harness import handler_requests
from tests.harness.plain_requests import codes_of
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers
from tests.interop.test_closed_to_clients import ask
from tests.peers.kafka import KafkaCluster
from tests.peers.kafka_tools import KafkaTools, ToolFailed

CONFIGS = "ConfigCommand"
ACLS = "AclCommand"
RATE = 200_000
RECORD = b"x" * 10_000
RECORDS = 80
WAIT_S = 120.0
PASSWORD = "wonder land"


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    # One second's worth may be used at once, so that tests need not wait for ten.
    with Brokers(f"memory://{uuid4()}", settings={"quota.window.num": "2"}) as cluster:
        yield cluster


def test_kafkas_tool_prints_the_same_for_both(brokers: Brokers, kafka: KafkaCluster) -> None:
    def conversation(tool: KafkaTools) -> list[list[str]]:
        rates = (
            "producer_byte_rate=1024,consumer_byte_rate=2048,controller_mutation_rate=0.5,"
            "request_percentage=12.5"
        )
        one = ("--entity-type", "clients", "--entity-name", "a")
        default = ("--entity-type", "clients", "--entity-default")
        both = ("--entity-type", "users", "--entity-name", "u", *one)
        return [
            tool(CONFIGS, "--alter", *one, "--add-config", rates),
            tool(CONFIGS, "--alter", *default, "--add-config", "consumer_byte_rate=4096"),
            tool(CONFIGS, "--alter", *both, "--add-config", "producer_byte_rate=512"),
            tool(CONFIGS, "--describe", *one),
            tool(CONFIGS, "--describe", *both),
            tool(CONFIGS, "--describe", "--entity-type", "users"),
            tool(CONFIGS, "--describe", "--entity-type", "users", "--entity-name", "nobody"),
            tool(CONFIGS, "--describe", "--entity-type", "client-metrics"),
            sorted(tool(CONFIGS, "--describe", "--entity-type", "clients")),
            tool(CONFIGS, "--alter", *both, "--delete-config", "producer_byte_rate"),
            tool(CONFIGS, "--alter", *default, "--delete-config", "consumer_byte_rate"),
            tool(
                CONFIGS,
                "--alter",
                *one,
                "--delete-config",
                "producer_byte_rate,controller_mutation_rate,request_percentage",
            ),
            tool(CONFIGS, "--describe", *one),
        ]

    told = conversation(KafkaTools(brokers.bootstrap))
    assert told == conversation(KafkaTools(kafka.bootstrap))
    for rate in ("producer_byte_rate=1024.0", "controller_mutation_rate=0.5", "percentage=12.5"):
        assert any(rate in line for line in told[3])
    with Admin(brokers.bootstrap) as ours, Admin(kafka.bootstrap) as theirs:
        left = {entity_of({"client-id": "a"}): {CONSUMER_BYTE_RATE: 2048.0}}
        assert ours.client_quotas() == theirs.client_quotas() == left
        for admin in (ours, theirs):
            admin.alter_client_quotas({"client-id": "a"}, {CONSUMER_BYTE_RATE: None})
        # Each broker describes its own image of the metadata log, here as in Kafka.
        eventually(lambda: not ours.client_quotas() and not theirs.client_quotas(), "no quota")


def busy_s(bootstrap: str) -> list[float]:
    """Return throttle times: of a client over its quota of time, of another, without a quota."""
    name, at = f"p-{uuid4().hex[:8]}", bootstrap_addresses(bootstrap)[0]
    entity = {"client-id": name}

    def said(named: str) -> float:
        answer = ask(Address(at.host, at.port), handler_requests.metadata(None), named)
        seconds: float = answer.throttle_time.total_seconds()
        return seconds

    with Admin(bootstrap) as admin:
        admin.alter_client_quotas(entity, {REQUEST_PERCENTAGE: 0.001})
        eventually(lambda: said(name) > 0.0, "the client is over its quota")
        throttled = [said(name) for _ in range(5)]
        other = said("other")
        admin.alter_client_quotas(entity, {REQUEST_PERCENTAGE: None})
        eventually(lambda: said(name) == 0.0, "the quota is gone")
    return [*throttled, other]


def test_a_busy_client_waits_for_one_window_at_most_as_in_kafka(
    brokers: Brokers, kafka: KafkaCluster
) -> None:
    window_s = 1.0
    for bootstrap in (kafka.bootstrap, brokers.bootstrap):
        *throttled, other = busy_s(bootstrap)
        assert throttled == [window_s] * 5
        assert other == 0.0


def changed(bootstrap: str) -> list[tuple[int, float]]:
    """Change topics under a quota of 0.5; return the code and the throttle time of each answer."""
    name, at = f"m-{uuid4().hex[:8]}", bootstrap_addresses(bootstrap)[0]
    entity, quota = {"client-id": name}, {CONTROLLER_MUTATION_RATE: 0.5}
    with Admin(bootstrap) as admin:
        admin.alter_client_quotas(entity, quota)
        eventually(
            lambda: admin.client_quotas().get(entity_of(entity)) == quota, "the quota is known"
        )

    def said(request: Any) -> tuple[int, float]:
        answer = ask(Address(at.host, at.port), request, name)
        return max(codes_of(answer)), answer.throttle_time.total_seconds()

    create = handler_requests.create_topics
    said_of = [
        said(create(f"{name}-a", partitions=5)),
        said(create(f"{name}-b", partitions=2)),
        said(create(f"{name}-c")),
        said(create(f"{name}-c", validate_only=True)),
        said(create(f"{name}-b")),
        said(handler_requests.create_partitions(f"{name}-a", 6)),
        said(handler_requests.delete_topics(f"{name}-a")),
        said(create(f"{name}-d", version=5)),
        said(handler_requests.delete_topics(f"{name}-d", version=4)),
    ]
    with Admin(bootstrap) as admin:
        admin.alter_client_quotas(entity, {CONTROLLER_MUTATION_RATE: None})
        for topic in ("a", "b"):
            admin.delete_topic(f"{name}-{topic}")
    return said_of


def test_changes_over_the_quota_get_kafkas_answers(brokers: Brokers, kafka: KafkaCluster) -> None:
    ours, theirs = changed(brokers.bootstrap), changed(kafka.bootstrap)
    over, exists = 89, 36
    assert [code for code, _ in theirs] == [0, 0, over, over, exists, over, over, 0, 0]
    assert [code for code, _ in ours] == [code for code, _ in theirs]
    for (code, own_s), (_, their_s) in zip(ours, theirs, strict=True):
        # The second that requests to a busy Kafka take pays for half a partition.
        assert own_s == pytest.approx(their_s, abs=2.5), (code, ours, theirs)
        assert bool(own_s) == bool(their_s)


def test_kafkas_tool_gets_kafkas_error_without_acls(brokers: Brokers, kafka: KafkaCluster) -> None:
    for bootstrap in (brokers.bootstrap, kafka.bootstrap):
        with pytest.raises(ToolFailed, match="SecurityDisabledException"):
            KafkaTools(bootstrap)(ACLS, "--list")
        with pytest.raises(ToolFailed, match="SecurityDisabledException"):
            KafkaTools(bootstrap)(
                ACLS, "--add", "--allow-principal", "User:u", "--operation", "Read", "--topic", "t"
            )


def test_producer_and_consumer_reach_exactly_their_quotas(brokers: Brokers) -> None:
    topic, name = f"t-{uuid4().hex[:8]}", f"c-{uuid4().hex[:8]}"
    throttled: list[float] = []
    client = {
        "bootstrap.servers": brokers.bootstrap,
        "client.id": name,
        "throttle_cb": lambda event: throttled.append(event.throttle_time),
    }
    least_s = (RECORDS * len(RECORD) - RATE) / RATE
    with Admin(brokers.bootstrap) as admin:
        admin.create_topic(topic)
        admin.alter_client_quotas(
            {"client-id": name}, {PRODUCER_BYTE_RATE: RATE, CONSUMER_BYTE_RATE: RATE}
        )
    producer = ck.Producer({**client, "linger.ms": 0, "batch.size": 2 * len(RECORD)})
    began_s = time.monotonic()
    for _ in range(RECORDS):
        producer.produce(topic, RECORD)
    assert producer.flush(WAIT_S) == 0
    # All concurrent requests get an answer at once; the next request waits for their cost.
    producer.produce(topic, RECORD)
    assert producer.flush(WAIT_S) == 0
    assert time.monotonic() - began_s >= least_s * 0.8
    assert throttled

    throttled.clear()
    consumer = ck.Consumer({**client, "group.id": name, "auto.offset.reset": "earliest",
                            "fetch.message.max.bytes": 2 * len(RECORD)})  # fmt: skip
    consumer.assign([ck.TopicPartition(topic, 0, ck.OFFSET_BEGINNING)])
    began_s, read = time.monotonic(), 0
    while read < RECORDS:
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert message.error() is None
        read += 1
    assert time.monotonic() - began_s >= least_s * 0.8
    consumer.poll(0)
    consumer.close()
    assert throttled


def test_javas_producer_waits_as_well(brokers: Brokers) -> None:
    tool, topic, name = (
        KafkaTools(brokers.bootstrap),
        f"t-{uuid4().hex[:8]}",
        f"j-{uuid4().hex[:8]}",
    )
    with Admin(brokers.bootstrap) as admin:
        admin.create_topic(topic)
        admin.alter_client_quotas({"client-id": name}, {PRODUCER_BYTE_RATE: RATE})
    done = tool(
        "ProducerPerformance", "--topic", topic, "--num-records", str(RECORDS),
        "--record-size", str(len(RECORD)), "--throughput", "-1", "--print-metrics",
        "--command-property", f"client.id={name}",
    )  # fmt: skip
    (most_ms,) = [
        float(line.rsplit(":", 1)[1])
        for line in done
        if re.match(r"producer-metrics:produce-throttle-time-max:", line)
    ]
    assert most_ms > 0


@dataclass(frozen=True)
class LoginBroker:
    """A broker with a plain listener for tools, and one on which users log in."""

    bootstrap: str
    external: str
    """The listener with logins."""

    def client(self, user: str, client_id: str, throttled: list[float]) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.external,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": user,
            "sasl.password": PASSWORD,
            "client.id": client_id,
            "linger.ms": 0,
            "batch.size": 2 * len(RECORD),
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }


@pytest.fixture(scope="module")
def login_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginBroker]:
    root = f"file://{tmp_path_factory.mktemp('logins')}/log"
    with sparklog.open_log(root) as log:
        for user in ("alice", "bob"):
            log.set_password(user, PASSWORD)
    settings = {
        "listeners": "INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0",
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:SASL_PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "quota.window.num": "2",
    }
    with Brokers(root, settings=settings) as brokers, sparklog.open_log(root) as log:
        (found,) = [broker.at("EXTERNAL") for broker in log.refresh().live_brokers()]
        assert found is not None
        yield LoginBroker(brokers.bootstrap, f"{found.host}:{found.port}")


def produce_s(broker: LoginBroker, topic: str, user: str, client_id: str) -> tuple[float, bool]:
    """Produce `RECORDS` and return the seconds that took, and whether the client was throttled."""
    throttled: list[float] = []
    producer = ck.Producer(broker.client(user, client_id, throttled))
    began_s = time.monotonic()
    for count in (RECORDS, 1):
        # All concurrent requests get an answer at once; the next request waits for their cost.
        for _ in range(count):
            producer.produce(topic, RECORD)
        assert producer.flush(WAIT_S) == 0
    return time.monotonic() - began_s, any(time > 0 for time in throttled)


def test_quota_of_a_user_throttles_its_logins_only(login_broker: LoginBroker) -> None:
    topic, tool = f"t-{uuid4().hex[:8]}", KafkaTools(login_broker.bootstrap)
    alice = ("--entity-type", "users", "--entity-name", "alice")
    tool(CONFIGS, "--alter", *alice, "--add-config", f"producer_byte_rate={RATE}")
    with Admin(login_broker.bootstrap) as admin:
        admin.create_topic(topic)
    least_s = (RECORDS * len(RECORD) - RATE) / RATE
    took_s, was_throttled = produce_s(login_broker, topic, "alice", "c")
    assert took_s >= least_s * 0.8
    assert was_throttled
    assert not produce_s(login_broker, topic, "bob", "c")[1]
    # A quota of the pair comes before the one of the user.
    pair = (*alice, "--entity-type", "clients", "--entity-name", "fast")
    tool(CONFIGS, "--alter", *pair, "--add-config", "producer_byte_rate=1000000000")
    assert not produce_s(login_broker, topic, "alice", "fast")[1]
    assert produce_s(login_broker, topic, "alice", "other")[1]


def test_kafkas_tool_sets_quotas_of_users_and_addresses_alike(
    login_broker: LoginBroker, kafka: KafkaCluster
) -> None:
    def conversation(tool: KafkaTools) -> list[list[str]]:
        address = ("--entity-type", "ips", "--entity-name", "10.0.0.1")
        addresses = ("--entity-type", "ips", "--entity-default")
        users = ("--entity-type", "users", "--entity-default")
        pair = (*users, "--entity-type", "clients", "--entity-default")
        rate, bytes_rate = "connection_creation_rate", "producer_byte_rate"
        return [
            tool(CONFIGS, "--alter", *address, "--add-config", f"{rate}=20"),
            tool(CONFIGS, "--alter", *addresses, "--add-config", f"{rate}=100"),
            tool(CONFIGS, "--alter", *pair, "--add-config", f"{bytes_rate}=1000000"),
            tool(CONFIGS, "--describe", *address),
            sorted(tool(CONFIGS, "--describe", "--entity-type", "ips")),
            tool(CONFIGS, "--describe", *pair),
            tool(CONFIGS, "--alter", *address, "--delete-config", rate),
            tool(CONFIGS, "--alter", *addresses, "--delete-config", rate),
            tool(CONFIGS, "--alter", *pair, "--delete-config", bytes_rate),
            tool(CONFIGS, "--describe", "--entity-type", "ips"),
        ]

    ours = conversation(KafkaTools(login_broker.bootstrap))
    assert ours == conversation(KafkaTools(kafka.bootstrap))
    assert any("connection_creation_rate=20.0" in line for line in ours[3])


def left_open(address: str, count: int) -> int:
    """Open connections at once; return how many are still open after two windows of a quota."""
    host, port = address.rsplit(":", 1)
    opened = [socket.create_connection((host, int(port))) for _ in range(count)]
    time.sleep(2.0)  # two windows of the quota have to pass
    open_still = 0
    for one in opened:
        one.setblocking(False)
        try:
            assert one.recv(1) == b""
        except BlockingIOError:
            open_still += 1
        one.close()
    return open_still


def test_quota_of_an_address_limits_its_new_connections(login_broker: LoginBroker) -> None:
    local = {"ip": "127.0.0.1"}
    with Admin(login_broker.bootstrap) as admin:
        admin.alter_client_quotas(local, {CONNECTION_CREATION_RATE: 2.0})
        # Two at once, and one for each half of a second that the connections take.
        assert 2 <= left_open(login_broker.external, 8) <= 4
        # The brokers' listener beside it has no such quota.
        assert left_open(login_broker.bootstrap, 8) == 8
        admin.alter_client_quotas(local, {CONNECTION_CREATION_RATE: None})
        assert left_open(login_broker.external, 8) == 8
