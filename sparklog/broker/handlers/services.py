"""What handlers need of the broker they belong to."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

from sparklog.broker.controller.producer_ids import ProducerIds
from sparklog.broker.coordinator.groups import GroupCoordinator
from sparklog.broker.coordinator.transaction_services import TransactionServices
from sparklog.broker.coordinator.txn_markers import TxnMarkers
from sparklog.broker.fetch.read import FetchedPartition, FetchSpec
from sparklog.broker.fetch.session import FetchSessionCache
from sparklog.broker.network.quotas import ClientQuotas
from sparklog.broker.network.reachability import ReachabilityTracker
from sparklog.broker.produce.request import ProducedPartition, ProduceRequest, Verified
from sparklog.broker.runtime.environment import Environment
from sparklog.broker.runtime.metadata_access import MetadataAccess
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.broker.runtime.request import RequestContext
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.errors import SparklogError
from sparklog.core.types import PartitionId
from sparklog.protocol.records.header import BytesLike


class ReplicaServices(Protocol):
    """The partitions this broker holds; see `broker.replicas`."""

    @property
    def marking(self) -> TxnMarkers:
        """Return what ends transactions in the partitions led here."""
        ...

    def begin_produce(
        self,
        batches: Mapping[PartitionId, BytesLike],
        acks: int,
        timeout_ms: int,
        ended: Callable[[ProduceRequest], None],
    ) -> bool:
        """Append batches if nothing has to be waited for; tell `ended` when that has ended."""
        ...

    async def finish_produce(self, job: ProduceRequest) -> None:
        """Make sure of what a job that has failed came to."""
        ...

    async def produce(
        self,
        batches: Mapping[PartitionId, BytesLike],
        acks: int,
        timeout_ms: int,
        verified: Verified | None = None,
    ) -> Mapping[PartitionId, ProducedPartition | SparklogError]:
        """Append batches, in the order of the calls, and wait for what `acks` says."""
        ...

    def refused(self, where: PartitionId, data: BytesLike, error: SparklogError) -> None:
        """Remember a batch that was refused before `produce`: what follows it waits for it."""
        ...

    async def fetch(
        self, spec: FetchSpec
    ) -> Mapping[PartitionId, FetchedPartition | SparklogError]:
        """Read, and wait for news where there are none."""
        ...

    async def list_offset(
        self, where: PartitionId, timestamp: int, isolation: int, current_leader_epoch: int
    ) -> tuple[int, int, int]:
        """Return (timestamp, offset, leader epoch) for a time or one of Kafka's special ones."""
        ...

    async def end_of_epoch(
        self, where: PartitionId, current_leader_epoch: int, epoch: int
    ) -> tuple[int, int]:
        """Return the newest epoch up to `epoch`, and where it ends."""
        ...

    async def delete_records(self, where: PartitionId, offset: int) -> int:
        """Drop everything before an offset, -1 being the high watermark; return the new start."""
        ...

    def sizes(self) -> Mapping[PartitionId, int]:
        """Return the bytes of every partition held here."""
        ...


class BrokerServices(Protocol):
    """A broker, as its handlers see it."""

    @property
    def broker_id(self) -> int:
        """Return this broker's id."""
        ...

    @property
    def cluster_id(self) -> str:
        """Return the cluster's id: the same for every broker of one root."""
        ...

    @property
    def config(self) -> BrokerConfig:
        """Return this broker's settings."""
        ...

    @property
    def environment(self) -> Environment:
        """Return the outside world."""
        ...

    @property
    def metadata(self) -> MetadataAccess:
        """Return the metadata log."""
        ...

    @property
    def replicas(self) -> ReplicaServices:
        """Return the partitions held here."""
        ...

    @property
    def fetch_sessions(self) -> FetchSessionCache:
        """Return what is remembered of who fetches what."""
        ...

    @property
    def transactions(self) -> TransactionServices:
        """Return what is done for transactions."""
        ...

    @property
    def groups(self) -> GroupCoordinator:
        """Return the coordinator of groups."""
        ...

    @property
    def producer_ids(self) -> ProducerIds:
        """Return what hands out producer ids."""
        ...

    @property
    def metrics(self) -> BrokerMetrics:
        """Return what is counted."""
        ...

    @property
    def throttle(self) -> ClientQuotas:
        """Return what holds clients to their quotas."""
        ...

    @property
    def sight(self) -> ReachabilityTracker:
        """Return which brokers this one has just lost sight of."""
        ...

    def is_broker(self, context: RequestContext) -> bool:
        """Say whether a broker of this cluster asks, and not a client."""
        ...

    def background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run `work` beside requests, until the broker stops."""
        ...

    async def broker_heartbeat(self, request: Any) -> Any:
        """Answer another broker's heartbeat, or return None: this is not the controller."""
        ...
