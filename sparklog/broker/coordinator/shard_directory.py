"""ShardDirectory: the partitions of an internal topic that this broker leads.

If a partition does not serve now, the directory raises the reason.
"""

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
"""Most effects that wait for an append; beyond it callers get a retriable error."""


class ShardDirectory(Generic[S]):
    """See the module. `ready` keeps COORDINATOR-RUNTIME-5."""

    def __init__(self, metadata: MetadataAccess, topic: str, broker_id: int) -> None:
        """Begin without partitions; `metadata` has the leaders of the others."""
        self._metadata = metadata
        self._topic = topic
        self._broker_id = broker_id
        self.contexts: dict[int, ShardContext[S]] = {}

    @property
    def active(self) -> list[int]:
        """Return the partitions that serve now."""
        return [number for number, context in self.contexts.items() if context.shard is not None]

    @property
    def loading(self) -> list[int]:
        """Return the partitions whose log is still being replayed."""
        return [number for number, context in self.contexts.items() if context.shard is None]

    def serving(self, partition: int) -> ShardContext[S]:
        """Return a partition whose shard serves.

        Raises:
            NotCoordinator: another broker leads the partition.
            CoordinatorLoading: its log is being replayed.
            CoordinatorNotAvailable: no broker leads it.
        """
        context = self.contexts.get(partition)
        if context is None:
            raise self.not_here_error(partition)
        if context.shard is None:
            raise self.loading_error(partition)
        return context

    def ready(self, partition: int) -> ShardContext[S]:
        """Return a partition whose shard accepts events now.

        Raises:
            NotCoordinator, CoordinatorLoading: see `serving`.
            CoordinatorNotAvailable: no broker leads it, or nothing can be committed now.
        """
        context = self.serving(partition)
        try:
            context.log.check_ready()
        except NotServing as error:
            raise NotCoordinator(str(error)) from error
        except NotEnoughReplicas as error:
            raise CoordinatorNotAvailable(str(error)) from error
        if len(context.gathered) >= GATHERED_MAX:
            raise CoordinatorNotAvailable(
                "the storage is slower than the requests; try again. "
                f"topic={self._topic} partition={partition} waiting={len(context.gathered)}"
            )
        return context

    def ready_for(self, partition: int, producer: ProducerIdentity) -> ShardContext[S]:
        """Return a partition that a producer's transaction may change now.

        Raises:
            InvalidProducerEpoch: a newer producer has the id.
            SparklogError: see `ready`.
        """
        context = self.ready(partition)
        context.log.check_producer(producer)
        newest = context.newest_epoch(producer.producer_id)
        if newest > producer.producer_epoch:
            raise InvalidProducerEpoch(
                "a newer producer has the producer id; stop, or get a new one. "
                f"producer_id={producer.producer_id} producer_epoch={producer.producer_epoch} "
                f"newest={newest}"
            )
        return context

    def not_here_error(self, partition: int) -> SparklogError:
        """Return the error for a partition that this broker does not serve."""
        topic = self._metadata.image.topics.get(self._topic)
        facts = f"topic={self._topic} partition={partition} broker_id={self._broker_id}"
        if topic is None:
            return CoordinatorNotAvailable(f"the internal topic is not there yet. {facts}")
        state = self._metadata.image.partition(PartitionId(topic.topic_id, partition))
        if state is not None and state.leader == self._broker_id:
            return self.loading_error(partition)
        return NotCoordinator(f"another broker is the coordinator; find it again. {facts}")

    def loading_error(self, partition: int) -> CoordinatorLoading:
        """Return the error for a partition whose log is still being replayed."""
        return CoordinatorLoading(
            "the coordinator reads its log; try again in a moment. "
            f"topic={self._topic} partition={partition} broker_id={self._broker_id}"
        )
