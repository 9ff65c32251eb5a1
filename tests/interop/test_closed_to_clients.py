"""Real brokers reject what only the cluster may do: raw requests try each of it."""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import confluent_kafka.admin
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from kio.schema.errors import ErrorCode

import sparklog
from sparklog.broker.network.broker_client import TcpNetwork
from sparklog.broker.network.cluster_secret import client_id
from sparklog.broker.runtime.environment import Address
from sparklog.core.topic_names import JOBS_TOPIC
from sparklog.log.segment.segment import Reference
from sparklog.log.tail.references import ReferenceBatch, encode_references
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part
from tests.harness import handler_requests
from tests.harness.replica_cluster import batch
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers
from tests.interop.test_transactions import SETTINGS, made, read, transactional, write

rd: Any = confluent_kafka.admin
REFUSED = ErrorCode.cluster_authorization_failed
CLOSED = ErrorCode.invalid_topic_exception
ANSWER_S = 30.0


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    settings = {**SETTINGS, "metrics.port": "0"}
    with Brokers(f"memory://{uuid4()}", count=2, settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def admin(brokers: Brokers) -> Any:
    return rd.AdminClient({"bootstrap.servers": brokers.bootstrap})


def ask(address: Address, request: Any, named: str = "broker-2") -> Any:
    """Return what a broker answers a client of this name, which is one that brokers have."""

    async def call() -> Any:
        network = TcpNetwork(named)
        try:
            return await network.call(address, request, timeout_s=ANSWER_S)
        finally:
            await network.close()

    return asyncio.run(call())


def leader(admin: Any, topic: str) -> Address:
    """Return the address of the broker that leads partition 0, once it answers as the leader.

    One broker's metadata names the leader before that leader has taken the partition over.
    """
    return eventually(lambda: _leading(admin, topic), f"{topic} is led")


def _leading(admin: Any, topic: str) -> Address | None:
    found = admin.list_topics(topic, timeout=ANSWER_S)
    partitions = found.topics[topic].partitions
    named = found.brokers.get(partitions[0].leader) if partitions else None
    if named is None:
        return None
    address = Address(named.host, named.port)
    return address if latest_offset(address, topic).error_code is ErrorCode.none else None


def latest_offset(at: Address, topic: str) -> Any:
    """Return what this broker answers for the latest offset of partition 0."""
    answer = ask(at, handler_requests.list_offsets(topic, (0, -1)))
    ((part,),) = [one.partitions for one in answer.topics]
    return part


def end_offset(at: Address, topic: str) -> int:
    part = latest_offset(at, topic)
    assert part.error_code is ErrorCode.none
    return int(part.offset)


def produced(answer: Any) -> ErrorCode:
    ((part,),) = [topic.partition_responses for topic in answer.responses]
    return ErrorCode(part.error_code)


def pages(brokers: Brokers) -> str:
    """Return the metrics of all brokers."""
    urls = [f"http://127.0.0.1:{one.metrics_port}/metrics" for one in brokers.ready]
    return "".join(urllib.request.urlopen(url).read().decode() for url in urls)


def refusals(brokers: Brokers) -> float:
    name = "sparklog_refused_broker_calls_total "
    lines = pages(brokers).splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def test_client_is_rejected_for_requests_of_brokers(brokers: Brokers, admin: Any) -> None:
    topic = made(brokers.bootstrap, 1)
    at = leader(admin, topic)
    before = refusals(brokers)
    asked = [
        handler_requests.fetch(topic, (0, 0), replica_id=2),
        handler_requests.broker_heartbeat(2, 1),
        handler_requests.add_partitions_for(topic, "tx"),
    ]
    for request in asked:
        assert ask(at, request).error_code is REFUSED
    for name, is_commit in ((topic, True), ("__consumer_offsets", False)):
        marker = handler_requests.write_txn_marker(name, 0, is_commit=is_commit)
        assert handler_requests.marked_codes(ask(at, marker)) == [REFUSED]
    assert refusals(brokers) == before + 5


def test_brokers_are_refused_nothing_while_clients_use_transactions(brokers: Brokers) -> None:
    before = refusals(brokers)
    source = made(brokers.bootstrap)
    producer = transactional(brokers.bootstrap, f"tx-{uuid4()}")
    producer.begin_transaction()
    write(producer, source, *map(str, range(20)))
    offsets = [TopicPartition(source, 0, 3)]
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": brokers.bootstrap, "group.id": f"g-{uuid4()}"}
    )
    producer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata())
    producer.commit_transaction()
    assert reader.committed(offsets, ANSWER_S)[0].offset == 3
    reader.close()
    assert sorted(map(int, read(brokers.bootstrap, source))) == list(range(20))
    assert refusals(brokers) == before


