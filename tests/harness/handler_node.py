"""A broker for tests of handlers: a real metadata log over a store in memory, and toy replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from sparklog.broker.controller.controller import HeartbeatAnswer
from sparklog.broker.controller.metadata_log import MetadataLog
from sparklog.broker.controller.producer_ids import ProducerIds
from sparklog.broker.coordinator.groups import GroupCoordinator
from sparklog.broker.coordinator.share_groups import Errors, ShareGroupStates
from sparklog.broker.coordinator.share_states import ShareStateCoordinator
from sparklog.broker.coordinator.transaction_services import TransactionServices
from sparklog.broker.coordinator.txn_markers import KnownProducer, PlacedMarker
from sparklog.broker.fetch.read import FetchedPartition, FetchSpec
from sparklog.broker.fetch.session import FetchSessionCache
from sparklog.broker.handlers import handle
from sparklog.broker.network.cluster_secret import client_id, is_broker
from sparklog.broker.network.quotas import ClientQuotas
from sparklog.broker.network.reachability import ReachabilityTracker
from sparklog.broker.node.authorization import Authorization
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.partition.leader import LeaderPartition
from sparklog.broker.produce.request import ProducedPartition, ProduceRequest, Verified
from sparklog.broker.runtime.audit_buffer import AuditBuffer
from sparklog.broker.runtime.environment import Address, Environment, TaskScope
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.broker.runtime.request import NoResponse, RequestContext
from sparklog.broker.runtime.token_secrets import token_secrets_of
from sparklog.broker.share.groups import PartitionServices, ShareGroupService
from sparklog.broker.share.state_client import ShareStateClient
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import RegisterBrokerRecord
from sparklog.coordinator.effects import ProducerIdentity
from sparklog.coordinator.share.delivery_state import SharePartitionKey
from sparklog.core.config.broker import parse_broker_configs
from sparklog.core.errors import NotServing, OffsetOutOfRange, SparklogError
from sparklog.core.types import PartitionId
from sparklog.log.tail.producer_state import Verification
from sparklog.protocol.messages import frames
from sparklog.protocol.messages.frames import RequestHeader
from sparklog.protocol.records.header import BytesLike
from tests.harness.broker_world import World

Result = TypeVar("Result")
HOST = "broker-1"
TESTER = RequestContext("test", "127.0.0.1")
SECRET = "5" * 32
ADDRESS = Address(HOST, 9092)
PEER = RequestContext(client_id(2, SECRET, ADDRESS), "127.0.0.1")
"""Another broker of the cluster."""


class ToyTxnMarkers:
    """Takes markers, and knows of no transaction."""

    def __init__(self, replicas: ToyReplicas) -> None:
        self.replicas = replicas
        self.markers: list[PlacedMarker] = []

    async def append(
        self, markers: Sequence[PlacedMarker], timeout_s: float
    ) -> list[SparklogError | None]:
        results: list[SparklogError | None] = []
        for placed in markers:
            try:
                self.replicas.check(placed.where)
            except SparklogError as error:
                results.append(error)
            else:
                self.markers.append(placed)
                results.append(None)
        return results

    async def begin_verification(
        self, where: PartitionId, producer: ProducerIdentity, sequence: int
    ) -> tuple[int, Verification] | None:
        self.replicas.check(where)
        return 1, Verification(producer.producer_epoch, sequence, 0)

    async def producers(self, where: PartitionId) -> list[KnownProducer]:
        self.replicas.check(where)
        return [KnownProducer(7, 1, 5, 1_600_000_000_000, 3, 12)]


class ToyReplicas:
    """Partitions as lists of what was produced."""

    def __init__(self) -> None:
        self.logs: dict[PartitionId, list[bytes]] = {}
        self.elsewhere: set[PartitionId] = set()
        self.produce_service = self.fetch_service = self.offset_lookup = self
        self.spec: FetchSpec | None = None
        self.acks: int | None = None
        self.txn_markers: Any = ToyTxnMarkers(self)
        self.busy = False
        """True if a produce request has to wait."""
        self.fetches_wait_for: asyncio.Event | None = None
        self.finished: list[ProduceRequest] = []
        self.unasked: list[tuple[PartitionId, BytesLike]] = []
        """Batches that were refused without being brought here."""

    def check(self, where: PartitionId) -> list[bytes]:
        if where in self.elsewhere:
            raise NotServing(f"led by another broker. partition={where}")
        return self.logs.setdefault(where, [])

    def begin(
        self,
        batches: Mapping[PartitionId, BytesLike],
        acks: int,
        timeout_ms: int,
        ended: Callable[[ProduceRequest], None],
    ) -> bool:
        if self.busy:
            return False
        job = ProduceRequest(batches, acks, timeout_ms / 1000, None)
        job.results.update(self._append(batches, acks))
        ended(job)
        return True

    async def finish(self, job: ProduceRequest) -> None:
        self.finished.append(job)

    async def produce(
        self,
        batches: Mapping[PartitionId, BytesLike],
        acks: int,
        timeout_ms: int,
        verified: Verified | None = None,
    ) -> Mapping[PartitionId, ProducedPartition | SparklogError]:
        return self._append(batches, acks)

    def _append(
        self, batches: Mapping[PartitionId, BytesLike], acks: int
    ) -> dict[PartitionId, ProducedPartition | SparklogError]:
        self.acks = acks
        outcomes: dict[PartitionId, ProducedPartition | SparklogError] = {}
        for where, data in batches.items():
            try:
                log = self.check(where)
            except SparklogError as error:
                outcomes[where] = error
            else:
                log.append(bytes(data))
                outcomes[where] = ProducedPartition(len(log) - 1, 1_600_000_000_123, 0)
        return outcomes

    def refused(self, where: PartitionId, data: BytesLike, error: SparklogError) -> None:
        self.unasked.append((where, data))

    async def fetch(
        self, spec: FetchSpec
    ) -> Mapping[PartitionId, FetchedPartition | SparklogError]:
        self.spec = spec
        if self.fetches_wait_for is not None:
            await self.fetches_wait_for.wait()
        outcomes: dict[PartitionId, FetchedPartition | SparklogError] = {}
        for where, at in spec.partitions.items():
            try:
                log = self.check(where)
            except SparklogError as error:
                outcomes[where] = error
            else:
                size = len(log)
                outcomes[where] = FetchedPartition(log[max(0, at.offset) :], size, size, 0)
        return outcomes

    async def list_offset(
        self, where: PartitionId, timestamp: int, isolation: int, current_leader_epoch: int
    ) -> tuple[int, int, int]:
        return -1, len(self.check(where)) if timestamp == -1 else 0, 1

    async def end_of_epoch(
        self, where: PartitionId, current_leader_epoch: int, epoch: int
    ) -> tuple[int, int]:
        return 1, len(self.check(where))

    async def delete_records(self, where: PartitionId, offset: int) -> int:
        end = len(self.check(where))
        if offset > end:
            raise OffsetOutOfRange(f"beyond the end. end={end} offset={offset}")
        return end if offset == -1 else offset

    def sizes(self) -> Mapping[PartitionId, int]:
        return {where: sum(map(len, log)) for where, log in self.logs.items()}


def _raise(error: BaseException) -> None:
    raise error


async def _stored(keys: Iterable[SharePartitionKey]) -> Errors:
    """Return success for every state of a share group."""
    return dict.fromkeys(keys)


def _leads_none(where: PartitionId) -> LeaderPartition:
    raise NotServing(f"another broker leads it. partition={where}")


class ToyNode:
    """A broker without a network."""

    def __init__(self, environment: Environment, settings: Mapping[str, str]) -> None:
        self.broker_id = 1
        self.cluster_id = "cluster"
        self.config = parse_broker_configs(dict(settings))
        self.environment = environment
        self.metadata = MetadataLog(environment)
        self.authorization = Authorization(self.config)
        self.token_secrets = token_secrets_of(self.config)
        self.replicas = ToyReplicas()
        self.groups = GroupCoordinator(
            environment,
            self.config,
            self.broker_id,
            self.metadata,
            TaskScope("toy", _raise),
            ShareGroupStates(_stored, _stored),
        )
        self.transactions = TransactionServices(
            environment,
            self.config,
            self.broker_id,
            self.metadata,
            TaskScope("toy", _raise),
            self.groups,
            self.replicas.txn_markers,
        )
        self.share_state_coordinator = ShareStateCoordinator(
            environment, self.config, self.broker_id, self.metadata, TaskScope("toy", _raise)
        )
        self.share_states = ShareStateClient(
            environment,
            self.config,
            self.broker_id,
            self.metadata,
            TaskScope("toy", _raise),
            self.share_state_coordinator,
        )
        self.metrics = BrokerMetrics()
        replicas: Any = self.replicas
        self.share = ShareGroupService(
            environment,
            self.config,
            self.broker_id,
            self.metadata,
            TaskScope("toy", _raise),
            self.share_states,
            self.metrics,
            PartitionServices(_leads_none, replicas, replicas, replicas),
        )
        self.producer_ids = ProducerIds(self.metadata, self.broker_id)
        slots = self.config.whole("max.incremental.fetch.session.cache.slots")
        self.fetch_sessions = FetchSessionCache(slots, environment.entropy)
        self.audit = AuditBuffer(self.config, environment.clock, self.metrics)
        self.reachability = ReachabilityTracker(environment.network, 3.0, self.broker_id)
        self.throttle = ClientQuotas(self.config, self.metrics)
        self.has_started = True
        self.heartbeat_answer: HeartbeatAnswer | None = None
        self.tasks: list[asyncio.Task[None]] = []

    def image_for(self, context: RequestContext) -> MetadataImage:
        return self.metadata.image

    def addressed(self, image: MetadataImage, context: RequestContext) -> MetadataImage:
        return image

    def is_broker(self, context: RequestContext) -> bool:
        return is_broker(context.client_id, SECRET, ADDRESS)

    def background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work, name=name))

    async def broker_heartbeat(self, request: Any) -> HeartbeatAnswer | None:
        return self.heartbeat_answer

    def as_node(self) -> BrokerNode:
        """Return itself as the handlers' type: it has all of a node that they use."""
        return cast("BrokerNode", self)

    async def register(self, *broker_ids: int) -> None:
        """Have brokers registered, this one among them."""
        await self.metadata.decide(
            lambda image: [
                RegisterBrokerRecord(b, f"{b:032x}", f"broker-{b}", 9092, f"rack-{b}")
                for b in broker_ids
            ]
        )

    async def ask(self, request: Any, context: RequestContext = TESTER) -> Any:
        """Return the answer to a request, as a client decodes it if there is one for him."""
        response = await handle(self.as_node(), request, context)
        if response is None or isinstance(response, NoResponse):
            return response
        header = RequestHeader(request.__api_key__, request.__version__, 1)
        frame = bytes(frames.encode_response(header, response))[4:]
        return frames.decode_response(frame, type(request))


def tell(
    story: Callable[[ToyNode], Awaitable[Result]],
    *,
    brokers: tuple[int, ...] = (1,),
    **settings: str,
) -> Result:
    """Run a story against a broker; settings have underscores for dots."""
    world = World()

    async def run() -> Result:
        node = ToyNode(world.environment(), {k.replace("_", "."): v for k, v in settings.items()})
        await node.metadata.open()
        if brokers:
            await node.register(*brokers)
        result = await story(node)
        for task in node.tasks:
            await task
        return result

    return world.run(run())
