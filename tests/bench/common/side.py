"""Operations of measures on a cluster of three brokers, sparklog's or Kafka's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tests.harness.waiting import eventually

ANSWER_TIMEOUT_S = 60


class Side(ABC):
    """One cluster, and the clients that look after it."""

    name: str

    def __init__(self) -> None:
        self._admin: AdminClient | None = None

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """Return `bootstrap.servers`."""

    @abstractmethod
    def kill(self, broker: int) -> float:
        """Kill a broker's process with SIGKILL; returns the moment on the monotonic clock."""

    @abstractmethod
    def restore(self, broker: int) -> None:
        """Wait until a killed broker serves again; start it if nothing else does."""

    @abstractmethod
    def pids(self) -> list[int]:
        """Return the brokers' processes."""

    @abstractmethod
    def await_history(self, topic: str) -> None:
        """Wait until what was produced is no longer served from a broker's own memory."""

    @property
    def admin(self) -> AdminClient:
        """Return an admin client."""
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})
        return self._admin

    def create(
        self,
        topic: str,
        partitions: int,
        replicas: int,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic, and wait until every partition has all its replicas in sync."""
        wanted = NewTopic(topic, partitions, replicas, config=dict(configs or {}))
        self.admin.create_topics([wanted], operation_timeout=ANSWER_TIMEOUT_S)[topic].result(
            ANSWER_TIMEOUT_S
        )
        self.await_in_sync(topic, partitions, replicas)

    def drop(self, topic: str) -> None:
        """Delete a topic."""
        self.admin.delete_topics([topic])[topic].result(ANSWER_TIMEOUT_S)

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the leader's broker id; -1 for none."""
        found = self.admin.list_topics(topic, ANSWER_TIMEOUT_S).topics[topic]
        return int(found.partitions[partition].leader)

    def await_in_sync(self, topic: str, partitions: int, replicas: int) -> None:
        """Wait until every partition has a leader and `replicas` in-sync replicas."""

        def in_sync() -> bool:
            found = self.admin.list_topics(topic, ANSWER_TIMEOUT_S).topics.get(topic)
            if found is None or len(found.partitions) != partitions:
                return False
            parts = found.partitions.values()
            return all(p.leader >= 0 and len(p.isrs) == replicas for p in parts)

        eventually(in_sync, f"{topic} in sync on {self.name}", ANSWER_TIMEOUT_S)

    def records(self, topic: str, partitions: int) -> int:
        """Return how many records a topic holds that was produced to without transactions."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "ends"})
        try:
            places = [TopicPartition(topic, number) for number in range(partitions)]
            ends = [consumer.get_watermark_offsets(p, ANSWER_TIMEOUT_S)[1] for p in places]
        finally:
            consumer.close()
        return sum(int(end) for end in ends)

    def close(self) -> None:
        """End the clients."""
        self._admin = None  # its thread ends with it
