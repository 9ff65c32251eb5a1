"""Brokers of the last release and of this one in one cluster, replaced one at a time under load.

A default idempotent producer and a default group of librdkafka go on through every replacement.
Source: decision 74.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from sparklog.client.admin import Admin
from sparklog.cluster.log import Log
from sparklog.cluster.metadata.features import LEVEL, level_of
from sparklog.cluster.metadata.records import (
    FIRST_LEVEL,
    SPARKLOG_VERSION,
    FeatureLevelRecord,
)
from sparklog.core.errors import InvalidRequest
from sparklog.store.open import open_store
from tests.harness.broker_processes import BrokerProcess, BrokerProcesses
from tests.harness.last_release import last_release, of_commit
from tests.harness.waiting import eventually

rd: Any = confluent_kafka.admin
"""librdkafka's admin API, which ships no types."""
TOPIC = "orders"
PARTITIONS = 3
DEADLINE_S = 120.0
SEND_EVERY_S = 0.005
SETTINGS = {"offsets.topic.num.partitions": "1"}


class Load:
    """A producer and a group's member, each in a thread, until `finish`."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.sent = 0
        self.failures: list[str] = []
        self.received: Counter[int] = Counter()
        self._enough = threading.Event()
        self._threads = [
            threading.Thread(target=run, daemon=True) for run in (self._produce, self._consume)
        ]
        self._produced = threading.Event()
        for thread in self._threads:
            thread.start()

    def _produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "error_cb": self._note_fatal,
            }
        )
        while not self._enough.is_set():
            producer.produce(TOPIC, str(self.sent), str(self.sent), on_delivery=self._delivered)
            self.sent += 1
            producer.poll(0)
            self._enough.wait(SEND_EVERY_S)
        if left := producer.flush(DEADLINE_S):
            self.failures.append(f"{left} records were not acknowledged")
        self._produced.set()

    def _consume(self) -> None:
        member = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "billing",
                "auto.offset.reset": "earliest",
                "on_commit": self._committed,
                "error_cb": self._note_fatal,
            }
        )
        member.subscribe([TOPIC])
        while not (self._produced.is_set() and len(self.received) >= self.sent):
            message = member.poll(0.2)
            if message is None:
                continue
            if message.error() is not None:
                self.failures.append(f"poll: {message.error()}")
                continue
            self.received[int(message.value() or b"-1")] += 1
        member.close()

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self.failures.append(f"produce: {error}")

    def _committed(self, error: Any, partitions: Any) -> None:
        if error is not None:
            self.failures.append(f"commit: {error} {partitions}")

    def _note_fatal(self, error: Any) -> None:
        if error.fatal():
            self.failures.append(f"fatal: {error}")

    def finish(self) -> None:
        """Stop to send, and wait until the group has everything."""
        self._enough.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)
        assert not any(thread.is_alive() for thread in self._threads), len(self.received)


def replace_with(
    broker: BrokerProcess, installation: Path | None, cluster: BrokerProcesses
) -> None:
    """Have a broker leave, start it from another installation, and wait until it is in sync."""
    broker.stop()
    served = broker.log.count("listening on")
    broker.installation = installation
    broker.start()
    eventually(
        lambda: broker.serves() and broker.log.count("listening on") > served,
        "it serves",
        DEADLINE_S,
    )
    eventually(
        lambda: in_sync(cluster.bootstrap) == len(cluster.brokers), "all are in sync", DEADLINE_S
    )


def in_sync(bootstrap: str) -> int:
    """Return the fewest replicas in sync of any partition."""
    admin = rd.AdminClient({"bootstrap.servers": bootstrap})
    topics = admin.list_topics(timeout=DEADLINE_S).topics.values()
    return min(len(p.isrs) for topic in topics for p in topic.partitions.values())


def stored_values(bootstrap: str) -> list[int]:
    """Return the values of all records in the topic."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    partitions = [TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)]
    left = sum(reader.get_watermark_offsets(p, DEADLINE_S)[1] for p in partitions)
    reader.assign(partitions)
    values = []
    while left:
        message = reader.poll(DEADLINE_S)
        assert message is not None, f"nothing more; left={left}"
        assert message.error() is None, message.error()
        values.append(int(message.value() or b"-1"))
        left -= 1
    reader.close()
    return values


def level_of_release(folder: Path) -> int:
    """Return the newest level that an unpacked release supports."""
    source = folder / "sparklog/cluster/metadata/features.py"
    if not source.is_file():
        return FIRST_LEVEL
    (level,) = re.findall(r"^LEVEL: Final = (\d+)$", source.read_text(), re.MULTILINE)
    return int(level)


def check_upgrade(tmp_path: Path, before: Path) -> None:
    """Replace each broker under load, one of them forth and back, and finalize the level."""
    root = (tmp_path / "log").as_uri()
    with BrokerProcesses(root, tmp_path, SETTINGS, proxied=True, installation=before) as cluster:
        admin = rd.AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = rd.NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[TOPIC].result(DEADLINE_S)
        load = Load(cluster.bootstrap)
        first, *others = cluster.brokers
        replace_with(first, None, cluster)
        if level_of_release(before) < LEVEL:
            with (
                Admin(first.address) as newer,
                pytest.raises(InvalidRequest, match="earlier release still serve"),
            ):
                newer.finalize_feature(SPARKLOG_VERSION, LEVEL)
        replace_with(first, before, cluster)
        for broker in (first, *others):
            replace_with(broker, None, cluster)
        with Admin(cluster.bootstrap) as newer:
            newer.finalize_feature(SPARKLOG_VERSION, LEVEL)
        load.finish()
        assert load.failures == []
        assert set(load.received) == set(range(load.sent))
        assert sorted(stored_values(cluster.bootstrap)) == list(range(load.sent))
        with Log(open_store(root)) as log:
            assert level_of(log.refresh()) == LEVEL


def test_brokers_are_upgraded_one_at_a_time_under_load(tmp_path: Path) -> None:
    check_upgrade(tmp_path, last_release(tmp_path / "last"))


@pytest.mark.soak
def test_the_previous_commit_is_upgraded_under_load(tmp_path: Path) -> None:
    check_upgrade(tmp_path, of_commit("HEAD~1", tmp_path / "previous"))


@pytest.mark.soak
def test_a_broker_does_not_start_below_the_finalized_level(tmp_path: Path) -> None:
    with Log(open_store(tmp_path.as_uri())) as log:
        log._decide(lambda _: [FeatureLevelRecord(SPARKLOG_VERSION, LEVEL + 1)])
    command = [sys.executable, "-m", "sparklog.broker.main", "--root", tmp_path.as_uri()]
    done = subprocess.run(
        [*command, "--broker-id", "1", "--listener", "127.0.0.1:0"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("sparklog broker:"))
    assert "start a newer release" in line
    assert f"finalized={LEVEL + 1} supported={LEVEL}" in line
