"""Guards of requests about the offsets of share groups. Source: KafkaApis of Kafka 4.4.

A client needs DESCRIBE of a group and of its topics to see their offsets. It needs READ of both to
alter them, and DELETE of the group and READ of the topics to delete them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.group_guards import TopicErrors, offsets_of_groups
from sparklog.broker.handlers.guards import (
    Gate,
    Guard,
    GuardedCall,
    ItemCheck,
    Resource,
    with_refused,
)
from sparklog.broker.handlers.refusals import ITSELF, ItemList, same
from sparklog.broker.handlers.topic_guards import describable
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.security.acls import AclOperation, ResourceType

_GROUPS: Final = ItemList("groups", "groups", same("group_id"))
_DESCRIBED: Final = ItemList(
    "topics",
    "topics",
    same("topic_name"),
    ItemList("partitions", "partitions", {"partition_index": ITSELF}),
)
_ALTERED: Final = ItemList(
    "topics",
    "responses",
    same("topic_name"),
    ItemList("partitions", "partitions", same("partition_index")),
)
_DELETED: Final = ItemList("topics", "responses", same("topic_name"))


def _topic(image: MetadataImage, item: Any) -> Resource:
    return ResourceType.TOPIC, item.topic_name


_SEEN: Final = ItemCheck(AclOperation.DESCRIBE, _topic, (_DESCRIBED,))

alter_share_group_offsets: Final = Guard(
    (Gate(AclOperation.READ, ResourceType.GROUP, "group_id"),),
    items=ItemCheck(AclOperation.READ, _topic, (_ALTERED,), asks_for_none=True),
)
delete_share_group_offsets: Final = Guard(
    (Gate(AclOperation.DELETE, ResourceType.GROUP, "group_id"),),
    items=ItemCheck(AclOperation.READ, _topic, (_DELETED,), asks_for_none=True),
)


async def describe_share_group_offsets(call: GuardedCall) -> Any:
    """Answer about groups that the client may describe, and their topics likewise."""

    def with_topics(group: Any, errors: TopicErrors, found: Any) -> Any:
        return _with_topics(call, group, errors, found)

    return await offsets_of_groups(call, _GROUPS, _SEEN, with_topics)


def _with_topics(call: GuardedCall, asked: Any, errors: TopicErrors, found: Any) -> Any:
    """Return the offsets of a group with the errors of refused topics, or without hidden ones."""
    if found.error_code is not ErrorCode.none:
        return found
    if asked.topics is not None:
        whole = with_refused(_DESCRIBED, type(found), asked.topics, errors, found.topics)
        return replace(found, topics=whole)
    seen = describable(call.access, (topic.topic_name for topic in found.topics))
    return replace(found, topics=tuple(t for t in found.topics if t.topic_name in seen))
