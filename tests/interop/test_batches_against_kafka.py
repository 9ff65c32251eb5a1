"""Record batches as odd clients write them: brokers take and refuse what a real Kafka does.

The accepted batches are then read from the stored segments, and by librdkafka. Kafka answers some
batches that it cannot decompress with UNKNOWN_SERVER_ERROR; brokers say INVALID_RECORD, which
clients treat alike.
"""

from __future__ import annotations

import gzip
from collections.abc import Collection, Iterator
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import confluent_kafka
import confluent_kafka.admin
import pyarrow as pa
import pytest

import sparklog
from sparklog.client.addresses import BrokerAddress, bootstrap_addresses
from sparklog.client.connections import BrokerConnections as Asked
from sparklog.client.connections import RequestDraft
from sparklog.protocol.api_keys import Api
from sparklog.protocol.records.compression import compress
from sparklog.protocol.records.record_batch import Codec, decode
from tests.harness.waiting import eventually
from tests.harness.wire_batches import raw_batch, record, zigzag
from tests.interop.brokers import Brokers
from tests.peers.kafka import KafkaCluster

rd: Any = confluent_kafka.admin
"""librdkafka's admin API, which ships no types."""
DEADLINE_S = 100.0
UNKNOWN_SERVER_ERROR, INVALID_RECORD = -1, 87
NOT_YET = frozenset({3, 6, 7})
PARTS = [record(at, b"value %d" % at * 20) for at in range(50)]
BODY = b"".join(PARTS)
HALF = len(BODY) // 2
LINKED = pa.Codec("lz4").compress(BODY * 200, asbytes=True)


def wrong_lz4_header() -> bytes:
    frame = bytearray(compress(BODY, Codec.LZ4))
    frame[6] ^= 0x77
    return bytes(frame)


def packed(codec: Codec, data: bytes, count: int = 50) -> bytes:
    return raw_batch([], codec=codec, packed=data, count=count)


def two(codec: Codec) -> bytes:
    """Return the records as two streams of a codec, one after the other, cut amid a record."""
    return packed(codec, compress(BODY[:HALF], codec) + compress(BODY[HALF:], codec))


NULL_KEY = b"\x02" + zigzag(-1)
CASES = {
    "plain": raw_batch(PARTS),
    **{f"plain {codec.name}": packed(codec, compress(BODY, codec)) for codec in Codec},
    **{f"two of {codec.name}": two(codec) for codec in Codec if codec is not Codec.NONE},
    "gzip padded": packed(Codec.GZIP, gzip.compress(BODY) + bytes(8)),
    "gzip cut": packed(Codec.GZIP, gzip.compress(BODY)[:-30]),
    "lz4 header checksum": packed(Codec.LZ4, wrong_lz4_header()),
    "lz4 linked blocks": packed(Codec.LZ4, LINKED, 50 * 200),
    "lz4 cut": packed(Codec.LZ4, compress(BODY, Codec.LZ4)[:-6]),
    "zstd cut": packed(Codec.ZSTD, compress(BODY, Codec.ZSTD)[:-6]),
    "zstd padded": packed(Codec.ZSTD, compress(BODY, Codec.ZSTD) + bytes(9)),
    "snappy raw": packed(Codec.SNAPPY, pa.Codec("snappy").compress(BODY, asbytes=True)),
    "snappy cut": packed(Codec.SNAPPY, compress(BODY, Codec.SNAPPY)[:-6]),
    "lz4, one too many": packed(Codec.LZ4, compress(BODY, Codec.LZ4), 49),
    "zstd, one missing": packed(Codec.ZSTD, compress(BODY, Codec.ZSTD), 51),
    "lz4 deltas": raw_batch([record(1), record(2), record(3)], codec=Codec.LZ4),
    "one too many": raw_batch(PARTS[:2], count=1),
    "one missing": raw_batch(PARTS[:1], count=2),
    "deltas from one": raw_batch([record(1, b"a"), record(2, b"b"), record(3, b"c")]),
    "deltas twice": raw_batch([record(0, b"a"), record(0, b"b")]),
    "no records": raw_batch([], last_delta=-1),
    "no records, a delta": raw_batch([], last_delta=0),
    "last delta": raw_batch(PARTS[:1], last_delta=3),
    "header without key": raw_batch([record(0, headers=NULL_KEY)]),
    "headers below none": raw_batch([record(0, headers=zigzag(-1))]),
    "headers that are not there": raw_batch([record(0, headers=zigzag(9))]),
    "value beyond its record": raw_batch([record(0, value_length=50)]),
    "sequence below none": raw_batch(PARTS[:1], producer_id=987_001, sequence=-5),
    "no sequence": raw_batch(PARTS[:1], producer_id=987_002, sequence=-1),
    "newest too old": raw_batch(PARTS[:1], max_timestamp=-1),
    "newest too new": raw_batch(PARTS[:1], max_timestamp=1 << 60),
    "before 1970": raw_batch(PARTS[:1], base_timestamp=-1_000),
    "in the future": raw_batch([record(0, timestamp_delta=1 << 55)], max_timestamp=5),
}


