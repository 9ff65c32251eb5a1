"""GroupCoordinator: the group coordinator of one incarnation of a broker.

It finds a group's shard and runs the request as an event of the shard, which decides:
`coordinator.group.shard`. If another broker coordinates the group, the client gets NotCoordinator,
and finds that broker by FindCoordinator.

GroupRules gives the configs of groups that this broker understands. TopicsView shows the cluster's
topics to the shards of consumer groups.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar, cast
from uuid import UUID

from kio.schema.errors import ErrorCode

from sparklog.broker.coordinator.runtime import CoordinatorRuntime
from sparklog.broker.coordinator.share_groups import ShareGroupStates
from sparklog.broker.partition.config import log_left_out
from sparklog.broker.runtime.environment import Environment, TaskScope
from sparklog.broker.runtime.metadata_access import MetadataAccess
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.coordinator.config import GroupSettings
from sparklog.coordinator.consumer.messages import (
    ConsumerGroupDescription,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
)
from sparklog.coordinator.effects import CoordinatorResult, ProducerIdentity, Token
from sparklog.coordinator.group.description import DescribedGroup, ListedGroup
from sparklog.coordinator.group.shard import GroupShard
from sparklog.coordinator.internal_topics import GROUPS_TOPIC, partition_for
from sparklog.coordinator.messages import (
    CommitRequest,
    DeletedOffsets,
    FetchRequest,
    GroupOffsetsResult,
    HeartbeatRequest,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    LeaveResult,
    SyncRequest,
    SyncResult,
)
from sparklog.coordinator.share.delivery_state import SharePartitionKey
from sparklog.coordinator.share.heartbeat import ShareChange
from sparklog.coordinator.share.messages import (
    InitializeShareState,
    ShareGroupDescription,
    ShareHeartbeat,
    ShareHeartbeatAnswer,
    ShareStatesToDelete,
)
from sparklog.coordinator.share.settings import ShareSettings
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.config.group import GROUP_CONFIGS, NONE_SET
from sparklog.core.config.model import Config, parse_configs, understood
from sparklog.core.errors import CoordinatorLoading, NotCoordinator, SparklogError
from sparklog.log.tail.producer_state import UNVERIFIED, Verification
from sparklog.protocol.topic_ids import topic_id_of, uuid_of


class GroupRules:
    """The configs of groups. Settings of a newer version are ignored, and logged."""

    def __init__(self, metadata: MetadataAccess) -> None:
        """Read configs from the newest image of `metadata`."""
        self._metadata = metadata
        self._known: dict[str, tuple[Mapping[str, str], Config]] = {}
        """By group: the stored and the parsed configs. A cache, since each heartbeat needs them."""

    def of(self, group_id: str) -> Config:
        """Return the configs of a group."""
        stored = self._metadata.image.group_configs.get(group_id)
        if stored is None:
            self._known.pop(group_id, None)
            return NONE_SET
        before = self._known.get(group_id)
        if before is not None and before[0] == stored:
            return before[1]
        known, strange = understood(stored, GROUP_CONFIGS)
        if strange:
            log_left_out(f"group={group_id}", strange)
        config = parse_configs(known, GROUP_CONFIGS)
        self._known[group_id] = stored, config
        return config


class TopicsView:
    """All topics of one image. See `coordinator.subscribed_topics.Topics`."""

    __slots__ = ("_image",)

    def __init__(self, image: MetadataImage) -> None:
        """Show the topics of `image`."""
        self._image = image

    @property
    def version(self) -> int:
        """Return a number that increases with every change."""
        return self._image.end_offset

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""
        return self._image.topics

    def find(self, name: str) -> tuple[UUID, int] | None:
        """Return a topic's id and the number of its partitions."""
        topic = self._image.topics.get(name)
        return None if topic is None else (uuid_of(topic.topic_id), topic.partitions)

    def name_of(self, topic_id: UUID) -> str | None:
        """Return a topic's name."""
        return self._image.names.get(topic_id_of(topic_id))


logger = logging.getLogger(__name__)

Reply = TypeVar("Reply")
GroupEvent = Callable[[GroupShard, Token, int], CoordinatorResult]


