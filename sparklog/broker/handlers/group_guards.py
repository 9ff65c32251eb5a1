"""Guards of requests about groups, and the look-up of coordinators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.guards import (
    DENIED,
    GuardedCall,
    ItemCheck,
    topic_name,
    topic_resource,
    with_refused,
)
from sparklog.broker.handlers.refusals import (
    ITSELF,
    ItemList,
    blank,
    blank_response,
    refused,
    response_type,
    same,
)
from sparklog.broker.handlers.topic_guards import describable
from sparklog.core.errors import SparklogError, TopicAuthorizationFailed
from sparklog.security.acls import AclOperation, ResourceType

MANY_GROUPS_SINCE: Final = 8
"""The first version of OffsetFetch with several groups."""
GROUP_ERROR_SINCE: Final = 2
"""The first version of OffsetFetch with an error for the group, and with a null list of topics."""
MANY_KEYS_SINCE: Final = 4
"""The first version of FindCoordinator with several keys."""
_PARTS: Final = ItemList("partition_indexes", "partitions", {"partition_index": ITSELF})
FETCHED_TOPICS: Final = ItemList("topics", "topics", same("name", "topic_id"), _PARTS)
FETCHED_GROUPS: Final = ItemList("groups", "groups", same("group_id"))
FOUND_KEYS: Final = ItemList("coordinator_keys", "coordinators", {"key": ITSELF})
_GROUP_KEY, _TRANSACTION_KEY = 0, 1


async def offset_fetch(call: GuardedCall) -> Any:
    """Answer about groups that the client may describe, and their topics likewise."""
    request = call.request
    if request.__version__ < MANY_GROUPS_SINCE:
        if not _may_describe_group(call, request.group_id):
            lists = (FETCHED_TOPICS,) if request.__version__ < GROUP_ERROR_SINCE else ()
            return refused(request, DENIED[ResourceType.GROUP], lists)
        left, errors = _topics_left(call, request, _TOPICS)
        response = await call.proceed(left)
        return _with_topics(call, request, errors, response, response_type(request))

    def with_topics(group: Any, errors: TopicErrors, found: Any) -> Any:
        return _with_topics(call, group, errors, found, type(found))

    return await offsets_of_groups(call, FETCHED_GROUPS, _TOPICS, with_topics)


TopicErrors = list[SparklogError | None]
"""Of the topics that a request names, in its order; empty if it asks for all of them."""


async def offsets_of_groups(
    call: GuardedCall,
    kept: ItemList,
    topics: ItemCheck,
    with_topics: Callable[[Any, TopicErrors, Any], Any],
) -> Any:
    """Answer a request for the offsets of groups, without those that the client may not describe.

    Args:
        call: a request with `groups`, and each with `topics` or None for all of them.
        kept: how the response repeats a refused group.
        topics: the check of the topics that a group names.
        with_topics: returns the answer about a group, from the group of the request, the errors of
            its topics, and the answer without those.
    """
    request = call.request
    refusals = [_group_error(call, group) for group in request.groups]
    asked = [
        (group, *_topics_left(call, group, topics))
        for group, error in zip(request.groups, refusals, strict=True)
        if error is None
    ]
    groups: list[Any] = []
    if asked:
        response = await call.proceed(replace(request, groups=tuple(left for _, left, _ in asked)))
        groups = [
            with_topics(group, errors, found)
            for (group, _, errors), found in zip(asked, response.groups, strict=True)
        ]
    else:
        response = blank_response(request)
    structure = response_type(request)
    whole = with_refused(kept, structure, request.groups, refusals, groups)
    return replace(response, groups=whole)


def _may_describe_group(call: GuardedCall, group_id: str) -> bool:
    return call.access.may(AclOperation.DESCRIBE, ResourceType.GROUP, group_id)


def _group_error(call: GuardedCall, group: Any) -> SparklogError | None:
    return None if _may_describe_group(call, group.group_id) else DENIED[ResourceType.GROUP]


def _topics_left(
    call: GuardedCall, asked: Any, topics: ItemCheck
) -> tuple[Any, list[SparklogError | None]]:
    """Return a group of a request with the topics that the client may describe, and the errors."""
    if asked.topics is None:
        return asked, []
    errors = topics.errors(call, asked.topics)
    left = (topic for topic, error in zip(asked.topics, errors, strict=True) if error is None)
    return replace(asked, topics=tuple(left)), errors


_TOPICS: Final = ItemCheck(AclOperation.DESCRIBE, topic_resource, (FETCHED_TOPICS,))


def _with_topics(
    call: GuardedCall,
    asked: Any,
    errors: TopicErrors,
    found: Any,
    structure: Any,
) -> Any:
    """Return the offsets of a group with the errors of refused topics, or without hidden ones."""
    if getattr(found, "error_code", ErrorCode.none) is not ErrorCode.none:
        return found
    if asked.topics is not None:
        topics = with_refused(FETCHED_TOPICS, structure, asked.topics, errors, found.topics)
        return replace(found, topics=topics)
    image = call.node.metadata.image
    names = [topic_name(image, topic) for topic in found.topics]
    seen = describable(call.access, (name for name in names if name is not None))
    shown = (t for t, name in zip(found.topics, names, strict=True) if name in seen)
    return replace(found, topics=tuple(shown))


async def find_coordinator(call: GuardedCall) -> Any:
    """Answer about the groups and transactional ids that the client may describe."""
    request = call.request
    kind = int(getattr(request, "key_type", _GROUP_KEY))
    if request.__version__ < MANY_KEYS_SINCE:
        error = _key_error(call, kind, request.key)
        return await call.proceed() if error is None else refused(request, error)
    keys = request.coordinator_keys
    errors = [_key_error(call, kind, key) for key in keys]
    left = tuple(key for key, error in zip(keys, errors, strict=True) if error is None)
    if left:
        response = await call.proceed(replace(request, coordinator_keys=left))
    else:
        response = blank_response(request)
    structure = response_type(request)
    whole = with_refused(FOUND_KEYS, structure, keys, errors, response.coordinators)
    return replace(response, coordinators=whole)


def _key_error(call: GuardedCall, kind: int, key: str) -> SparklogError | None:
    resource_type = {
        _GROUP_KEY: ResourceType.GROUP,
        _TRANSACTION_KEY: ResourceType.TRANSACTIONAL_ID,
    }.get(kind)
    if resource_type is None:
        may = call.access.may_on_cluster(AclOperation.CLUSTER_ACTION)
        return None if may else DENIED[ResourceType.CLUSTER]
    may = call.access.may(AclOperation.DESCRIBE, resource_type, key)
    return None if may else DENIED[resource_type]


def listed_groups(call: GuardedCall, response: Any) -> Any:
    """Show the groups that the client may describe; all if it may describe the cluster."""
    may, describe = call.access.may, AclOperation.DESCRIBE
    if call.access.may_on_cluster(describe, filters=True):
        return response
    shown = (
        one
        for one in response.groups
        if may(describe, ResourceType.GROUP, one.group_id, filters=True)
    )
    return replace(response, groups=tuple(shown))


def described_groups(call: GuardedCall, response: Any) -> Any:
    """Show the operations on each group that the client may do, where it asks for them."""
    if not getattr(call.request, "include_authorized_operations", False):
        return response
    return replace(
        response, groups=tuple(_with_operations(call, group) for group in response.groups)
    )


def _with_operations(call: GuardedCall, group: Any) -> Any:
    if group.error_code is not ErrorCode.none:
        return group
    bits = call.access.operations(ResourceType.GROUP, group.group_id)
    return replace(group, authorized_operations=bits)


_HIDDEN: Final = TopicAuthorizationFailed(
    "The group has described topic(s) that the client is not authorized to describe."
)


def described_consumer_groups(call: GuardedCall, response: Any) -> Any:
    """Hide groups whose members have topics that the client may not describe."""
    response = described_groups(call, response)
    names = {name for group in response.groups for name in _topics_of(group)}
    seen = describable(call.access, names, filters=False)
    return replace(
        response,
        groups=tuple(
            group
            if seen.issuperset(_topics_of(group))
            else blank(type(group), _HIDDEN, group_id=group.group_id)
            for group in response.groups
        ),
    )


def _topics_of(group: Any) -> Iterable[str]:
    return (
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, getattr(member, "target_assignment", None))
        if assignment is not None
        for topic in assignment.topic_partitions
    )


async def consumer_group_heartbeat(call: GuardedCall) -> Any:
    """Let a member in that may read the group and describe each topic that it subscribes to.

    A pattern subscribes the member to topics that it may describe.
    """

    def may_describe(topics: Iterable[str]) -> frozenset[str]:
        return describable(call.access, topics)

    error = _subscription_error(call)
    if error is not None:
        return refused(call.request, error)
    return await call.proceed(may_describe=may_describe)


async def share_group_heartbeat(call: GuardedCall) -> Any:
    """Let a member in that may read the group and describe each topic that it subscribes to."""
    error = _subscription_error(call)
    return await call.proceed() if error is None else refused(call.request, error)


def _subscription_error(call: GuardedCall) -> SparklogError | None:
    request, access = call.request, call.access
    if not access.may(AclOperation.READ, ResourceType.GROUP, request.group_id):
        return DENIED[ResourceType.GROUP]
    names = frozenset(request.subscribed_topic_names or ())
    hidden = describable(access, names, filters=False) != names
    return DENIED[ResourceType.TOPIC] if hidden else None
