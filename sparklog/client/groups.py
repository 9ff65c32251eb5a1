"""Groups: lists, describes and changes consumer groups. Source: KIP-518, KIP-848.

The type of a group decides which request describes it. The client first sends
ConsumerGroupDescribe, then DescribeGroups for the rest, as Kafka's own client does.

Lag in time is the age of the oldest record that a group has not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sparklog.client.addresses import BrokerAddress
from sparklog.client.connections import BrokerConnections, RequestDraft
from sparklog.client.consumer import Consumer
from sparklog.client.errors import of_code
from sparklog.client.offsets import delete_group_offsets, move_group_offsets, read_group_offsets
from sparklog.client.routing import CoordinatorKind, ask_coordinators, ask_every_broker
from sparklog.client.settings import Settings
from sparklog.client.values import (
    CLASSIC,
    CONSUMER,
    SHARE,
    Committed,
    GroupDescription,
    GroupListing,
    GroupMember,
    ServingBroker,
)
from sparklog.core.clock import Clock
from sparklog.core.errors import GroupIdNotFound, InvalidRequest, SparklogError
from sparklog.core.types import TopicPartition
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.consumer_protocol import PROTOCOL_TYPE, decode_assignment

LIST_VERSIONS: Final = (4, 5)
TYPES_VERSION: Final = 5
DESCRIBE_VERSIONS: Final = (5, 6)
DESCRIBE_CONSUMER_VERSIONS: Final = (0, 1)
DELETE_VERSIONS: Final = (0, 2)
GROUP_ID_NOT_FOUND: Final = 69
DEAD: Final = "Dead"
ALL_TYPES: Final = frozenset({CLASSIC, CONSUMER, SHARE})


class Groups:
    """The consumer groups of one cluster. Not thread-safe."""

    def __init__(self, brokers: BrokerConnections, clock: Clock) -> None:
        """Use these brokers; nothing is sent yet."""
        self._brokers = brokers
        self._clock = clock

    def list(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupListing]:
        """Return all consumer groups, or those in some states and of some types, by name.

        Share groups are listed only if `types` has SHARE.

        Raises:
            Unavailable: a broker does not respond. InvalidRequest: it cannot list groups.
        """
        # Without a filter, a broker need not know all types.
        asked = () if {*types} >= ALL_TYPES else tuple(types)

        def ask(address: BrokerAddress) -> list[GroupListing]:
            def draft(of: RequestDraft) -> Any:
                if of.version < TYPES_VERSION:
                    return of.request(states_filter=tuple(states))
                return of.request(states_filter=tuple(states), types_filter=asked)

            answer = self._brokers.tell(address, Api.LIST_GROUPS, *LIST_VERSIONS, draft)
            if answer.error_code != 0:
                raise of_code(answer.error_code, None, "groups could not be listed", broker=address)
            return [_listing(group) for group in answer.groups]

        found = {
            group
            for _, listed in ask_every_broker(self._brokers, ask, self._clock)
            for group in listed
        }
        wanted = {kind.title() for kind in types or (CLASSIC, CONSUMER)}
        return sorted(
            group
            for group in found
            if group.group_type in {*wanted, "Unknown"}
            and (group.group_type == SHARE or group.protocol_type in ("", PROTOCOL_TYPE))
        )

    def describe(self, group_ids: Sequence[str]) -> dict[str, GroupDescription | SparklogError]:
        """Return the descriptions of groups; an error for each that fails.

        Raises:
            Unavailable: no broker responds at all.
        """
        newer = (Api.CONSUMER_GROUP_DESCRIBE, DESCRIBE_CONSUMER_VERSIONS, "group_ids")
        outcomes = self._describe(group_ids, *newer, _consumer_group)
        rest = [group for group in group_ids if _may_be_classic(outcomes[group])]
        if not rest:
            return outcomes
        older = (Api.DESCRIBE_GROUPS, DESCRIBE_VERSIONS, "groups")
        return outcomes | self._describe(rest, *older, _classic_group)

    def offsets(self, group_ids: Sequence[str]) -> dict[str, Committed | SparklogError]:
        """Return all committed offsets of groups; empty for a group that does not exist.

        Raises:
            Unavailable: no broker responds at all.
        """
        return read_group_offsets(self._brokers, group_ids, self._clock)

    def move_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, SparklogError | None]:
        """Commit new positions for a group without members; per partition None, or the error.

        Raises:
            InvalidRequest, Unavailable: nothing was changed. OutcomeUnknown: no response.
        """
        return move_group_offsets(self._brokers, group_id, offsets, self._clock)

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, SparklogError | None]:
        """Delete a group's committed offsets of partitions that it does not subscribe to.

        Returns:
            Per partition None, or the error for which its offset is still there.

        Raises:
            InvalidRequest: no such group. Unavailable, OutcomeUnknown: as `move_offsets`.
        """
        return delete_group_offsets(self._brokers, group_id, partitions, self._clock)

    def delete(self, group_ids: Sequence[str]) -> dict[str, SparklogError | None]:
        """Delete groups without members, with their offsets; per group None, or the error.

        Raises:
            Unavailable: no broker responds at all.
        """

        def ask(coordinator: ServingBroker, chosen: Sequence[str]) -> dict[str, Any]:
            def draft(of: RequestDraft) -> Any:
                return of.request(groups_names=tuple(chosen))

            answer = self._brokers.tell(
                coordinator.address, Api.DELETE_GROUPS, *DELETE_VERSIONS, draft
            )
            doing = "the group was not deleted"
            return {
                result.group_id: None
                if result.error_code == 0
                else of_code(result.error_code, None, doing, group=result.group_id)
                for result in answer.results
            }

        return self._ask(group_ids, ask)

    def _ask(self, group_ids: Sequence[str], ask: Any) -> dict[str, Any]:
        return ask_coordinators(self._brokers, CoordinatorKind.GROUP, group_ids, ask, self._clock)

    def _describe(
        self,
        group_ids: Sequence[str],
        api: Api,
        versions: tuple[int, int],
        asked: str,
        described: Callable[[ServingBroker, Any], GroupDescription | SparklogError],
    ) -> dict[str, GroupDescription | SparklogError]:
        """Describe groups by one of the two requests; `asked` is its field for the group ids."""

        def ask(
            coordinator: ServingBroker, chosen: Sequence[str]
        ) -> dict[str, GroupDescription | SparklogError]:
            def draft(of: RequestDraft) -> Any:
                return of.request(**{asked: tuple(chosen)}, include_authorized_operations=False)

            answer = self._brokers.tell(coordinator.address, api, *versions, draft)
            return {
                group.group_id: _failure(group) or described(coordinator, group)
                for group in answer.groups
            }

        return self._ask(group_ids, ask)


def _listing(group: Any) -> GroupListing:
    kind = getattr(group, "group_type", "") or "Unknown"
    return GroupListing(group.group_id, group.protocol_type, group.group_state, kind.title())


def _may_be_classic(outcome: GroupDescription | SparklogError) -> bool:
    """Return True if DescribeGroups must follow: another group type, or an old broker."""
    return type(outcome) in (GroupIdNotFound, InvalidRequest)


def _failure(group: Any) -> SparklogError | None:
    doing = "the group could not be described"
    # Coordinators before 2024 return an unknown group like this.
    if group.error_code == 0 and group.group_state == DEAD:
        return of_code(GROUP_ID_NOT_FOUND, None, doing, group=group.group_id)
    if group.error_code != 0:
        message = getattr(group, "error_message", None)
        return of_code(group.error_code, message, doing, group=group.group_id)
    return None


def _consumer_group(coordinator: ServingBroker, group: Any) -> GroupDescription:
    members = tuple(
        GroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            named_partitions(member.assignment),
            named_partitions(member.target_assignment),
            int(member.member_epoch),
            None if (kind := getattr(member, "member_type", -1)) < 0 else kind == 1,
        )
        for member in group.members
    )
    return GroupDescription(
        group.group_id,
        coordinator,
        group.group_state,
        CONSUMER,
        group.assignor_name,
        members,
        int(group.group_epoch),
        int(group.assignment_epoch),
    )


def named_partitions(assignment: Any) -> tuple[TopicPartition, ...]:
    """Return the partitions of an assignment that a coordinator describes with topics' names."""
    return tuple(
        TopicPartition(topic.topic_name, int(partition))
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )


