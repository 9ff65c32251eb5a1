"""Metadata (3): brokers, and the leaders of topics. Makes topics that are asked for and missing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import (
    CLUSTER_OPERATIONS,
    NO_THROTTLE,
    NOT_ASKED,
    TOPIC_OPERATIONS,
    code_of,
    controller_id,
    listed,
)
from sparklog.broker.handlers.deciding import decide_apart
from sparklog.broker.handlers.described import described
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.handlers.partitions import named_or_identified, topic_known_as
from sparklog.broker.request import RequestContext
from sparklog.cluster import registry
from sparklog.cluster.image import MetadataImage, Topic
from sparklog.cluster.records import NO_LEADER
from sparklog.cluster.registry import ExistingTopics
from sparklog.core.entropy import new_topic_id
from sparklog.core.errors import LeaderNotAvailable, SparklogError, UnknownTopicOrPartition
from sparklog.core.names import CLOSED_TOPICS, TOLD_AS_INTERNAL
from sparklog.protocol.building import Answer

AUTO_CREATED_MAX = 100
"""Partitions that one request may create without a CreateTopics. A client that names more topics is
told to ask again for the rest, as it is for any topic without a leader yet."""
NAMELESS_SINCE = 12
"""The first version that can answer about a topic without its name."""


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer with every live broker and with the topics asked for; none named asks for all."""
    answer = Answer.to(request)
    image = node.metadata.image
    version = request.__version__
    asks_all = request.topics is None or (version == 0 and not request.topics)
    refused: dict[str, SparklogError] = {}
    if not asks_all:
        image, refused = await _with_missing(node, request, image)
    shown = node.sight.for_clients(image)
    if _names_others(node, shown, None if asks_all else request.topics):
        await node.sight.hear()
        shown = node.sight.for_clients(node.metadata.image)
    asks_operations = bool(getattr(request, "include_topic_authorized_operations", False))
    operations = TOPIC_OPERATIONS if asks_operations else NOT_ASKED
    if asks_all:
        topics = [_found(answer, shown, t, operations) for t in shown.topics.values()]
    else:
        topics = [_asked(answer, shown, t, operations, refused) for t in request.topics]
    values: dict[str, Any] = {}
    if getattr(request, "include_cluster_authorized_operations", False):
        values["cluster_authorized_operations"] = CLUSTER_OPERATIONS
    return answer.response(
        throttle_time=NO_THROTTLE,
        brokers=listed(answer, "MetadataResponseBroker", shown.live_brokers(), "node_id"),
        cluster_id=node.cluster_id,
        controller_id=controller_id(shown),
        topics=tuple(topics),
        error_code=ErrorCode.none,
        **values,
    )


async def _with_missing(
    node: HandlerNode, request: Any, image: MetadataImage
) -> tuple[MetadataImage, dict[str, SparklogError]]:
    """Return the image with topics made that were missing, and why others could not be."""
    named = {key for t in request.topics if isinstance(key := _key_of(t), str)}
    missing = named - image.topics.keys() - CLOSED_TOPICS
    if not missing or not getattr(request, "allow_auto_topic_creation", True):
        return image, {}
    if not node.config.flag("auto.create.topics.enable"):
        return image, {}
    at_once = max(1, AUTO_CREATED_MAX // node.config.whole("num.partitions"))
    names = sorted(missing)
    decided = await decide_apart(
        node.metadata,
        {name: partial(_create_missing, node, name) for name in names[:at_once]},
        ExistingTopics,
    )
    later = LeaderNotAvailable("the topic is created when it is asked for again")
    return decided.image, {**decided.refused, **dict.fromkeys(names[at_once:], later)}


def _create_missing(node: HandlerNode, name: str, existing: ExistingTopics) -> list[Any]:
    if name in existing.image.topics:
        return []  # somebody else was faster
    return registry.create_topic(
        existing.image,
        name,
        new_topic_id(node.environment.entropy),
        node.config.whole("num.partitions"),
        {},
        default_replication_factor=node.config.whole("default.replication.factor"),
        existing=existing,
    )


def _names_others(node: HandlerNode, image: MetadataImage, asked: Sequence[Any] | None) -> bool:
    """Say whether the answer would send the client to another broker than this one."""
    topics = image.topics.values() if asked is None else [_topic(image, a) for a in asked]
    own = (NO_LEADER, node.broker_id)
    return any(p.leader not in own for t in topics if t is not None for p in t.partition_states)


def _key_of(asked: Any) -> UUID | str | None:
    return named_or_identified(asked.name, getattr(asked, "topic_id", None))


def _topic(image: MetadataImage, asked: Any) -> Topic | None:
    found = topic_known_as(image, _key_of(asked))
    return found if isinstance(found, Topic) else None


def _asked(
    answer: Answer,
    image: MetadataImage,
    asked: Any,
    operations: int,
    refused: dict[str, SparklogError],
) -> Any:
    topic = _topic(image, asked)
    if topic is not None:
        return _found(answer, image, topic, operations)
    name = key if isinstance(key := _key_of(asked), str) else None
    if name is None:
        error = ErrorCode.unknown_topic_id
    else:
        error = code_of(refused.get(name, UnknownTopicOrPartition()))
    nameless = None if answer.version >= NAMELESS_SINCE else ""
    return answer.entity(
        "MetadataResponseTopic",
        error_code=error,
        name=nameless if name is None else name,
        topic_id=getattr(asked, "topic_id", None),
        is_internal=name in TOLD_AS_INTERNAL,
        partitions=(),
        topic_authorized_operations=operations,
    )


def _found(answer: Answer, image: MetadataImage, topic: Topic, operations: int) -> Any:
    partitions = range(topic.partitions)
    return described(answer, "MetadataResponse", image, topic, operations, partitions=partitions)