class GroupCoordinator:
    """See the module. Every call raises if this broker does not serve the group now.

    Raises:
        NotCoordinator: find the coordinator again.
        CoordinatorLoading, CoordinatorNotAvailable: try again.
    """

    def __init__(
        self,
        environment: Environment,
        config: BrokerConfig,
        broker_id: int,
        metadata: MetadataAccess,
        tasks: TaskScope,
        share_states: ShareGroupStates,
    ) -> None:
        """Begin without partitions; `runtime` is notified of those that this broker leads."""
        settings, rules = GroupSettings.of(config), GroupRules(metadata)
        share = ShareSettings.of(config)
        self.runtime = CoordinatorRuntime(
            environment,
            metadata,
            tasks,
            topic=GROUPS_TOPIC,
            broker_id=broker_id,
            make_shard=lambda partition, leader_epoch: GroupShard(
                settings, lambda: TopicsView(metadata.image), rules.of, share
            ),
            commit_timeout_s=config.whole("offsets.commit.timeout.ms") / 1000,
            errand=self._start_errand,
        )
        self._share_states = share_states
        self._metadata = metadata
        self._tasks = tasks
        self._names = metadata.image.names

    async def join(self, request: JoinRequest) -> JoinResult:
        """Return the result of a join; it may wait until all members have joined."""
        return await self._submit(
            request.group_id, lambda s, t, n: s.join(request, t, n), JoinResult
        )

    async def sync(self, request: SyncRequest) -> SyncResult:
        """Return a member's assignment; it may wait until the group's leader sends it."""
        return await self._submit(
            request.group_id, lambda s, t, n: s.sync(request, t, n), SyncResult
        )

    async def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        """Handle a member's heartbeat in a classic group."""
        return await self._submit(
            request.group_id, lambda s, t, n: s.heartbeat(request, t, n), ErrorCode
        )

    async def consumer_heartbeat(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatAnswer:
        """Handle a heartbeat of a consumer group: its member joins, stays or leaves.

        Raises, besides:
            GroupError, InvalidRequest: the group rejects the heartbeat.
        """
        topics = TopicsView(self._metadata.image)
        return await self._submit(
            request.group_id,
            lambda s, t, n: s.consumer_heartbeat(request, topics, t, n),
            ConsumerHeartbeatAnswer,
        )

    async def share_heartbeat(self, request: ShareHeartbeat) -> ShareHeartbeatAnswer:
        """Handle a heartbeat of a share group: its member joins, stays or leaves.

        Raises, besides:
            GroupError, InvalidRequest: the group rejects the heartbeat.
        """
        topics = TopicsView(self._metadata.image)
        return await self._submit(
            request.group_id,
            lambda s, t, n: s.share_heartbeat(request, topics, t, n),
            ShareHeartbeatAnswer,
        )

    async def leave(self, request: LeaveRequest) -> LeaveResult:
        """Remove members from a classic group."""
        return await self._submit(
            request.group_id, lambda s, t, n: s.leave(request, t, n), LeaveResult
        )

    def partition_of(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` that has a group's state."""
        topic = self._metadata.image.topics.get(GROUPS_TOPIC)
        if topic is None:
            raise NotCoordinator(f"no group has a coordinator yet; find it. group={group_id}")
        return partition_for(group_id, topic.partitions)

    async def commit(
        self, request: CommitRequest, verification: Verification | None = UNVERIFIED
    ) -> tuple[ErrorCode, ...]:
        """Commit offsets; return a code for each.

        For those of a transaction see `CoordinatorRuntime.submit` about `verification`.

        Raises, besides:
            InvalidTxnState: the transaction does not have the group's offsets, or has ended.
            InvalidProducerEpoch: a newer producer has the transaction's producer id.
            RecordTooLarge: too many offsets for one commit.
        """
        return await self._submit(
            request.group_id,
            lambda s, t, n: s.commit(request, t, n),
            tuple,
            request.producer,
            verification,
        )

    async def fetch(self, request: FetchRequest) -> GroupOffsetsResult:
        """Return committed offsets."""
        return await self._submit(
            request.group_id, lambda s, t, n: s.fetch(request, t, n), GroupOffsetsResult
        )

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]]
    ) -> DeletedOffsets:
        """Delete committed offsets of a group."""
        where = tuple(partitions)
        return await self._submit(
            group_id, lambda s, t, n: s.delete_offsets(group_id, where, t, n), DeletedOffsets
        )

    async def describe(self, group_id: str) -> DescribedGroup:
        """Return the description of a group."""
        found = await self._submit(group_id, lambda s, t, n: s.describe((group_id,), t, n), tuple)
        return cast("DescribedGroup", found[0])

    async def describe_consumer(self, group_id: str) -> ConsumerGroupDescription | None:
        """Return the description of a consumer group; None if the group is of another type."""
        found = await self._submit(
            group_id, lambda s, t, n: s.describe_consumers((group_id,), t, n), tuple
        )
        return cast("ConsumerGroupDescription | None", found[0])

    async def describe_share(self, group_id: str) -> ShareGroupDescription | None:
        """Return the description of a share group; None if the group is of another type."""
        found = await self._submit(
            group_id, lambda s, t, n: s.describe_shares((group_id,), t, n), tuple
        )
        return cast("ShareGroupDescription | None", found[0])

    async def share_partitions(self, group_id: str) -> tuple[SharePartitionKey, ...]:
        """Return the partitions of a share group that have a state.

        Raises, besides:
            GroupIdNotFound: there is no such share group.
        """
        return await self._submit(
            group_id, lambda s, t, n: s.share_partitions(group_id, t, n), tuple
        )

    async def change_share(
        self,
        group_id: str,
        alter: Callable[[ShareChange], Reply],
        kind: type[Reply],
        *,
        creates: bool = False,
    ) -> Reply:
        """Change a share group; return what `alter` returns, which is of type `kind`.

        With `creates`, a group that does not exist is created.

        Raises, besides:
            GroupIdNotFound: there is no such share group.
            GroupError: what `alter` raises.
        """
        topics = TopicsView(self._metadata.image)
        return await self._submit(
            group_id,
            lambda s, t, n: s.change_share(group_id, alter, topics, t, n, creates=creates),
            kind,
        )

    async def share_initialized(self, done: InitializeShareState) -> None:
        """Record that states of a share group are initialized."""
        topics = TopicsView(self._metadata.image)
        await self._submit(
            done.group_id, lambda s, t, n: s.share_initialized(done, topics, t, n), type(None)
        )

    async def delete(self, group_id: str) -> ErrorCode:
        """Delete a group without members; several events delete one with very many offsets.

        The stored states of a share group go first.

        Raises, besides:
            SparklogError: not all states were deleted, so the group stays.
        """
        states_deleted = False
        while True:
            reply = await self._submit(group_id, self._deletion(group_id, states_deleted), object)
            if isinstance(reply, ShareStatesToDelete):
                await self._share_states.forget(reply)
                states_deleted = True
            elif reply is not None:
                return cast("ErrorCode", reply)

    async def list_groups(self) -> list[ListedGroup]:
        """Return all groups that this broker coordinates.

        Raises:
            CoordinatorLoading: some shards still load.
        """
        if loading := self.runtime.loading:
            raise CoordinatorLoading(
                f"the coordinator reads its logs; try again in a moment. partitions={loading}"
            )
        groups: list[ListedGroup] = []
        for partition in sorted(self.runtime.active):
            try:
                found = await self.runtime.submit(partition, GroupShard.list_groups)
            except NotCoordinator:
                continue  # lost meanwhile: another broker lists them
            groups += cast("tuple[ListedGroup, ...]", found)
        return groups

    def apply(self, image: MetadataImage) -> None:
        """Apply the newest metadata: delete offsets and forget states of deleted topics."""
        before, self._names = self._names, image.names
        if before is image.names:
            return
        deleted = {
            topic_id: name for topic_id, name in before.items() if topic_id not in image.names
        }
        if deleted:
            ids = frozenset(map(uuid_of, deleted))
            names = frozenset(deleted.values())
            self._tasks.start(self._forget(names), "forget offsets of deleted topics")
            self._tasks.start(self._forget_share_topics(ids), "forget states of deleted topics")

    async def _forget_share_topics(self, topic_ids: frozenset[UUID]) -> None:
        """Forget states of topics in every shard here; their own coordinator deletes them."""
        for partition in sorted(self.runtime.active):
            try:
                await self.runtime.submit(
                    partition, lambda s, t, n: s.forget_share_topics(topic_ids, t, n)
                )
            except SparklogError as error:
                text = "share groups remember deleted topics partition=%d topics=%d %s"
                logger.warning(text, partition, len(topic_ids), error)

    def _start_errand(self, partition: int, errand: object) -> None:
        assert isinstance(errand, InitializeShareState), errand
        name = f"initialize states of a share group in {GROUPS_TOPIC}-{partition}"
        self._tasks.start(self._initialize(partition, errand), name)

    async def _initialize(self, partition: int, errand: InitializeShareState) -> None:
        """Initialize states and record them; the shard orders what fails anew after a pause."""
        done = await self._share_states.run(errand)
        if not done.parts:
            return
        topics = TopicsView(self._metadata.image)
        try:
            await self.runtime.submit(
                partition, lambda s, t, n: s.share_initialized(done, topics, t, n)
            )
        except SparklogError as error:
            text = "initialized states of a share group are not recorded group=%s %s"
            logger.warning(text, errand.group_id, error)

    @staticmethod
    def _deletion(group_id: str, states_deleted: bool) -> GroupEvent:
        return lambda s, t, n: s.delete(group_id, t, n, states_deleted=states_deleted)

    async def _forget(self, topics: frozenset[str]) -> None:
        """Delete offsets of topics in every shard here; other brokers do so in their shards."""
        for partition in sorted(self.runtime.active):
            more = True
            while more:
                try:
                    more = bool(
                        await self.runtime.submit(
                            partition, lambda s, t, n: s.forget_topics(topics, t, n)
                        )
                    )
                except SparklogError as error:
                    logger.warning(
                        "offsets of deleted topics stay until they expire topics=%s %s",
                        sorted(topics),
                        error,
                    )
                    more = False

    async def _submit(
        self,
        group_id: str,
        event: GroupEvent,
        kind: type[Reply],
        producer: ProducerIdentity | None = None,
        verification: Verification | None = UNVERIFIED,
    ) -> Reply:
        reply = await self.runtime.submit(
            self.partition_of(group_id), event, producer=producer, verification=verification
        )
        assert isinstance(reply, kind), (kind, reply)
        return reply
