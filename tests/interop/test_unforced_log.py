"""`wal.fsync=false`: a killed broker loses nothing, a power cut no more than what was not flushed.

The power cut is played: nothing here can empty the cache of a disk. A killed broker's newest files
are torn as one would tear them.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from uuid import uuid4

import confluent_kafka.admin
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from sparklog.broker.main import run
from sparklog.core.errors import InvalidConfig
from tests.harness.broker_processes import BrokerProcesses
from tests.harness.waiting import eventually

rd: Any = confluent_kafka.admin
"""librdkafka's admin API, which ships no types."""
DEADLINE_S = 120.0
UNFORCED = {"wal.fsync": "false", "broker.session.timeout.ms": "1500"}
NEVER_FLUSHED = {"flush.ms": "3600000"}
ROUNDS = 10
RECORDS_A_ROUND = 50
TORN_ROUNDS = 3
TORN_BYTES = 2000


def produce(bootstrap: str, topic: str, start: int) -> int:
    """Have records acknowledged, round by round, so each has windows of its own; return the end."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    end = start + ROUNDS * RECORDS_A_ROUND
    for first in range(start, end, RECORDS_A_ROUND):
        for number in range(first, first + RECORDS_A_ROUND):
            producer.produce(topic, str(number), partition=0)
        assert producer.flush(DEADLINE_S) == 0
    return end


def consume(bootstrap: str, topic: str) -> list[int]:
    """Return the records, as soon as the partition has a leader."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "enable.partition.eof": True}
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[int] = []
        while True:
            message = consumer.poll(DEADLINE_S)
            assert message is not None, f"nothing more after {len(values)}"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return values
            value = message.value()
            assert isinstance(value, bytes)
            values.append(int(value))
    finally:
        consumer.close()


def windows(root: Path) -> list[Path]:
    """Return the objects of the log that was written to last, by their numbers."""
    newest = max(root.glob("wal/*/"), key=lambda folder: folder.stat().st_mtime)
    return sorted(newest.glob("*.arrow"))


@pytest.fixture
def topic() -> str:
    return f"t-{uuid4().hex[:8]}"


def create(bootstrap: str, topic: str) -> None:
    admin = rd.AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([rd.NewTopic(topic, 1, 1, config=NEVER_FLUSHED)])
    made[topic].result(DEADLINE_S)


def test_a_kill_loses_nothing_and_a_power_cut_only_the_newest(tmp_path: Path, topic: str) -> None:
    root = tmp_path / "root"
    with BrokerProcesses(root.as_uri(), tmp_path, UNFORCED, count=1, proxied=True) as cluster:
        broker = cluster.brokers[0]
        create(cluster.bootstrap, topic)
        killed_at = produce(cluster.bootstrap, topic, 0)
        broker.kill()
        broker.start()
        assert consume(cluster.bootstrap, topic) == list(range(killed_at))

        end = produce(cluster.bootstrap, topic, killed_at)
        broker.kill()
        found = windows(root)
        assert len(found) > 2 * TORN_ROUNDS, "each round has a window at least"
        torn, gone = found[-TORN_ROUNDS], found[-TORN_ROUNDS + 1]
        torn.write_bytes(torn.read_bytes()[:TORN_BYTES])
        gone.unlink()
        broker.start()
        left = consume(cluster.bootstrap, topic)
        assert left == list(range(len(left))), "what is left is the start of what was written"
        assert killed_at < len(left) < end
        assert len(left) >= end - TORN_ROUNDS * RECORDS_A_ROUND
        assert torn.name in broker.log
        assert "has a torn or missing object" in broker.log

        again = produce(cluster.bootstrap, topic, len(left))
        assert consume(cluster.bootstrap, topic) == list(range(again))


def test_the_same_of_a_log_that_was_forced_is_damage(tmp_path: Path, topic: str) -> None:
    root = tmp_path / "root"
    with BrokerProcesses(root.as_uri(), tmp_path, count=1, proxied=True) as cluster:
        broker = cluster.brokers[0]
        create(cluster.bootstrap, topic)
        end = produce(cluster.bootstrap, topic, 0)
        broker.kill()
        torn = windows(root)[-TORN_ROUNDS]
        whole = tmp_path / "whole"
        shutil.copy(torn, whole)
        torn.write_bytes(torn.read_bytes()[:TORN_BYTES])
        broker.start()
        eventually(lambda: torn.name in broker.log, "the damage is told of", DEADLINE_S)
        assert "has a torn or missing object" not in broker.log
        broker.kill()
        shutil.copy(whole, torn)
        broker.start()
        assert consume(cluster.bootstrap, topic) == list(range(end)), "restored, nothing is lost"


@pytest.mark.parametrize("root", ["memory://unforced", "s3://bucket/prefix"])
def test_unforced_log_is_rejected_on_object_storage(root: str) -> None:
    with pytest.raises(InvalidConfig, match=r"wal\.fsync"):
        run(
            root,
            {"node.id": "1", "wal.fsync": "false"},
            stop=lambda: True,
            ready=lambda _: pytest.fail("served"),
        )
