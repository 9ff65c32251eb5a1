"""The roles of a broker: which partitions it leads and follows, as the newest metadata says.

It takes each image of the metadata at once and in order (`apply`).
  ROLES-1: a partition is led here only in the epoch of the newest image, and by a registration
      that is this incarnation's and not fenced
  ROLES-2: a leader serves only after recovery, and hands over only after all it has is flushed
Source: DESIGN.md 4.

One partition as this broker holds it, and the one role it has at a time.

ROLES-3: a role belongs to one leader epoch; the next epoch's role is a new object
ROLES-4: the role before is retired before the next one begins
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from sparklog.broker.coordinator.partition_log import CoordinatorPartition, LeaderListener
from sparklog.broker.partition.config import TopicRules
from sparklog.broker.partition.follower import FollowerPartition
from sparklog.broker.partition.leader import LeaderPartition, LeaderServices
from sparklog.broker.partition.recovering import RecoveringPartition
from sparklog.broker.partition.tail import PartitionTail
from sparklog.broker.replication.alter_partition import AlterPartitionQueue
from sparklog.broker.replication.fetcher import Fetchers
from sparklog.broker.replication.flusher import Flusher
from sparklog.broker.replication.handover import LeadershipHandover
from sparklog.broker.replication.recovery import LeaderRecovery, Recovered
from sparklog.broker.runtime.environment import Environment, TaskScope
from sparklog.broker.runtime.identity import Identity
from sparklog.broker.runtime.log_summary import GatheredNotes
from sparklog.broker.runtime.memory_budget import MemoryBudget
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.broker.wal.appender import WalAppender
from sparklog.cluster.controller.leader_state import LeaderState
from sparklog.cluster.metadata.image import Broker, MetadataImage, PartitionState, Topic
from sparklog.cluster.metadata.records import NO_LEADER
from sparklog.core.errors import NotServing, UnknownTopicOrPartition
from sparklog.core.types import PartitionId
from sparklog.log.layout import PartitionLayout
from sparklog.log.partition.history_reader import HistoryCache, HistoryReader
from sparklog.log.tail.tail import Tail

Role = LeaderPartition | RecoveringPartition | FollowerPartition


class Replica:
    """See the module."""

    def __init__(
        self,
        where: PartitionId,
        layout: PartitionLayout,
        state: PartitionState,
        held: PartitionTail,
        rules: TopicRules,
    ) -> None:
        """Hold a partition in no role yet."""
        self.where = where
        self.layout = layout
        self.state = state
        """As the newest image has it."""
        self.held = held
        self.rules = rules
        self.role: Role | None = None

    @property
    def led(self) -> LeaderPartition | None:
        """Return the role of a leader that serves, if it has that."""
        role = self.role
        return role if isinstance(role, LeaderPartition) and role.live else None


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleParts:
    """The parts with which one incarnation of a broker begins, serves and ends roles."""

    environment: Environment
    identity: Identity
    tasks: TaskScope
    budget: MemoryBudget
    cache: HistoryCache
    wal: WalAppender
    flusher: Flusher
    fetchers: Fetchers
    changes: AlterPartitionQueue
    handover: LeadershipHandover
    metrics: BrokerMetrics
    lag_ms: int
    """For how long a follower may lag and be in sync."""


class RoleAssigner:
    """Assigns roles to the replicas of one incarnation. Kafka's `ReplicaManager`."""

    def __init__(self, parts: RoleParts) -> None:
        """Hold nothing yet."""
        self._parts = parts
        self._takeover = LeaderRecovery(parts.environment)
        self._notes = GatheredNotes(logger)
        self._services = LeaderServices(
            parts.wal, parts.flusher.committed, parts.changes.change_isr, self.broker_epoch
        )
        self._ended = False
        self._image = MetadataImage()
        self._joinable: list[int] = []
        """Brokers that may join the in-sync replicas."""
        self._watchers: dict[str, LeaderListener] = {}
        self.replicas: dict[PartitionId, Replica] = {}
        """The partitions held here, in any role."""

    def watch(self, topic: str, watcher: LeaderListener) -> None:
        """Notify `watcher` of every partition of a topic that is served here, before any is."""
        self._watchers[topic] = watcher

    def apply(self, image: MetadataImage) -> None:
        """Apply the newest image: begin, change and end roles as it says."""
        before, self._image = self._image, image
        if image.brokers is not before.brokers:
            self._joinable = [b.broker_id for b in image.eligible_brokers()]
        if self._ended:
            return
        me = self._parts.identity
        mine = image.brokers.get(me.broker_id)
        if mine is None or mine.incarnation != me.incarnation or mine.fenced:
            self.retire_all("this incarnation is deposed")
            return
        if image.names is not before.names:
            for topic_id, name in before.names.items():
                if topic_id not in image.names:
                    self._drop_topic(before.topics[name])
        for topic in image.changed_topics(before):
            self._apply_topic(topic, before.topic_of(topic.topic_id))
        if image.brokers is not before.brokers:
            for replica in self.replicas.values():
                self._tell_metadata(replica)
                if replica.led is not None:
                    replica.led.brokers_changed()

    def find(self, where: PartitionId) -> LeaderPartition | RecoveringPartition:
        """Return what leads a partition here.

        Raises:
            NotServing: another broker leads it. UnknownTopicOrPartition, PartitionDamaged: none.
        """
        replica = self.replicas.get(where)
        role = replica.role if replica is not None else None
        if isinstance(role, (LeaderPartition, RecoveringPartition)):
            if role.live:
                return role
            if role.damage is not None:
                raise role.damage
        if self._image.partition(where) is None:
            raise UnknownTopicOrPartition(f"no such partition. partition={where}")
        raise NotServing(
            "this broker does not lead the partition; refresh metadata. "
            f"partition={where} broker_id={self._parts.identity.broker_id}"
        )

    def leader(self, where: PartitionId) -> LeaderPartition:
        """Return what leads a partition here and serves.

        Raises:
            NotServing: another broker leads it, or it recovers.
            UnknownTopicOrPartition, PartitionDamaged: no broker leads it.
        """
        role = self.find(where)
        if isinstance(role, RecoveringPartition):
            raise role.not_ready_error()
        return role

    def all_led(self) -> list[LeaderPartition]:
        """Return all partitions that are led and served here."""
        return [led for r in self.replicas.values() if (led := r.led) is not None]

    def retire_all(self, why: str) -> None:
        """End every role, because of `why`; the next image may begin some anew."""
        for replica in self.replicas.values():
            if replica.role is not None:
                self._note(replica, f"giving up ({why})", replica.role.leader_epoch)
            self._retire(replica, why)

    def end(self, why: str) -> bool:
        """End every role for good; return whether that is new."""
        if self._ended:
            return False
        self._ended = True
        self.retire_all(why)
        self._notes.log()
        return True

    def suspect(self, broker: Broker) -> None:
        """Read early what recovery needs if a broker is dead, which may still run."""
        reading = self._takeover.read_early(broker.wal)
        self._parts.tasks.start(reading, f"read early {broker.wal.folder}")

    def broker_epoch(self, broker_id: int) -> int:
        """Return the epoch of a broker's newest registration; -1 when it is fenced or unknown."""
        broker = self._image.brokers.get(broker_id)
        return -1 if broker is None or broker.fenced else broker.epoch

    # Roles.

    def _apply_topic(self, topic: Topic, before: Topic | None) -> None:
        changed = before is None or topic.settings != before.settings
        rules = TopicRules.of(topic.settings, self._parts.lag_ms, topic.name) if changed else None
        for number, state in enumerate(topic.partition_states):
            same = (
                before is not None
                and number < before.partitions
                and before.partition_states[number] is state
            )
            if same and rules is None:
                continue
            where = PartitionId(topic.topic_id, number)
            if rules is None and where not in self.replicas:
                rules = TopicRules.of(topic.settings, self._parts.lag_ms)
            self._apply_partition(where, topic, state, rules)

    def _apply_partition(
        self, where: PartitionId, topic: Topic, state: PartitionState, rules: TopicRules | None
    ) -> None:
        me = self._parts.identity.broker_id
        replica = self.replicas.get(where)
        if me != state.leader and me not in state.replicas:
            if replica is not None:
                self._drop(replica)
            if not state.recovering:
                self._parts.wal.release(where)
            return
        if replica is None:
            assert rules is not None, where
            layout = PartitionLayout(topic.name, topic.topic_id, where.partition)
            held = PartitionTail(Tail(0), self._parts.budget)
            replica = self.replicas[where] = Replica(where, layout, state, held, rules)
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
            # The leader has said that all of earlier epochs is in the partition's own log.
            self._parts.wal.release(where)

    def _begin(self, replica: Replica) -> None:
        """Take the role that the newest state gives."""
        state, where = replica.state, replica.where
        if state.leader == self._parts.identity.broker_id:
            role = RecoveringPartition(where, replica.layout, state, replica.held, replica.rules)
            replica.role = role
            self._note(replica, "taking over", state.leader_epoch)
            self._parts.tasks.start(self._take_over(replica, role), f"take over {where}")
        elif state.leader != NO_LEADER:
            followed = FollowerPartition(
                where,
                replica.layout.topic,
                state.leader,
                state.leader_epoch,
                replica.held,
                self._parts.fetchers.limits.backoff_s,
            )
            replica.role = followed
            self._note(replica, "following", state.leader_epoch, f" leader={state.leader}")
            self._parts.fetchers.follow(followed)

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
        self._parts.wal.release(where)
        led = LeaderPartition(
            where,
            replica.layout,
            role.leader_epoch,
            held=replica.held,
            view=recovered.view,
            producers=recovered.producers,
            leadership=LeaderState(
                self._parts.identity.broker_id,
                end_offset,
                replicas=state.replicas,
                isr=state.isr,
                joinable=self._joinable,
                rules=replica.rules.commit,
                now_ms=_now_ms(),
            ),
            history=HistoryReader(replica.layout, self._parts.cache),
            rules=replica.rules,
            services=self._services,
        )
        led.closing = self._parts.handover.draining
        replica.role = led
        self._parts.metrics.took_over(asyncio.get_running_loop().time() - role.started_s)
        self._note(replica, "leading", led.leader_epoch, f" end_offset={end_offset}")
        if state.recovering or state.wals:
            self._parts.changes.recovered(led)
        self._look_at_next_leader(replica, led)
        watcher = self._watchers.get(replica.layout.topic)
        if watcher is not None:
            log = CoordinatorPartition(led, self._parts.environment, self._parts.budget)
            watcher.on_elected(where.partition, log)

    def _tell_metadata(self, replica: Replica) -> None:
        led, state = replica.led, replica.state
        if led is None or led.leader_epoch != state.leader_epoch:
            return
        led.apply_events(
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
        if isinstance(role, LeaderPartition) and role.rules is not replica.rules:
            role.rules = replica.rules
            role.apply_events(role.leadership.rules_changed(replica.rules.commit))

    def _look_at_next_leader(self, replica: Replica, led: LeaderPartition) -> None:
        """Hand over when asked to, and serve on when no longer asked."""
        if replica.state.next_leader != NO_LEADER:
            if not led.closing:
                led.closing = True
                self._parts.tasks.start(
                    self._parts.handover.hand_over(led), f"hand over {led.where}"
                )
        elif led.closing and not self._parts.handover.draining:
            led.closing = False

    def _retire(self, replica: Replica, why: str) -> None:
        """End the role there is."""
        match replica.role:
            case LeaderPartition() as led:
                led.retire(NotServing(f"{why}; refresh metadata. partition={replica.where}"))
                self._parts.flusher.forget(led)
                watcher = self._watchers.get(replica.layout.topic)
                if watcher is not None:
                    watcher.on_resigned(replica.where.partition)
            case FollowerPartition() as followed:
                self._parts.fetchers.unfollow(followed)
            case RecoveringPartition() as recovering:
                recovering.retire()
            case None:
                pass
        replica.role = None

    def _drop(self, replica: Replica) -> None:
        """Hold a partition no more."""
        self._note(replica, "dropping", replica.state.leader_epoch)
        self._retire(replica, "this broker does not hold the partition any more")
        replica.held.reset(0)
        del self.replicas[replica.where]

    def _note(self, replica: Replica, what: str, epoch: int, details: str = "") -> None:
        self._notes.add(what, replica.layout.topic, replica.where.partition, epoch, details)

    def _drop_topic(self, topic: Topic) -> None:
        for number in range(topic.partitions):
            where = PartitionId(topic.topic_id, number)
            if where in self.replicas:
                self._drop(self.replicas[where])
            self._parts.wal.release(where)


def _now_ms() -> int:
    return int(asyncio.get_running_loop().time() * 1000)
