"""A topic is compacted while librdkafka writes to it, in transactions, and reads it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Event, Thread
from typing import Any
from uuid import uuid4

import confluent_kafka
import confluent_kafka.admin
import pytest
from confluent_kafka import TopicPartition

from sparklog.cluster.log import open_log
from sparklog.spark.jobs.compact import CompactJob, compacted_by
from sparklog.spark.jobs.partition_tasks import work_on
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers

rd: Any = confluent_kafka.admin
"""librdkafka's admin API, which ships no types."""
DEADLINE_S = 100.0
TOPIC = "keyed"
KEYS = 20
COMPACTIONS = 6
CONFIGS = {"cleanup.policy": "compact", "flush.ms": "50", "min.cleanable.dirty.ratio": "0"}


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    with Brokers(f"memory://{uuid4()}", count=2) as cluster:
        yield cluster


class Writer(Thread):
    """Writes rising numbers under a few keys; every third transaction is aborted."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.over = Event()
        self.newest: dict[bytes, int] = {}
        self.aborted: set[int] = set()
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": "beside", "linger.ms": 0}
        )

    def run(self) -> None:
        self._producer.init_transactions(DEADLINE_S)
        number = turn = 0
        while not self.over.is_set():
            self._producer.begin_transaction()
            written = {}
            for _ in range(5):
                key = b"key-%d" % (number % KEYS)
                self._producer.produce(TOPIC, b"%d" % number, key, partition=0)
                written[key] = number
                number += 1
            if turn % 3 == 2:
                self._producer.flush(DEADLINE_S)
                self._producer.abort_transaction(DEADLINE_S)
                self.aborted |= set(written.values())
            else:
                self._producer.commit_transaction(DEADLINE_S)
                self.newest |= written
            turn += 1


class Reader:
    """Reads committed records from the start, and on."""

    def __init__(self, bootstrap: str) -> None:
        self.seen: dict[bytes, int] = {}
        self.offsets: list[int] = []
        self._consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "g", "isolation.level": "read_committed"}
        )
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])

    def has_read(self, wanted: dict[bytes, int]) -> bool:
        """Read on, and say whether these are the newest values now."""
        self.read_on()
        return self.seen == wanted

    def read_on(self) -> None:
        for message in self._consumer.consume(500, timeout=0.1):
            assert message.error() is None, message.error()
            key, value, offset = message.key(), message.value(), message.offset()
            assert isinstance(key, bytes)
            assert value is not None
            assert offset is not None
            self.seen[key] = int(value)
            self.offsets.append(offset)

    def close(self) -> None:
        self._consumer.close()


def test_committed_records_stay_and_aborted_ones_do_not_return(brokers: Brokers) -> None:
    admin = rd.AdminClient({"bootstrap.servers": brokers.bootstrap})
    wanted = [rd.NewTopic(TOPIC, 1, 2, config=CONFIGS)]
    admin.create_topics(wanted)[TOPIC].result(DEADLINE_S)
    writer, follower = Writer(brokers.bootstrap), Reader(brokers.bootstrap)
    compacting = compacted_by(CompactJob(brokers.root))
    compactions = 0
    with open_log(brokers.root) as log:
        (work,) = [w for w in work_on(log.topics().values()) if w.topic == TOPIC]
        writer.start()
        deadline = time.monotonic() + DEADLINE_S
        while compactions < COMPACTIONS:
            assert time.monotonic() < deadline, f"only {compactions} compactions had work"
            follower.read_on()
            done = compacting(log, work)["compacted"]
            compactions += done is not None and done["rows_after"] < done["rows_before"]
        writer.over.set()
        writer.join()
        eventually(lambda: follower.has_read(writer.newest), "all was read", DEADLINE_S)
        fresh = Reader(brokers.bootstrap)
        eventually(lambda: fresh.has_read(writer.newest), "what stays is read", DEADLINE_S)
        rows = sum(e.rows for e in log.partition(TOPIC, 0).view().entries)
    assert writer.aborted.isdisjoint(follower.seen.values())
    for reader in (follower, fresh):
        assert reader.offsets == sorted(set(reader.offsets))
        reader.close()
    assert rows < len(follower.offsets), "compaction has left something out"
