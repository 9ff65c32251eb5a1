"""Guards of requests about topics. A client sees only the topics that it may describe."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.access import Access
from sparklog.broker.handlers.guards import (
    DENIED,
    GuardedCall,
    ItemCheck,
    topic_name,
    topic_resource,
    unknown_id,
    with_refused,
)
from sparklog.broker.handlers.refusals import (
    ITSELF,
    ItemList,
    blank,
    blank_response,
    response_type,
    same,
)
from sparklog.broker.handlers.responses import code_of
from sparklog.core.errors import SparklogError, Unavailable, UnknownTopicOrPartition
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request_part
from sparklog.protocol.topic_ids import topic_id_of
from sparklog.security.acls import CLUSTER_NAME, AclOperation, ResourceType

ALL_TOPICS_BY_EMPTY_LIST: Final = 0
"""The version of Metadata in which an empty list stands for all topics."""
HAS_CONFIG_ERROR: Final = 5
"""The first version of CreateTopics that answers with settings."""
METADATA: Final = ItemList("topics", "topics", same("name", "topic_id"))
PARTITIONS_OF_TOPICS: Final = ItemList("topics", "topics", same("name"))
CREATED: Final = ItemCheck(
    AclOperation.CREATE,
    topic_resource,
    (ItemList("topics", "topics", same("name")),),
    on_cluster=AclOperation.CREATE,
)
DELETED: Final = ItemCheck(
    AclOperation.DELETE,
    topic_resource,
    (
        ItemList("topics", "responses", same("name", "topic_id")),
        ItemList("topic_names", "responses", {"name": ITSELF}),
    ),
    on_cluster=AclOperation.DELETE,
)
_DENIED: Final = DENIED[ResourceType.TOPIC]


def describable(access: Access, names: Iterable[str], *, filters: bool = True) -> frozenset[str]:
    """Return the topics that a client may describe, of these."""
    may, describe, topic = access.may, AclOperation.DESCRIBE, ResourceType.TOPIC
    return frozenset(name for name in names if may(describe, topic, name, filters=filters))


async def metadata(call: GuardedCall) -> Any:
    """Answer about the topics that the client may describe.

    Topics that it names and may not describe have an error, whether they exist or not. A missing
    topic is created only for a client that may do so.
    """
    request = call.request
    no_list = request.__version__ == ALL_TOPICS_BY_EMPTY_LIST and not request.topics
    if request.topics is None or no_list:
        response = await call.proceed()
        seen = describable(call.access, (one.name for one in response.topics))
        topics = tuple(one for one in response.topics if one.name in seen)
    else:
        errors = _metadata_errors(call)
        left = tuple(t for t, error in zip(request.topics, errors, strict=True) if error is None)
        response = await call.proceed(replace(request, topics=left))
        asks_nothing = request.__version__ == ALL_TOPICS_BY_EMPTY_LIST and not left
        answered = () if asks_nothing else response.topics
        structure = response_type(request)
        topics = with_refused(METADATA, structure, request.topics, errors, answered)
    if getattr(request, "include_topic_authorized_operations", False):
        topics = tuple(_with_operations(call.access, one) for one in topics)
    more = {}
    if getattr(request, "include_cluster_authorized_operations", False):
        more["cluster_authorized_operations"] = cluster_operations(call.access)
    return replace(response, topics=topics, **more)


def _metadata_errors(call: GuardedCall) -> list[SparklogError | None]:
    asked = [topic_name(call.image, one) for one in call.request.topics]
    names = {name for name in asked if name is not None}
    allowed = describable(call.access, names, filters=False)
    missing = allowed - call.image.topics.keys()
    if missing and _creates(call) and not _may_create(call.access):
        create, topic = AclOperation.CREATE, ResourceType.TOPIC
        allowed -= {name for name in missing if not call.access.may(create, topic, name)}
    return [
        unknown_id(item) if name is None else None if name in allowed else _DENIED
        for item, name in zip(call.request.topics, asked, strict=True)
    ]


def _creates(call: GuardedCall) -> bool:
    """Return whether the request creates missing topics."""
    wanted = getattr(call.request, "allow_auto_topic_creation", True)
    return wanted and call.node.config.flag("auto.create.topics.enable")


def _may_create(access: Access) -> bool:
    return access.may_on_cluster(AclOperation.CREATE, filters=True)


def _with_operations(access: Access, topic: Any) -> Any:
    if not topic.name or topic.error_code is code_of(_DENIED):
        return topic
    bits = access.operations(ResourceType.TOPIC, topic.name)
    return replace(topic, topic_authorized_operations=bits)


def cluster_operations(access: Access) -> int:
    """Return the operations on the cluster as bits; none if the client may not describe it."""
    if not access.may_on_cluster(AclOperation.DESCRIBE):
        return 0
    return access.operations(ResourceType.CLUSTER, CLUSTER_NAME)


def described_cluster(call: GuardedCall, response: Any) -> Any:
    """Show the operations on the cluster that the client may do."""
    if not call.request.include_cluster_authorized_operations:
        return response
    return replace(response, cluster_authorized_operations=cluster_operations(call.access))


async def describe_topic_partitions(call: GuardedCall) -> Any:
    """Answer about the topics that the client may describe; refused ones come last."""
    request, access = call.request, call.access
    asks_all = not request.topics
    names = call.image.topics.keys() if asks_all else {one.name for one in request.topics}
    allowed = describable(access, names, filters=asks_all)
    left = tuple(_topic_request(request, name) for name in sorted(allowed))
    if left:
        response = await call.proceed(replace(request, topics=left))
    else:
        response = blank_response(request)
    topics = tuple(_with_operations(access, one) for one in response.topics)
    denied = [one for one in request.topics if one.name not in allowed]
    topics += PARTITIONS_OF_TOPICS.refused(response_type(request), denied, _DENIED)
    return replace(response, topics=topics)


def _topic_request(request: Any, name: str) -> Any:
    api = Api.DESCRIBE_TOPIC_PARTITIONS
    return build_request_part(api, request.__version__, "TopicRequest", name=name)


async def create_topics(call: GuardedCall) -> Any:
    """Create the topics that the client may create; settings need DESCRIBE_CONFIGS."""
    response = await CREATED.run(call)
    if call.request.__version__ < HAS_CONFIG_ERROR:
        return response
    may, operation = call.access.may, AclOperation.DESCRIBE_CONFIGS
    return replace(
        response,
        topics=tuple(
            one
            if one.error_code is not ErrorCode.none
            or may(operation, ResourceType.TOPIC, one.name, filters=True)
            else replace(
                one,
                topic_config_error_code=_DENIED.kafka_code,
                num_partitions=-1,
                replication_factor=-1,
                configs=(),
            )
            for one in response.topics
        ),
    )


async def delete_topics(call: GuardedCall) -> Any:
    """Delete the topics that the client may delete.

    A client that may describe a topic learns its name, or that there is none of the name.
    """
    identified = {
        one.topic_id for one in getattr(call.request, "topics", ()) if one.name is None
    } - {None}
    if any(call.image.topic_of(topic_id_of(one)) is None for one in identified):
        with suppress(Unavailable):
            call = replace(call, image=await call.node.metadata.catch_up())
    response = await DELETED.run(call)
    shown = (
        _with_name(call, one)
        if getattr(one, "topic_id", None) in identified
        else _missing_instead(call, one)
        for one in response.responses
    )
    return replace(response, responses=tuple(shown))


def _with_name(call: GuardedCall, result: Any) -> Any:
    topic = call.image.topic_of(topic_id_of(result.topic_id))
    names = () if topic is None else describable(call.access, [topic.name])
    return replace(result, name=next(iter(names), None))


def _missing_instead(call: GuardedCall, result: Any) -> Any:
    """Say of a denied name that no topic has it, to a client that may describe the topic."""
    if result.error_code is not code_of(_DENIED) or result.name in call.image.topics:
        return result
    if not describable(call.access, [result.name]):
        return result
    missing = UnknownTopicOrPartition(f"no such topic. topic={result.name}")
    return blank(type(result), missing, name=result.name)