class Talk:
    """A topic of one cluster with a partition for each case."""

    def __init__(self, bootstrap: str, **settings: str) -> None:
        self.bootstrap = bootstrap
        self.topic = f"t-{uuid4().hex[:8]}"
        self._asked = Asked(bootstrap_addresses(bootstrap))
        self._admin = rd.AdminClient({"bootstrap.servers": bootstrap})
        topic = rd.NewTopic(self.topic, len(CASES), 1, config=settings)
        self._admin.create_topics([topic])[self.topic].result(DEADLINE_S)

    def answer(self, partition: int, data: bytes) -> Any:
        """Return what the leader says to a batch."""
        found: list[Any] = []

        def is_told() -> bool:
            listed = self._admin.list_topics(self.topic, timeout=DEADLINE_S)
            leader = listed.brokers.get(listed.topics[self.topic].partitions[partition].leader)
            if leader is None:
                return False
            where = BrokerAddress(leader.host, leader.port)
            build = partial(self._ask, partition=partition, data=data)
            answer = self._asked.tell(where, Api.PRODUCE, 9, 9, build)
            found.append(answer.responses[0].partition_responses[0])
            return int(found[-1].error_code) not in NOT_YET

        eventually(is_told, f"partition {partition} is led")
        return found[-1]

    def _ask(self, of: RequestDraft, *, partition: int, data: bytes) -> Any:
        part = of.part("PartitionProduceData", index=partition, records=data)
        topic = of.part("TopicProduceData", name=self.topic, partition_data=(part,))
        return of.request(
            transactional_id=None, acks=-1, timeout=timedelta(seconds=30), topic_data=(topic,)
        )

    def codes(self) -> dict[str, int]:
        """Return the error code of every case."""
        try:
            return {
                name: int(self.answer(at, data).error_code)
                for at, (name, data) in enumerate(CASES.items())
            }
        finally:
            self._asked.close()

    def values(self, taken: Collection[str]) -> dict[str, list[bytes]]:
        """Return what librdkafka reads of each case that was taken."""
        names = list(CASES)
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "unused", "check.crcs": True,
             "auto.offset.reset": "earliest", "enable.partition.eof": True}
        )  # fmt: skip
        places = [names.index(name) for name in taken]
        consumer.assign([confluent_kafka.TopicPartition(self.topic, at, 0) for at in places])
        found: dict[str, list[bytes]] = {name: [] for name in taken}
        left = set(places)

        def is_read() -> bool:
            message: Any
            for message in consumer.consume(10_000, 0.5):
                error = message.error()
                if error is None:
                    found[names[message.partition()]].append(message.value())
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                else:
                    raise AssertionError((names[message.partition()], error))
            return not left

        eventually(is_read, "all is read", DEADLINE_S)
        consumer.close()
        return found


def values_of(data: bytes) -> list[bytes]:
    """Return the values in a batch."""
    return decode(data).records.column("value").to_pylist()  # type: ignore[no-any-return]


def is_stored(root: str, topic: str, partition: int, values: list[bytes]) -> bool:
    """Return True if a partition's segments have these values."""
    log = sparklog.open_log(root).partition(topic, partition)
    end = log.view().end_offset
    rows = pa.Table.from_batches(log.read(0, end, ["value"]), pa.schema([("value", pa.binary())]))
    return bool(rows.column("value").to_pylist() == values)


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers(f"memory://{uuid4()}") as cluster:
        yield cluster


def test_batches_are_taken_refused_and_read_as_in_kafka(
    brokers: Brokers, kafka: KafkaCluster
) -> None:
    theirs = Talk(kafka.bootstrap)
    ours = Talk(brokers.bootstrap, **{"flush.ms": "100"})
    expected, told = theirs.codes(), ours.codes()
    alike = {
        name: INVALID_RECORD if code == UNKNOWN_SERVER_ERROR else code
        for name, code in expected.items()
    }
    assert told == alike
    taken = {name: code for name, code in told.items() if not code}
    assert {"gzip padded", "deltas from one", "snappy raw"} <= set(taken)
    sent = {name: values_of(CASES[name]) for name in taken}
    for at, name in enumerate(CASES):
        if name in taken:
            eventually(partial(is_stored, brokers.root, ours.topic, at, sent[name]), name)
    assert ours.values(taken) == sent
