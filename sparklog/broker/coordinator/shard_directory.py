"""Which partitions of an internal topic are led here, and why one cannot be served now."""

from __future__ import annotations

from typing import Final, Generic

from sparklog.broker.coordinator.shard_context import S, ShardContext
from sparklog.broker.runtime.metadata_access import MetadataAccess
from sparklog.coordinator.effects import ProducerIdentity
from sparklog.core.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    NotCoordinator,
    NotEnoughReplicas,
    NotServing,
    SparklogError,
)
from sparklog.core.types import PartitionId

GATHERED_MAX: Final = 20_000
"""Effects that wait for an append: beyond this callers are told to come again."""


class ShardDirectory(Generic[S]):
    """See the module. Rule R5 of `coordinator_runtime` is kept by `ready`."""

    def __init__(self, metadata: MetadataAccess, topic: str, broker_id: int) -> None:
        """Lead nothing yet; `metadata` tells whose a partition is that is not led here."""
        self._metadata = metadata
        self._topic = topic
        self._broker_id = broker_id
        self.led: dict[int, ShardContext[S]] = {}

    @property
    def active(self) -> list[int]:
        """Return the partitions that are served now."""
        return [number for number, led in self.led.items() if led.shard is not None]

    @property
    def loading(self) -> list[int]:
        """Return the partitions whose log is being read."""
        return [number for number, led in self.led.items() if led.shard is None]

    def serving(self, partition: int) -> ShardContext[S]:
        """Return a partition whose shard is served.

        Raises:
            NotCoordinator: another broker leads the partition.
            CoordinatorLoading: its log is being read.
            CoordinatorNotAvailable: nobody leads it.
        """
        led = self.led.get(partition)
        if led is None:
            raise self.elsewhere(partition)
        if led.shard is None:
            raise self.is_loading(partition)
        return led

    def ready(self, partition: int) -> ShardContext[S]:
        """Return a partition whose shard may be changed now.

        Raises:
            NotCoordinator, CoordinatorLoading: as `serving`.
            CoordinatorNotAvailable: nobody leads it, or nothing can be committed now.
        """
        led = self.serving(partition)
        try:
            led.log.check_ready()
        except NotServing as error:
            raise NotCoordinator(str(error)) from error
        except NotEnoughReplicas as error:
            raise CoordinatorNotAvailable(str(error)) from error
        if len(led.gathered) >= GATHERED_MAX:
            raise CoordinatorNotAvailable(
                "the storage is slower than the requests; try again. "
                f"topic={self._topic} partition={partition} waiting={len(led.gathered)}"
            )
        return led

    def ready_for(self, partition: int, producer: ProducerIdentity) -> ShardContext[S]:
        """Return a partition that a producer's transaction may change now.

        Raises:
            InvalidProducerEpoch: a newer producer has the id.
            SparklogError: as `ready`.
        """
        led = self.ready(partition)
        led.log.check_producer(producer)
        newest = led.newest_epoch(producer.producer_id)
        if newest > producer.producer_epoch:
            raise InvalidProducerEpoch(
                "a newer producer has the producer id; stop, or get a new one. "
                f"producer_id={producer.producer_id} producer_epoch={producer.producer_epoch} "
                f"newest={newest}"
            )
        return led

    def elsewhere(self, partition: int) -> SparklogError:
        """Return why a partition is not served here, and what a caller does about it."""
        topic = self._metadata.image.topics.get(self._topic)
        facts = f"topic={self._topic} partition={partition} broker_id={self._broker_id}"
        if topic is None:
            return CoordinatorNotAvailable(f"the internal topic is not there yet. {facts}")
        state = self._metadata.image.partition(PartitionId(topic.topic_id, partition))
        if state is not None and state.leader == self._broker_id:
            return self.is_loading(partition)
        return NotCoordinator(f"another broker is the coordinator; find it again. {facts}")

    def is_loading(self, partition: int) -> CoordinatorLoading:
        """Return the error of a partition whose log is being read."""
        return CoordinatorLoading(
            "the coordinator reads its log; try again in a moment. "
            f"topic={self._topic} partition={partition} broker_id={self._broker_id}"
        )
