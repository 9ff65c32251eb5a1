"""SharePartitions: the windows of share groups in the partitions that this broker leads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from sparklog.broker.fetch.read import READ_COMMITTED, Leaders
from sparklog.broker.partition.leader import LeaderPartition
from sparklog.broker.replication.offset_lookup import EARLIEST, LATEST, OffsetLookup
from sparklog.broker.runtime.environment import Environment, TaskScope
from sparklog.broker.share.dead_letters import DeadLetterWriter
from sparklog.broker.share.partition import SharePartition
from sparklog.broker.share.state_client import ShareStateClient
from sparklog.coordinator.share.delivery_state import SharePartitionKey
from sparklog.coordinator.share.settings import ResetPolicy, ShareGroupSettings
from sparklog.core.types import PartitionId
from sparklog.protocol.topic_ids import topic_id_of

ANY_EPOCH = -1


class SharePartitions:
    """The share partitions of one incarnation of a broker."""

    def __init__(
        self,
        environment: Environment,
        leaders: Leaders,
        lookup: OffsetLookup,
        states: ShareStateClient,
        tasks: TaskScope,
        settings_of: Callable[[str], ShareGroupSettings],
        dead_letters: DeadLetterWriter,
    ) -> None:
        """Begin without partitions.

        Args:
            environment: has the clock.
            leaders: finds a led partition.
            lookup: finds offsets for the reset policy.
            states: reads and writes stored states.
            tasks: the scope of the incarnation's tasks.
            settings_of: returns a group's settings.
            dead_letters: writes records that a group gives up.
        """
        self._environment = environment
        self._leaders = leaders
        self._lookup = lookup
        self._states = states
        self._tasks = tasks
        self._settings_of = settings_of
        self._dead_letters = dead_letters
        self._parts: dict[SharePartitionKey, SharePartition] = {}

    def all(self) -> Iterable[SharePartition]:
        """Return the share partitions that are held now."""
        return self._parts.values()

    async def find(self, group_id: str, topic_id: UUID, number: int) -> SharePartition:
        """Return a group's partition with its state loaded.

        Raises:
            NotServing, UnknownTopicOrPartition: refresh metadata.
            SparklogError: the state cannot be read now.
        """
        key = SharePartitionKey(group_id, topic_id, number)
        led = self._leaders(PartitionId(topic_id_of(topic_id), number))
        part = self._parts.get(key)
        if part is not None and part.retired:
            await part.written()
            part.drop(part.resigned())
            part = self._parts.get(key)
        if part is None or part.led is not led or not part.live:
            part = self._parts[key] = SharePartition(
                key,
                led,
                self._states,
                self._tasks,
                settings=lambda: self._settings_of(group_id),
                reset=self._start_offset,
                bury=self._dead_letters.bury,
                idle=self.forget_idle,
            )
        await part.load()
        return part

    def of_group(self, group_id: str) -> list[SharePartition]:
        """Return a group's partitions that are held here and whose windows hold."""
        return [p for p in self._parts.values() if p.key.group_id == group_id and p.live]

    def retire(self, group_id: str) -> None:
        """Forget the windows of a group without sessions here, once all is written."""
        for part in self.of_group(group_id):
            part.retired = True
            self.forget_idle(part)

    def forget_idle(self, part: SharePartition) -> None:
        """Forget a window that is retired and has nothing to write."""
        idle = not part.is_writing and not self._dead_letters.has(part)
        if part.retired and idle and self._parts.get(part.key) is part:
            del self._parts[part.key]

    def forget_resigned(self) -> None:
        """Drop the windows of partitions that this broker leads no more."""
        for key in [key for key, part in self._parts.items() if not part.led.live]:
            part = self._parts.pop(key)
            part.drop(part.resigned())

    async def _start_offset(self, led: LeaderPartition, settings: ShareGroupSettings) -> int:
        """Return the first offset of a group without a stored one, by its reset policy."""
        isolation = READ_COMMITTED if settings.read_committed else 0
        reset = settings.offset_reset
        if reset.policy is ResetPolicy.LATEST:
            timestamp = LATEST
        elif reset.policy is ResetPolicy.EARLIEST:
            timestamp = EARLIEST
        else:
            timestamp = max(0, self._environment.clock.now_ms() - reset.duration_ms)
        found = await self._lookup.list_offset(led.where, timestamp, isolation, ANY_EPOCH)
        if found.offset < 0:  # no record is as young as the policy wants
            found = await self._lookup.list_offset(led.where, LATEST, isolation, ANY_EPOCH)
        return found.offset
