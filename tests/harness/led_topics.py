"""Topics that real brokers in this process lead, for tests of the source and sink without Spark."""

from __future__ import annotations

from uuid import uuid4

from sparklog.client.admin import Admin
from sparklog.client.producer import Producer
from sparklog.cluster.log import Log
from sparklog.spark.access import log_access
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers

SELDOM = "600000"
"""A `flush.ms` longer than any test."""
MUCH = str(1 << 30)


class LedTopic:
    """One topic of brokers, flushed when the test says so."""

    def __init__(self, brokers: Brokers, partitions: int = 1) -> None:
        """Create it; its partitions are led when this returns."""
        self.brokers = brokers
        self.name = f"t-{uuid4().hex[:8]}"
        self.log: Log = log_access.shared_log(brokers.root)
        with Admin(brokers.bootstrap) as admin:
            admin.create_topic(self.name, partitions, {"flush.ms": SELDOM}, 1)

    def send(self, first: int, count: int, partition: int = 0) -> None:
        """Append records `first`, `first` + 1, …, a millisecond apart; all are committed then."""
        with Producer(self.brokers.bootstrap) as producer:
            for number in range(first, first + count):
                producer.send(
                    self.name, b"%d" % number, partition=partition, timestamp_ms=1000 + number
                )

    def flush(self, first: int, count: int, partition: int = 0) -> int:
        """Append records and bring them into segments; returns the segments' end."""
        self._flush_from("1")
        before = self.stored_end(partition)
        self.send(first, count, partition)
        eventually(lambda: self.stored_end(partition) >= before + count, "the segments")
        self._flush_from(MUCH)
        return self.stored_end(partition)

    def flush_always(self) -> None:
        """Flush each record into segments as soon as it is committed."""
        self._flush_from("1")

    def stored_end(self, partition: int = 0) -> int:
        """Return how far the partition's segments reach."""
        return self.log.partition(self.name, partition).view().end_offset

    def _flush_from(self, size: str) -> None:
        with Admin(self.brokers.bootstrap) as admin:
            admin.alter_configs(self.name, {"flush.bytes": size})