def test_a_client_aborts_a_hanging_transaction_by_a_marker(brokers: Brokers, admin: Any) -> None:
    """As `kafka-transactions.sh abort` does."""
    topic = made(brokers.bootstrap, 1)
    producer = transactional(brokers.bootstrap, f"tx-{uuid4()}")
    producer.begin_transaction()
    write(producer, topic, "stuck", partitions=1)
    at = leader(admin, topic)
    part = build_request_part(
        Api.DESCRIBE_PRODUCERS, 0, "TopicRequest", name=topic, partition_indexes=(0,)
    )
    described = ask(at, build_request(Api.DESCRIBE_PRODUCERS, 0, topics=(part,)))
    (one,) = described.topics[0].partitions[0].active_producers
    identity = (int(one.producer_id), int(one.producer_epoch))
    abort = handler_requests.write_txn_marker(topic, 0, producer=identity)
    assert handler_requests.marked_codes(ask(at, abort)) == [ErrorCode.none]
    described = ask(at, build_request(Api.DESCRIBE_PRODUCERS, 0, topics=(part,)))
    assert described.topics[0].partitions[0].active_producers[0].current_txn_start_offset == -1


def test_no_response_to_a_client_contains_the_cluster_secret(brokers: Brokers, admin: Any) -> None:
    with sparklog.open_log(brokers.root) as log:
        image = log.refresh()
    secret = image.cluster_secret
    assert len(secret) == 32
    told = [pages(brokers)]
    for ready in brokers.ready:
        at = Address(ready.host, ready.port)
        own = client_id(ready.broker_id, secret, at)
        asked = [
            handler_requests.metadata(None),
            handler_requests.describe_configs(4, str(ready.broker_id)),
            build_request(
                Api.API_VERSIONS, 3, client_software_name="c", client_software_version="1"
            ),
            build_request(Api.DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=True),
            build_request(Api.DESCRIBE_LOG_DIRS, 1, topics=None),
            build_request(Api.LIST_GROUPS, 4, states_filter=()),
            handler_requests.fetch("__cluster_metadata", (0, 0)),
        ]
        told += [repr(ask(at, request)) for request in asked]
        assert ask(at, handler_requests.broker_heartbeat(2, 1), own).error_code is not REFUSED
    secrets = [secret, *(client_id(0, secret, Address(r.host, r.port))[9:] for r in brokers.ready)]
    for one in secrets:
        assert not [text for text in told if one in text]
    assert "UNKNOWN_TOPIC" in told[-1].upper()


def test_a_reference_batch_names_no_place_but_its_own(brokers: Brokers, admin: Any) -> None:
    topic, other = made(brokers.bootstrap, 1), made(brokers.bootstrap, 1)
    write(
        confluent_kafka.Producer({"bootstrap.servers": brokers.bootstrap}), other, "x", partitions=1
    )
    at = leader(admin, topic)
    before = end_offset(at, topic)
    own = "a" * 32  # a staged object of its own that does not exist
    for nonce in ("../../../wal/1", f"../../{other}/0/staged/{own}", own[:31] + "/", own):
        named = Reference(f"staged/{nonce}.arrow", 0, 1, 1, 100, nonce, 5, 5)
        data = encode_references(ReferenceBatch((named,)))
        answer = ask(at, handler_requests.produce(topic, (0, data)))
        assert produced(answer) is ErrorCode.invalid_record
    assert end_offset(at, topic) == before


def test_a_forged_record_of_the_job_history_is_rejected(brokers: Brokers, admin: Any) -> None:
    with sparklog.open_log(brokers.root) as log:
        log.create_topic(JOBS_TOPIC, 1, {}, by_cluster=True)
    at = leader(admin, JOBS_TOPIC)
    before = end_offset(at, JOBS_TOPIC)
    far_ms = (int(time.time()) + 10**6) * 1000
    forged = batch(b'{"job": "x", "heard_ms": %d}' % far_ms, b'{"arguments": ["--root", "/etc"]}')
    assert produced(ask(at, handler_requests.produce(JOBS_TOPIC, (0, forged)))) is CLOSED
    nowhere = Reference(f"staged/{'b' * 32}.arrow", 0, 1, 1, 100, "b" * 32, 5, 5)
    staged = encode_references(ReferenceBatch((nowhere,)))
    assert (
        produced(ask(at, handler_requests.produce(JOBS_TOPIC, (0, staged))))
        is ErrorCode.invalid_record
    )
    assert end_offset(at, JOBS_TOPIC) == before


def test_client_can_neither_empty_nor_create_internal_topics(brokers: Brokers, admin: Any) -> None:
    group = f"g-{uuid4()}"
    topic = made(brokers.bootstrap, 1)

    def is_kept() -> bool:  # once the coordinator is loaded
        kept = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 7)])
        (told,) = (
            admin.alter_consumer_group_offsets([kept])[group].result(ANSWER_S).topic_partitions
        )
        return told.error is None

    eventually(is_kept, "the offset is committed")
    at = leader(admin, "__consumer_offsets")
    api = Api.DELETE_RECORDS
    part = build_request_part(api, 2, "DeleteRecordsPartition", partition_index=0, offset=-1)
    named = build_request_part(
        api, 2, "DeleteRecordsTopic", name="__consumer_offsets", partitions=(part,)
    )
    answer = ask(at, build_request(api, 2, topics=(named,), timeout=timedelta(seconds=5)))
    assert answer.topics[0].partitions[0].error_code is CLOSED
    (deleted,) = ask(at, handler_requests.delete_topics("__consumer_offsets")).responses
    assert deleted.error_code is CLOSED
    (created,) = ask(at, handler_requests.create_topics("__cluster_metadata")).topics
    assert created.error_code is CLOSED
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    found = admin.list_consumer_group_offsets([asked])[group].result(ANSWER_S)
    assert found.topic_partitions[0].offset == 7
