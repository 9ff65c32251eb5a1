"""Three brokers with 20,000 partitions of three replicas: creation, take-over and restart.

It prints the figures of OPERATIONS.md: `pytest -s -m soak tests/soak/test_many_partitions.py`.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import confluent_kafka.admin
import pytest

from sparklog.core.clock import SYSTEM_CLOCK
from tests.harness.broker_processes import BrokerProcesses
from tests.harness.waiting import eventually

rd: Any = confluent_kafka.admin
"""librdkafka's admin API, which ships no types."""
TOPICS = 20
PARTITIONS = 1000
REPLICAS = 3
WITHIN_S = 600.0
ANSWER_S = 120.0
METADATA_S = 10.0


class Watch:
    """The time since a moment, printed under a name."""

    def __init__(self) -> None:
        self._start_s = SYSTEM_CLOCK.monotonic_s()

    def say(self, what: str) -> None:
        print(f"{what}: {SYSTEM_CLOCK.monotonic_s() - self._start_s:.1f} s", flush=True)


def partitions(bootstrap: str) -> list[Any]:
    """Return the metadata of all partitions, as one broker answers it; [] if it does not."""
    admin = rd.AdminClient({"bootstrap.servers": bootstrap}, logger=logging.getLogger("quiet"))
    try:
        topics = admin.list_topics(timeout=METADATA_S).topics.values()
    except ck.KafkaException:
        return []  # it does not listen yet
    return [p for topic in topics if topic.topic[0] != "_" for p in topic.partitions.values()]


def all_lead(cluster: BrokerProcesses, replicas_in_sync: int) -> bool:
    """Return whether each partition has a leader and replicas in sync, by every broker."""
    for broker in cluster.brokers:
        found = partitions(broker.address)
        if len(found) != TOPICS * PARTITIONS:
            return False
        if any(p.leader < 0 or len(p.isrs) < replicas_in_sync for p in found):
            return False
    return True


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_20000_partitions_have_leaders_after_loss_and_restart(
    tmp_path: Path,
) -> None:
    with BrokerProcesses(f"file://{tmp_path}/root", tmp_path) as cluster:
        created = Watch()
        admin = rd.AdminClient({"bootstrap.servers": cluster.bootstrap})
        for number in range(TOPICS):
            wanted = rd.NewTopic(f"many-{number}", PARTITIONS, REPLICAS)
            (one,) = admin.create_topics([wanted], operation_timeout=ANSWER_S).values()
            one.result(ANSWER_S)
        created.say("20,000 partitions created")
        eventually(lambda: all_lead(cluster, REPLICAS), "all partitions lead", WITHIN_S, 0.5)
        created.say("all lead, with three replicas in sync")

        killed = Watch()
        cluster.kill(1)
        rest = cluster.brokers[1].address
        eventually(
            lambda: (found := partitions(rest)) and all(p.leader > 1 for p in found),
            "others lead all",
            WITHIN_S,
            0.5,
        )
        killed.say("a broker is killed until others lead all of its partitions")
        cluster.heal()
        eventually(lambda: all_lead(cluster, REPLICAS), "it is in sync again", WITHIN_S, 0.5)
        killed.say("until it is in sync again")

        restarted = Watch()
        for broker in cluster.brokers:
            broker.kill()
        for broker in cluster.brokers:
            broker.start()
        eventually(lambda: all_lead(cluster, 1), "all lead after a restart", WITHIN_S, 0.5)
        restarted.say("all three brokers are killed and started until all lead")
        eventually(lambda: all_lead(cluster, REPLICAS), "all in sync", WITHIN_S, 0.5)
        restarted.say("until all are in sync")
