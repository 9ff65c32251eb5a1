"""ShareGroupAdmin: lists, describes and changes share groups. Source: KIP-932, KIP-1226.

A share group has a start offset for each partition: all records before it are finished. Its methods
are those of `Groups`, so callers can use either.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from sparklog.client.connections import BrokerConnections, RequestDraft
from sparklog.client.errors import of_code
from sparklog.client.groups import Groups, named_partitions
from sparklog.client.routing import CoordinatorKind, ask_coordinators, by_topic
from sparklog.client.values import (
    SHARE,
    GroupDescription,
    GroupListing,
    GroupMember,
    ServingBroker,
    ShareOffset,
    ShareOffsets,
)
from sparklog.core.clock import Clock
from sparklog.core.errors import SparklogError
from sparklog.core.types import TopicPartition
from sparklog.protocol.api_keys import Api

DESCRIBE_VERSIONS: Final = (1, 1)
OFFSETS_VERSIONS: Final = (0, 1)
MOVE_VERSIONS: Final = (0, 0)
DELETE_OFFSETS_VERSIONS: Final = (0, 0)
UNKNOWN: Final = -1


class ShareGroupAdmin:
    """The share groups of one cluster. Not thread-safe."""

    def __init__(self, brokers: BrokerConnections, groups: Groups, clock: Clock) -> None:
        """Use these brokers, and `groups` for what has one request for all types of groups."""
        self._brokers = brokers
        self._groups = groups
        self._clock = clock

    def list(self, states: Sequence[str] = ()) -> list[GroupListing]:
        """Return all share groups, or those in some states, by name. Raises as `Groups.list`."""
        return self._groups.list(states, (SHARE,))

    def describe(self, group_ids: Sequence[str]) -> dict[str, GroupDescription | SparklogError]:
        """Return the descriptions of share groups; an error for each that fails.

        Raises:
            Unavailable: no broker responds at all.
        """

        def ask(
            coordinator: ServingBroker, chosen: Sequence[str]
        ) -> dict[str, GroupDescription | SparklogError]:
            def draft(of: RequestDraft) -> Any:
                return of.request(group_ids=tuple(chosen), include_authorized_operations=False)

            api = Api.SHARE_GROUP_DESCRIBE
            answer = self._brokers.tell(coordinator.address, api, *DESCRIBE_VERSIONS, draft)
            doing = "the share group could not be described"
            return {
                group.group_id: _failure(group, doing, group=group.group_id)
                or _described(coordinator, group)
                for group in answer.groups
            }

        return self._ask(group_ids, ask)

    def offsets(self, group_ids: Sequence[str]) -> dict[str, ShareOffsets | SparklogError]:
        """Return the start offsets of share groups, for all partitions that have a state.

        Raises:
            Unavailable: no broker responds at all.
        """

        def ask(
            coordinator: ServingBroker, chosen: Sequence[str]
        ) -> dict[str, ShareOffsets | SparklogError]:
            def draft(of: RequestDraft) -> Any:
                kind = "DescribeShareGroupOffsetsRequestGroup"
                return of.request(
                    groups=tuple(of.part(kind, group_id=group, topics=None) for group in chosen)
                )

            api = Api.DESCRIBE_SHARE_GROUP_OFFSETS
            answer = self._brokers.tell(coordinator.address, api, *OFFSETS_VERSIONS, draft)
            return {group.group_id: _offsets(group) for group in answer.groups}

        return self._ask(group_ids, ask)

    def move_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, SparklogError | None]:
        """Set new start offsets for a group without members; per partition None, or the error.

        Records that the group had finished from there on are delivered again.

        Raises:
            InvalidRequest, Unavailable: nothing was changed. OutcomeUnknown: no response.
        """

        def draft(of: RequestDraft) -> Any:
            part = "AlterShareGroupOffsetsRequestPartition"
            topics = tuple(
                of.part(
                    "AlterShareGroupOffsetsRequestTopic",
                    topic_name=topic,
                    partitions=tuple(
                        of.part(part, partition_index=tp.partition, start_offset=offsets[tp])
                        for tp in chosen
                    ),
                )
                for topic, chosen in by_topic(list(offsets))
            )
            return of.request(group_id=group_id, topics=topics)

        api, doing = Api.ALTER_SHARE_GROUP_OFFSETS, "the start offset was not moved"
        topics = self._change(group_id, api, MOVE_VERSIONS, draft, doing)
        found: dict[TopicPartition, SparklogError | None] = {}
        for topic in topics:
            for part in topic.partitions:
                tp = TopicPartition(topic.topic_name, int(part.partition_index))
                found[tp] = _failure(part, doing, partition=tp)
        return found

    def delete_offsets(
        self, group_id: str, topics: Collection[str]
    ) -> dict[str, SparklogError | None]:
        """Delete the offsets of topics of a group without members; per topic None, or the error.

        Raises:
            InvalidRequest: no such group. Unavailable, OutcomeUnknown: as `move_offsets`.
        """

        def draft(of: RequestDraft) -> Any:
            kind = "DeleteShareGroupOffsetsRequestTopic"
            asked = tuple(of.part(kind, topic_name=topic) for topic in dict.fromkeys(topics))
            return of.request(group_id=group_id, topics=asked)

        api, doing = Api.DELETE_SHARE_GROUP_OFFSETS, "the topic's offsets were not deleted"
        found = self._change(group_id, api, DELETE_OFFSETS_VERSIONS, draft, doing)
        return {
            topic.topic_name: _failure(topic, doing, group=group_id, topic=topic.topic_name)
            for topic in found
        }

    def delete(self, group_ids: Sequence[str]) -> dict[str, SparklogError | None]:
        """Delete groups without members, with their offsets. Raises as `Groups.delete`."""
        return self._groups.delete(group_ids)

    def _change(
        self,
        group_id: str,
        api: Api,
        versions: tuple[int, int],
        draft: Callable[[RequestDraft], Any],
        doing: str,
    ) -> Any:
        """Send a change of one group to its coordinator; return the topics of the response."""

        def ask(coordinator: ServingBroker, _: Sequence[str]) -> dict[str, Any]:
            answer = self._brokers.tell(coordinator.address, api, *versions, draft)
            failure = _failure(answer, doing, group=group_id)
            return {group_id: failure or answer.responses}

        (found,) = self._ask([group_id], ask).values()
        if isinstance(found, SparklogError):
            raise found
        return found

    def _ask(self, group_ids: Sequence[str], ask: Any) -> dict[str, Any]:
        return ask_coordinators(self._brokers, CoordinatorKind.GROUP, group_ids, ask, self._clock)


def _failure(found: Any, doing: str, **about: object) -> SparklogError | None:
    if found.error_code == 0:
        return None
    return of_code(found.error_code, found.error_message, doing, **about)


def _described(coordinator: ServingBroker, group: Any) -> GroupDescription:
    members = tuple(
        GroupMember(
            member.member_id,
            None,
            member.client_id,
            member.client_host,
            named_partitions(member.assignment),
            epoch=int(member.member_epoch),
        )
        for member in group.members
    )
    return GroupDescription(
        group.group_id,
        coordinator,
        group.group_state,
        SHARE,
        group.assignor_name,
        members,
        int(group.group_epoch),
        int(group.assignment_epoch),
    )


def _offsets(group: Any) -> ShareOffsets | SparklogError:
    doing = "start offsets could not be read"
    failure = _failure(group, doing, group=group.group_id)
    if failure is not None:
        return failure
    found: dict[TopicPartition, ShareOffset] = {}
    for topic in group.topics:
        for part in topic.partitions:
            tp = TopicPartition(topic.topic_name, int(part.partition_index))
            failure = _failure(part, doing, group=group.group_id, partition=tp)
            if failure is not None:
                return failure
            lag = int(getattr(part, "lag", UNKNOWN))
            at = int(part.start_offset)
            found[tp] = ShareOffset(
                None if at == UNKNOWN else at,
                int(part.leader_epoch),
                None if lag == UNKNOWN else lag,
            )
    return found
