"""A transaction that hangs for real: a batch comes after its end, and opens another one.

So Kafka's KIP-890 describes it. Brokers that verify transactions refuse such a batch.
"""

from __future__ import annotations

from datetime import timedelta

import confluent_kafka
import pyarrow as pa

from sparklog.client.addresses import BrokerAddress
from sparklog.client.admin import Admin
from sparklog.client.values import ActiveProducer
from sparklog.client.wire import WireConnection
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.errors import SparklogError
from sparklog.core.types import TopicPartition
from sparklog.protocol.api_keys import Api
from sparklog.protocol.records.columns import TIMESTAMP_TYPE
from sparklog.protocol.records.record_batch import BatchSettings, encode
from sparklog.testing.cluster import SparklogCluster
from tests.harness.plain_requests import codes_of, plain_request

FORGETFUL = {
    "transaction.partition.verification.enable": "false",
    "transactional.id.expiration.ms": "1000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "200",
}
"""Settings with which brokers take a late batch, and forget its producer within seconds."""


def leave_hanging(cluster: SparklogCluster, tp: TopicPartition) -> None:
    """Create a topic, commit a record `first` to it, and leave a record `late` hanging behind it.

    Their transactional id is `late-TOPIC`. The cluster is `FORGETFUL`.
    """
    cluster.topic(tp.topic)
    name = f"late-{tp.topic}"
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(tp.topic, b"first", partition=tp.partition)
    producer.commit_transaction(30)
    with Admin(cluster.bootstrap_servers) as admin:
        found = admin.transactions.producers([tp])[tp]
    assert not isinstance(found, SparklogError)
    _send_late_batch(cluster, tp, name, found[0])


def _send_late_batch(
    cluster: SparklogCluster, tp: TopicPartition, name: str, producer: ActiveProducer
) -> None:
    settings = BatchSettings(
        producer_id=producer.producer_id, producer_epoch=producer.producer_epoch,
        base_sequence=producer.last_sequence + 1, is_transactional=True,
    )  # fmt: skip
    rows = pa.RecordBatch.from_pydict(
        {
            "timestamp": pa.array([SYSTEM_CLOCK.now_ms()], TIMESTAMP_TYPE),
            "key": pa.array([None], pa.binary()),
            "value": pa.array([b"late"], pa.binary()),
        }
    )
    batch = bytes(encode(rows, settings, base_offset=0))
    request = plain_request(
        Api.PRODUCE, 9, transactional_id=name, acks=-1, timeout=timedelta(seconds=30),
        topic_data=[{
            "name": tp.topic,
            "partition_data": [{"index": tp.partition, "records": batch}],
        }],
    )  # fmt: skip
    host, port = cluster.address(cluster.leader(tp.topic, tp.partition)).split(":")
    with WireConnection(BrokerAddress(host, int(port))) as connection:
        assert codes_of(connection.call(request)) == [0]