def _classic_group(coordinator: ServingBroker, group: Any) -> GroupDescription | SparklogError:
    if group.protocol_type not in ("", PROTOCOL_TYPE):
        return InvalidRequest(
            "it is no group of consumers. "
            f"group={group.group_id} protocol_type={group.protocol_type}"
        )
    members = tuple(
        GroupMember(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            tuple(
                TopicPartition(topic, partition)
                for topic, partitions in decode_assignment(member.member_assignment).items()
                for partition in partitions
            ),
        )
        for member in group.members
    )
    return GroupDescription(
        group.group_id, coordinator, group.group_state, CLASSIC, group.protocol_data, members
    )


ONE_RECORD: Final[Settings] = {
    "auto.offset.reset": "earliest",
    "fetch.message.max.bytes": 16 * 1024,
    "queued.max.messages.kbytes": 1024,
    "fetch.wait.max.ms": 100,
}
"""One record of each partition is read; deleted records before it are not lag."""
POLL_S: Final = 0.2


def oldest_unread_ms(
    bootstrap_servers: str,
    positions: Mapping[TopicPartition, int],
    clock: Clock,
    *,
    timeout_s: float,
    settings: Mapping[str, str] | None = None,
) -> dict[TopicPartition, int]:
    """Return the timestamp in ms of the first committed record from a position on, per partition.

    It omits a partition without such a record, or whose record did not arrive in time. Cost: one
    fetch per partition, of some KiB. `settings` are those of TLS and SASL.

    Raises:
        Unavailable: no broker responds.
    """
    found: dict[TopicPartition, int] = {}
    if not positions:
        return found
    deadline_s = clock.monotonic_s() + timeout_s
    with Consumer(bootstrap_servers, settings={**ONE_RECORD, **(settings or {})}) as consumer:
        consumer.assign(dict(positions))
        while len(found) < len(positions) and clock.monotonic_s() < deadline_s:
            for record in consumer.poll(timeout_s=POLL_S):
                found.setdefault(record.topic_partition, record.timestamp_ms)
            if consumer.ends_reached | found.keys() >= positions.keys():
                break
    return found
