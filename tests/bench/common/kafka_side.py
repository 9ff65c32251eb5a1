"""Apache Kafka: three combined nodes (broker and KRaft controller), as its own defaults have it."""

from __future__ import annotations

import time

from tests.bench.common.process_memory import descendants
from tests.bench.common.side import Side
from tests.peers.kafka import KafkaCluster

SETTINGS = {
    # Dropped topics leave the disk soon; everything else is Kafka's default.
    "log.segment.delete.delay.ms": "1000",
    "min.insync.replicas": "1",
}


class KafkaSide(Side):
    """The peer."""

    name = "kafka"

    def __init__(self, cluster: KafkaCluster) -> None:
        """Use a started cluster."""
        super().__init__()
        self.cluster = cluster

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def kill(self, broker: int) -> float:
        node = next(node for node in self.cluster.nodes if node.node_id == broker)
        moment = time.monotonic()
        node.stop(kill=True)
        return moment

    def restore(self, broker: int) -> None:
        self.cluster.restart_node(broker)

    def await_history(self, topic: str) -> None:
        """Do nothing: Kafka serves old and new alike from files."""

    def pids(self) -> list[int]:
        guards = [node.guard_pid for node in self.cluster.nodes]
        return [pid for guard in guards if guard is not None for pid in descendants(guard)]
