"""All partitions this broker leads and follows: roles follow the metadata, requests find leaders.

The composition root of the replicas: one write-ahead log, one flusher, one fetch loop per leader,
one memory budget. It takes each image of the metadata at once and in order (`apply`).
  L1  a partition is led here only in the epoch of the newest image, and by a registration that
      is this incarnation's and not fenced
  L2  what ends an incarnation (its WAL sealed, a task that broke) retires every role before
      anybody else is told: nothing is acknowledged after it
  L3  a leader serves only after recovery, and hands over only after all it has is flushed
Source: DESIGN.md 4.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from sparklog.broker.coordinator_log import CoordinatorLog, LeaderWatcher
from sparklog.broker.environment import Environment
from sparklog.broker.fetch_reading import FetchResult, FetchSpec
from sparklog.broker.fetcher import Fetchers, FetchLimits
from sparklog.broker.fetching import Fetching
from sparklog.broker.flusher import Flusher
from sparklog.broker.followed_partition import FollowedPartition
from sparklog.broker.handover import Handover
from sparklog.broker.held_tail import HeldTail
from sparklog.broker.identity import Identity
from sparklog.broker.led_partition import LedPartition
from sparklog.broker.marking import Marking
from sparklog.broker.memory_budget import MemoryBudget
from sparklog.broker.metadata_access import MetadataAccess
from sparklog.broker.metadata_changes import MetadataChanges
from sparklog.broker.metrics import BrokerMetrics
from sparklog.broker.offset_lookup import FoundOffset, OffsetLookup
from sparklog.broker.produce_job import ProduceResult, Verified
from sparklog.broker.producing import Producing
from sparklog.broker.recovering_partition import RecoveringPartition
from sparklog.broker.replica import Replica
from sparklog.broker.replica_gauges import watch_gauges
from sparklog.broker.takeover import Recovered, Takeover
from sparklog.broker.task_scope import TaskScope
from sparklog.broker.topic_rules import TopicRules
from sparklog.broker.wal_pump import WalPump
from sparklog.broker.wal_window import WalLimits
from sparklog.cluster.image import MetadataImage, Partition, Topic
from sparklog.cluster.leadership import ExpandIsr, Leadership, ShrinkIsr
from sparklog.cluster.records import NO_LEADER
from sparklog.core.broker_settings import BrokerConfig
from sparklog.core.errors import NotServing, UnknownTopicOrPartition
from sparklog.core.types import PartitionId
from sparklog.log.history import HistoryReader
from sparklog.log.history_cache import HistoryCache
from sparklog.log.layout import PartitionLayout
from sparklog.log.tail import EpochEnd, Tail
from sparklog.log.wal_object import WalBatch

logger = logging.getLogger(__name__)

TICKS_PER_LAG_TIME = 4


class BrokerReplicas:
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
        self._settings = settings
        self._metadata = metadata
        self._metrics = metrics
        self._on_fenced = on_fenced
        self._on_crash = on_crash
        self._ended = False
        self._tasks = TaskScope(f"replicas {identity.broker_id}", self._crashed)
        self._budget = MemoryBudget(settings.whole("tail.bytes"))
        self._cache = HistoryCache(settings.whole("history.cache.bytes"))
        self._pump = WalPump(
            environment,
            identity.wal,
            WalLimits.of(settings),
            metrics=metrics,
            on_fenced=self._fenced,
            on_crash=self._crashed,
        )
        self._flusher = Flusher(
            environment, self._tasks, pump=self._pump, budget=self._budget, metrics=metrics
        )
        self._changes = MetadataChanges(metadata, identity.broker_id, self._tasks, metrics)
        self._handover = Handover(environment, identity, metadata, self._flusher)
        self._takeover = Takeover(environment)
        self._fetchers = Fetchers(
            environment,
            identity,
            metadata,
            self._tasks,
            limits=FetchLimits.of(settings),
            budget=self._budget,
            metrics=metrics,
        )
        self._producing = Producing(environment, self._find, metadata, self._budget, metrics)
        self.marking = Marking(environment, self._find, self._budget)
        """Ends transactions in the partitions led here."""
        self._fetching = Fetching(environment, self._leader, metadata, self._tasks, metrics)
        self._lookup = OffsetLookup(environment, self._leader, self._flusher)
        self._lag_ms = settings.whole("replica.lag.time.max.ms")
        self._replicas: dict[PartitionId, Replica] = {}
        self._image = MetadataImage()
        self._joinable: list[int] = []
        """Brokers that may join the in-sync replicas."""
        self._watchers: dict[str, LeaderWatcher] = {}
        watch_gauges(
            metrics,
            self._replicas,
            budget=self._budget,
            pump=self._pump,
            flusher=self._flusher,
            producing=self._producing,
            fetching=self._fetching,
            cache=self._cache,
        )

    async def start(self) -> None:
        """Register the write-ahead log and begin.

        Raises:
            Fenced: the incarnation was sealed already; start with a new one.
        """
        await self._pump.start()
        self._tasks.start(self._tick(), "tick")

    async def stop(self) -> None:
        """End everything at once, as a crash would: nothing is flushed or handed over."""
        self._retire_all("the broker stops")
        await self._tasks.close()
        await self._pump.stop()

    def watch(self, topic: str, watcher: LeaderWatcher) -> None:
        """Tell `watcher` of every partition of a topic that is served here, before any is."""
        self._watchers[topic] = watcher

    def apply(self, image: MetadataImage) -> None:
        """Take in the newest image: begin, change and end roles as it says."""
        before, self._image = self._image, image
        if image.brokers is not before.brokers:
            self._joinable = [b.broker_id for b in image.eligible_brokers()]
        if self._ended:
            return
        mine = image.brokers.get(self.identity.broker_id)
        if mine is None or mine.incarnation != self.identity.incarnation or mine.fenced:
            self._retire_all("this incarnation is deposed")
            return
        for topic_id, name in before.names.items():
            if topic_id not in image.names:
                self._drop_topic(before.topics[name])
        known = {topic.topic_id: topic for topic in before.topics.values()}
        for topic in image.topics.values():
            self._apply_topic(topic, known.get(topic.topic_id))
        if image.brokers is not before.brokers:
            for replica in self._replicas.values():
                self._tell_metadata(replica)
                if replica.led is not None:
                    replica.led.brokers_changed()

    async def produce(
        self,
        batches: Mapping[PartitionId, bytes],
        acks: int,
        timeout_ms: int,
        verified: Verified | None = None,
    ) -> dict[PartitionId, ProduceResult]:
        """Append one batch to each partition, in the order of the calls; see `producing`.

        With `verified` given, transactional batches need what `marking` returned for them.
        """
        return await self._producing.produce(batches, acks, timeout_ms, verified)

    async def fetch(self, spec: FetchSpec) -> dict[PartitionId, FetchResult]:
        """Read partitions led here, waiting for news where there are none; see `fetching`."""
        return await self._fetching.fetch(spec)

    async def list_offset(
        self, where: PartitionId, timestamp: int, isolation: int, current_leader_epoch: int
    ) -> FoundOffset:
        """Return the offset for a time, or for one of Kafka's special ones; see `offset_lookup`."""
        return await self._lookup.list_offset(where, timestamp, isolation, current_leader_epoch)

    async def end_of_epoch(
        self, where: PartitionId, current_leader_epoch: int, epoch: int
    ) -> EpochEnd:
        """Return the newest epoch up to `epoch`, and where it ended."""
        return self._lookup.end_of_epoch(where, current_leader_epoch, epoch)

    async def delete_records(self, where: PartitionId, offset: int) -> int:
        """Drop everything before `offset`, -1 being the high watermark; return the new start."""
        return await self._lookup.delete_records(where, offset)

    def sizes(self) -> dict[PartitionId, int]:
        """Return the bytes of every partition held here: in memory, and led ones' in storage."""
        return {where: _size_bytes(replica) for where, replica in self._replicas.items()}

    async def drain(self, timeout_s: float = 30.0) -> set[PartitionId]:
        """Take no more records, flush all that is committed; return what is wholly flushed."""
        roles = [replica.role for replica in self._replicas.values()]
        recovering = [role for role in roles if isinstance(role, RecoveringPartition)]
        return await self._handover.drain(self._all_led, recovering, timeout_s)

    async def hand_back(self, partitions: Mapping[PartitionId, int]) -> None:
        """Mark partitions that nobody leads any more as open to direct writers.

        Args:
            partitions: of those that `drain` returned, with the leader epochs in which the metadata
                says that nobody leads.
        """
        layouts = {w: self._replicas[w].layout for w in partitions if w in self._replicas}
        await self._handover.hand_back({layouts[w]: partitions[w] for w in layouts})

    # What led partitions ask for: `LeadershipListener`.

    def to_wal(self, batch: WalBatch, end_offset: int, led: LedPartition) -> None:
        """Put a batch into the write-ahead log."""
        self._pump.append(batch, end_offset, led, awaited=led.leadership.needs_wal)

    def committed(self, led: LedPartition) -> None:
        """Take in that there is more to flush."""
        self._flusher.committed(led)

    def change_isr(self, led: LedPartition, change: ExpandIsr | ShrinkIsr) -> None:
        """Propose a change of the in-sync replicas."""
        self._changes.change_isr(led, change)

    def broker_epoch(self, broker_id: int) -> int:
        """Return the epoch of a broker's newest registration; -1 when it is fenced or unknown."""
        broker = self._image.brokers.get(broker_id)
        return -1 if broker is None or broker.fenced else broker.epoch

    # Finding who answers a request.

    def _find(self, where: PartitionId) -> LedPartition | RecoveringPartition:
        """Return what leads a partition here.

        Raises:
            NotServing: another broker leads it. UnknownTopicOrPartition, PartitionDamaged: nobody.
        """
        replica = self._replicas.get(where)
        role = replica.role if replica is not None else None
        if isinstance(role, (LedPartition, RecoveringPartition)):
            if role.live:
                return role
            if role.damage is not None:
                raise role.damage
        if self._image.partition(where) is None:
            raise UnknownTopicOrPartition(f"no such partition. partition={where}")
        raise NotServing(
            "this broker does not lead the partition; refresh metadata. "
            f"partition={where} broker_id={self.identity.broker_id}"
        )

    def _leader(self, where: PartitionId) -> LedPartition:
        role = self._find(where)
        if isinstance(role, RecoveringPartition):
            raise role.not_yet()
        return role

    # Roles.

    def _apply_topic(self, topic: Topic, before: Topic | None) -> None:
        if topic is before:
            return
        changed = before is None or topic.settings != before.settings
        rules = TopicRules.of(topic.settings, self._lag_ms, topic.name) if changed else None
        for number, state in enumerate(topic.partition_states):
            same = (
                before is not None
                and number < before.partitions
                and before.partition_states[number] is state
            )
            if same and rules is None:
                continue
            where = PartitionId(topic.topic_id, number)
            if rules is None and where not in self._replicas:
                rules = TopicRules.of(topic.settings, self._lag_ms)
            self._apply_partition(where, topic, state, rules)

    def _apply_partition(
        self, where: PartitionId, topic: Topic, state: Partition, rules: TopicRules | None
    ) -> None:
        me = self.identity.broker_id
        replica = self._replicas.get(where)
        if me != state.leader and me not in state.replicas:
            if replica is not None:
                self._drop(replica)
            if not state.recovering:
                self._pump.release(where)
            return
        if replica is None:
            assert rules is not None, where
            layout = PartitionLayout(topic.name, topic.topic_id, where.partition)
            held = HeldTail(Tail(0), self._budget)
            replica = self._replicas[where] = Replica(where, layout, state, held, rules)
        replica.state = state
        if rules is not None:
            replica.rules = rules
        role = replica.role
        if role is None or role.leader_epoch != state.leader_epoch:
            self._retire(replica, "the partition has a later leader epoch")
            self._begin(replica)
        else:
            self._tell_rules(replica)
            self._tell_metadata(replica)
        if not state.recovering and state.leader != me:
            # Whoever leads has said that all of earlier epochs is in the partition's own log.
            self._pump.release(where)

    def _begin(self, replica: Replica) -> None:
        """Take the role that the newest state gives."""
        state, where = replica.state, replica.where
        if state.leader == self.identity.broker_id:
            role = RecoveringPartition(where, replica.layout, state, replica.held, replica.rules)
            replica.role = role
            self._tasks.start(self._take_over(replica, role), f"take over {where}")
        elif state.leader != NO_LEADER:
            followed = FollowedPartition(
                where, replica.layout.topic, state.leader, state.leader_epoch, replica.held
            )
            replica.role = followed
            self._fetchers.follow(followed)

    async def _take_over(self, replica: Replica, role: RecoveringPartition) -> None:
        recovered = await self._takeover.recover(role)
        if recovered is not None and role.live and replica.role is role:
            self._serve(replica, role, recovered)
        role.retire()

    def _serve(self, replica: Replica, role: RecoveringPartition, recovered: Recovered) -> None:
        """Begin to lead. From the check of the role on nothing was awaited."""
        state, where = replica.state, replica.where
        end_offset = recovered.view.end_offset
        replica.held.reset(end_offset)
        self._pump.release(where)
        led = LedPartition(
            where,
            replica.layout,
            role.leader_epoch,
            held=replica.held,
            view=recovered.view,
            producers=recovered.producers,
            leadership=Leadership(
                self.identity.broker_id,
                end_offset,
                replicas=state.replicas,
                isr=state.isr,
                joinable=self._joinable,
                rules=replica.rules.commit,
                now_ms=_now_ms(),
            ),
            history=HistoryReader(replica.layout, self._cache),
            rules=replica.rules,
            listener=self,
        )
        led.closing = self._handover.draining
        replica.role = led
        self._metrics.took_over(asyncio.get_running_loop().time() - role.started_s)
        logger.info(
            "leading partition=%s-%d epoch=%d end_offset=%d",
            replica.layout.topic,
            where.partition,
            led.leader_epoch,
            end_offset,
        )
        if state.recovering or state.wals:
            self._changes.recovered(led)
        self._look_at_next_leader(replica, led)
        watcher = self._watchers.get(replica.layout.topic)
        if watcher is not None:
            log = CoordinatorLog(led, self._environment, self._budget)
            watcher.led(where.partition, log)

    def _tell_metadata(self, replica: Replica) -> None:
        led, state = replica.led, replica.state
        if led is None or led.leader_epoch != state.leader_epoch:
            return
        led.obey(
            led.leadership.metadata_changed(
                replicas=state.replicas,
                isr=state.isr,
                joinable=self._joinable,
                now_ms=_now_ms(),
            )
        )
        self._look_at_next_leader(replica, led)

    def _tell_rules(self, replica: Replica) -> None:
        role = replica.role
        if isinstance(role, LedPartition) and role.rules is not replica.rules:
            role.rules = replica.rules
            role.obey(role.leadership.rules_changed(replica.rules.commit))

    def _look_at_next_leader(self, replica: Replica, led: LedPartition) -> None:
        """Hand over when asked to, and serve on when not asked any more."""
        if replica.state.next_leader != NO_LEADER:
            if not led.closing:
                led.closing = True
                self._tasks.start(self._handover.hand_over(led), f"hand over {led.where}")
        elif led.closing and not self._handover.draining:
            led.closing = False

    def _retire(self, replica: Replica, why: str) -> None:
        """End the role there is."""
        match replica.role:
            case LedPartition() as led:
                led.retire(NotServing(f"{why}; refresh metadata. partition={replica.where}"))
                self._flusher.forget(led)
                watcher = self._watchers.get(replica.layout.topic)
                if watcher is not None:
                    watcher.retired(replica.where.partition)
            case FollowedPartition() as followed:
                self._fetchers.unfollow(followed)
            case RecoveringPartition() as recovering:
                recovering.retire()
            case None:
                pass
        replica.role = None

    def _drop(self, replica: Replica) -> None:
        """Hold a partition no more."""
        self._retire(replica, "this broker does not hold the partition any more")
        replica.held.reset(0)
        del self._replicas[replica.where]

    def _drop_topic(self, topic: Topic) -> None:
        for number in range(topic.partitions):
            where = PartitionId(topic.topic_id, number)
            if where in self._replicas:
                self._drop(self._replicas[where])
            self._pump.release(where)

    def _retire_all(self, why: str) -> None:
        for replica in self._replicas.values():
            self._retire(replica, why)

    def _fenced(self, why: str) -> None:
        if not self._ended:
            self._ended = True
            self._retire_all("this incarnation is deposed")
            self._on_fenced(why)

    def _crashed(self, error: BaseException) -> None:
        if not self._ended:
            self._ended = True
            self._retire_all("the broker broke")
            self._on_crash(error)

    async def _tick(self) -> None:
        """Look for followers that lag, and forget producers that are silent."""
        expiration_ms = self._settings.whole("producer.id.expiration.ms")
        while True:
            await asyncio.sleep(self._lag_ms / TICKS_PER_LAG_TIME / 1000)
            now_ms, wall_ms = _now_ms(), self._environment.clock.now_ms()
            for led in self._all_led():
                led.tick(now_ms)
                led.producers.expire(wall_ms, expiration_ms)
                led.producers.transactions.forget_below(led.log_start_offset)

    def _all_led(self) -> list[LedPartition]:
        return [led for r in self._replicas.values() if (led := r.led) is not None]


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)


def _size_bytes(replica: Replica) -> int:
    led = replica.led
    stored = sum(e.size_bytes for e in led.view.entries) if led is not None else 0
    return stored + replica.held.tail.size_bytes
