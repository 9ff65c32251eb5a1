"""All partitions of one incarnation of a broker: requests find their leaders here.

The composition root: one write-ahead log, one flusher, one fetch loop per leader, one memory
budget. `roles` decides which partitions are led and followed.
  REPLICAS-1: an event that ends an incarnation (its WAL sealed, a task that broke) retires every
      role before any other part gets notice. So nothing is acknowledged after it
Source: DESIGN.md 4.

It also gives the metrics page the figures of the partitions that a broker holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from sparklog.broker.coordinator.partition_log import LeaderListener
from sparklog.broker.coordinator.txn_markers import TxnMarkers
from sparklog.broker.fetch.fetch import FetchService
from sparklog.broker.node.roles import Replica, RoleAssigner, RoleParts
from sparklog.broker.partition.leader import LeaderPartition
from sparklog.broker.partition.recovering import RecoveringPartition
from sparklog.broker.produce.produce import ProduceService
from sparklog.broker.produce.schema_topic import SchemaTopic
from sparklog.broker.replication.alter_partition import AlterPartitionQueue
from sparklog.broker.replication.fetcher import Fetchers, FetchLimits
from sparklog.broker.replication.flusher import Flusher
from sparklog.broker.replication.handover import LeadershipHandover
from sparklog.broker.replication.offset_lookup import OffsetLookup
from sparklog.broker.runtime.current_settings import SettingsInForce
from sparklog.broker.runtime.environment import Environment, TaskScope
from sparklog.broker.runtime.identity import Identity
from sparklog.broker.runtime.memory_budget import MemoryBudget
from sparklog.broker.runtime.metadata_access import MetadataAccess
from sparklog.broker.runtime.metrics import BrokerMetrics, Gauge
from sparklog.broker.share.groups import PartitionServices
from sparklog.broker.wal.appender import WalAppender
from sparklog.broker.wal.batching import WalLimits
from sparklog.cluster.metadata.image import Broker, MetadataImage
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.types import PartitionId
from sparklog.log.partition.history_reader import HistoryCache


def watch_gauges(
    metrics: BrokerMetrics,
    replicas: Mapping[PartitionId, Replica],
    *,
    budget: MemoryBudget,
    wal: WalAppender,
    flusher: Flusher,
    producing: ProduceService,
    fetching: FetchService,
    cache: HistoryCache,
) -> None:
    """Have the page read these, whenever it is asked for."""

    def led() -> list[LeaderPartition]:
        return [one for replica in replicas.values() if (one := replica.led) is not None]

    def recovering_s() -> float:
        now_s = asyncio.get_running_loop().time()
        return max((now_s - one.started_s for one in _recovering(replicas)), default=0.0)

    watch = metrics.watch
    watch(Gauge.RECOVERING, lambda: len(_recovering(replicas)))
    watch(Gauge.RECOVERING_SECONDS, recovering_s)
    watch(Gauge.PARTITIONS, lambda: len(replicas))
    watch(Gauge.LEADERS, lambda: len(led()))
    watch(Gauge.UNDER_REPLICATED, lambda: sum(map(_lacks_replicas, replicas.values())))
    watch(Gauge.UNDER_MIN_ISR, lambda: sum(map(_is_under_min_isr, led())))
    watch(Gauge.OFFLINE_REPLICAS, lambda: sum(map(_is_damaged, replicas.values())))
    watch(Gauge.TAIL_BYTES, lambda: budget.used_bytes)
    watch(Gauge.TAIL_BYTES_LIMIT, lambda: budget.limit_bytes)
    watch(Gauge.WAL_OBJECTS, lambda: wal.objects)
    watch(Gauge.WAL_WAITING_SECONDS, lambda: wal.waiting_s)
    watch(Gauge.FLUSH_OVERDUE_SECONDS, lambda: flusher.overdue_s)
    watch(Gauge.TAIL_WAITING, lambda: budget.waiting)
    watch(Gauge.PRODUCE_WAITING, lambda: producing.waiting)
    watch(Gauge.FETCH_WAITING, lambda: fetching.waiting)
    watch(Gauge.HISTORY_CACHE_BYTES, lambda: cache.size_bytes)


def _recovering(replicas: Mapping[PartitionId, Replica]) -> list[RecoveringPartition]:
    """Return what this broker was elected to lead and does not serve yet."""
    roles = [replica.role for replica in replicas.values()]
    return [role for role in roles if isinstance(role, RecoveringPartition) and role.live]


def _lacks_replicas(replica: Replica) -> bool:
    return replica.led is not None and len(replica.state.isr) < len(replica.state.replicas)


def _is_damaged(replica: Replica) -> bool:
    """Return True if this broker should lead a partition and cannot, as its log is damaged."""
    role = replica.role
    return isinstance(role, (LeaderPartition, RecoveringPartition)) and role.damage is not None


def _is_under_min_isr(led: LeaderPartition) -> bool:
    return len(led.leadership.isr) < led.leadership.min_isr


TICKS_PER_LAG_TIME = 4


class Replicas:
    """See the module. Made for one incarnation of a broker."""

    def __init__(
        self,
        environment: Environment,
        settings: BrokerConfig,
        identity: Identity,
        metadata: MetadataAccess,
        *,
        metrics: BrokerMetrics,
        on_fenced: Callable[[str], None],
        on_crash: Callable[[BaseException], None],
    ) -> None:
        """Hold nothing yet; `start` comes first, then `apply`.

        `on_fenced` and `on_crash` are called once, after everything was retired: start again with
        a new incarnation.
        """
        self.identity = identity
        self._environment = environment
        self._in_force = SettingsInForce(settings, metadata, identity.broker_id)
        self._on_fenced = on_fenced
        self._on_crash = on_crash
        self._lag_ms = settings.whole("replica.lag.time.max.ms")
        self._tasks = TaskScope(f"replicas {identity.broker_id}", self._crashed)
        self.budget = MemoryBudget(settings.whole("tail.bytes"))
        """Of all that is held in memory."""
        self._wal = WalAppender(
            environment,
            identity.wal,
            WalLimits.of(settings),
            metrics=metrics,
            on_fenced=self._fenced,
            on_crash=self._crashed,
        )
        flusher = Flusher(
            environment, self._tasks, wal=self._wal, budget=self.budget, metrics=metrics
        )
        self._handover = LeadershipHandover(environment, identity, metadata, flusher)
        cache = HistoryCache(settings.whole("history.cache.bytes"))
        self.roles = RoleAssigner(
            RoleParts(
                environment=environment,
                identity=identity,
                tasks=self._tasks,
                budget=self.budget,
                cache=cache,
                wal=self._wal,
                flusher=flusher,
                fetchers=Fetchers(
                    environment,
                    identity,
                    metadata,
                    self._tasks,
                    limits=FetchLimits.of(settings),
                    budget=self.budget,
                    metrics=metrics,
                ),
                changes=AlterPartitionQueue(metadata, identity.broker_id, self._tasks, metrics),
                handover=self._handover,
                metrics=metrics,
                lag_ms=self._lag_ms,
            )
        )
        """The partitions that this broker leads and follows."""
        find, led = self.roles.find, self.roles.leader
        self.fetch_service = FetchService(environment, led, metadata, self._tasks, metrics, cache)
        schemas = SchemaTopic(
            environment, metadata, self.fetch_service, self._tasks, identity.broker_id
        )
        self.produce_service = ProduceService(
            environment, find, metadata, self.budget, metrics, schemas
        )
        self.txn_markers = TxnMarkers(environment, find, self.budget)
        """Ends transactions in the partitions led here."""
        self.offset_lookup = OffsetLookup(environment, find, led, flusher)
        self._show(metrics, flusher, cache)

    @property
    def services(self) -> PartitionServices:
        """Return the services of the partitions that are led here."""
        return PartitionServices(
            self.roles.leader, self.fetch_service, self.produce_service, self.offset_lookup
        )

    async def start(self) -> None:
        """Register the write-ahead log and begin.

        Raises:
            Fenced: the incarnation was sealed already; start with a new one.
        """
        await self._wal.start()
        self._tasks.start(self._tick(), "tick")

    async def stop(self) -> None:
        """End everything at once, as a crash would: nothing is flushed or handed over."""
        self.roles.retire_all("the broker stops")
        await self._tasks.close()
        await self._wal.stop()

    def watch(self, topic: str, watcher: LeaderListener) -> None:
        """Notify `watcher` of every partition of a topic that is served here, before any is."""
        self.roles.watch(topic, watcher)

    def apply(self, image: MetadataImage) -> None:
        """Apply the newest image: begin, change and end roles as it says."""
        self.roles.apply(image)

    def suspect(self, broker: Broker) -> None:
        """Prepare to recover what a broker led that refuses connections; it may still run."""
        self.roles.suspect(broker)

    def sizes(self) -> dict[PartitionId, int]:
        """Return the bytes of every partition held here: in memory, and led ones' in storage."""
        return {where: _size_bytes(replica) for where, replica in self.roles.replicas.items()}

    async def drain(self, timeout_s: float = 30.0) -> set[PartitionId]:
        """Take no more records, flush all that is committed; return what is wholly flushed."""
        roles = [replica.role for replica in self.roles.replicas.values()]
        recovering = [role for role in roles if isinstance(role, RecoveringPartition)]
        return await self._handover.drain(self.roles.all_led, recovering, timeout_s)

    async def hand_back(self, partitions: Mapping[PartitionId, int]) -> None:
        """Mark partitions that no longer have a leader as open to direct writers.

        Args:
            partitions: of those that `drain` returned, with the leader epochs in which the metadata
                names no leader.
        """
        layouts = {w: self.roles.replicas[w].layout for w in partitions if w in self.roles.replicas}
        await self._handover.hand_back({layouts[w]: partitions[w] for w in layouts})

    def _show(self, metrics: BrokerMetrics, flusher: Flusher, cache: HistoryCache) -> None:
        watch_gauges(
            metrics,
            self.roles.replicas,
            budget=self.budget,
            wal=self._wal,
            flusher=flusher,
            producing=self.produce_service,
            fetching=self.fetch_service,
            cache=cache,
        )

    def _fenced(self, why: str) -> None:
        if self.roles.end("this incarnation is deposed"):
            self._on_fenced(why)

    def _crashed(self, error: BaseException) -> None:
        if self.roles.end("the broker broke"):
            self._on_crash(error)

    async def _tick(self) -> None:
        """Look for followers that lag, and forget producers that are silent."""
        while True:
            expiration_ms = self._in_force.config.whole("producer.id.expiration.ms")
            await asyncio.sleep(self._lag_ms / TICKS_PER_LAG_TIME / 1000)
            now_ms = int(asyncio.get_running_loop().time() * 1000)
            wall_ms = self._environment.clock.now_ms()
            for led in self.roles.all_led():
                led.tick(now_ms)
                led.producers.expire(wall_ms, expiration_ms)
                led.producers.transactions.forget_below(led.log_start_offset)


def _size_bytes(replica: Replica) -> int:
    led = replica.led
    stored = sum(e.size_bytes for e in led.view.entries) if led is not None else 0
    return stored + replica.held.tail.size_bytes
