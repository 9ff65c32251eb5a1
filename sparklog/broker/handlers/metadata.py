"""Metadata (3): brokers, and the leaders of topics. Creates requested topics that are missing.

DescribeTopicPartitions (75): topics page by page. Source: KIP-966.

DescribeCluster (60): the cluster's id, its controller and its live brokers. Source: KIP-700.

FindCoordinator (10): the broker that coordinates a group or a transactional id.

The first request creates the internal topic. During an election the broker holds the request until
there is a leader, usually 0.1 s and at most `ELECTED_WITHIN_S`. After an immediate
COORDINATOR_NOT_AVAILABLE librdkafka would ask again only after 0.5 s.

Source: KIP-98, KIP-699 (several keys).

ApiVersions (18): the APIs and versions that this broker supports.

Source: KIP-511, KIP-584, KIP-1242.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from sparklog.broker.coordinator.internal_topics import InternalTopic
from sparklog.broker.handlers.created_partitions import mutation_quota
from sparklog.broker.handlers.request_parts import decide_apart, named_or_identified, topic_known_as
from sparklog.broker.handlers.responses import (
    CLUSTER_OPERATIONS,
    NO_THROTTLE,
    NOT_ASKED,
    TOPIC_OPERATIONS,
    code_of,
    controller_id,
    described,
    listed,
    message_of,
)
from sparklog.broker.network.quotas import ControllerMutationQuota, ThrottlingQuotaExceeded
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.request import RequestContext
from sparklog.cluster.metadata import changes
from sparklog.cluster.metadata.changes import ExistingTopics
from sparklog.cluster.metadata.features import LEVEL, level_of
from sparklog.cluster.metadata.image import Broker, MetadataImage, Topic
from sparklog.cluster.metadata.records import FIRST_LEVEL, NO_LEADER, SPARKLOG_VERSION
from sparklog.coordinator.internal_topics import (
    GROUPS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
    partition_for,
)
from sparklog.coordinator.share.delivery_state import SharePartitionKey
from sparklog.core.entropy import new_topic_id
from sparklog.core.errors import (
    CoordinatorNotAvailable,
    InvalidRequest,
    LeaderNotAvailable,
    SparklogError,
    UnknownTopicOrPartition,
)
from sparklog.core.topic_names import CLOSED_TOPICS, LISTED_AS_INTERNAL
from sparklog.protocol.api_keys import APIS, FEATURES, Api, advertised
from sparklog.protocol.messages.builder import ResponseBuilder
from sparklog.protocol.messages.frames import RequestHeader

AUTO_CREATED_MAX = 100
"""Partitions that one request may create without a CreateTopics. The rest of the topics get
LEADER_NOT_AVAILABLE, as any topic without a leader does, so the client asks again."""
NAMELESS_SINCE = 12
"""The first version whose responses may leave out the name of a topic."""


async def metadata(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return every live broker, and the requested topics; without a list, all topics."""
    answer = ResponseBuilder.to(request)
    image = node.metadata.image
    version = request.__version__
    asks_all = request.topics is None or (version == 0 and not request.topics)
    refused: dict[str, SparklogError] = {}
    quota = mutation_quota(node, context, strict=True)
    if not asks_all:
        image, refused = await _with_missing(node, request, image, quota, context.creator)
    shown = node.reachability.for_clients(image)
    if _names_others(node, shown, None if asks_all else request.topics):
        await node.reachability.wait_for_news()
        shown = node.reachability.for_clients(node.metadata.image)
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
        throttle_time=quota.throttle_time(),
        brokers=listed(
            answer,
            "MetadataResponseBroker",
            node.addressed(shown, context).live_brokers(),
            "node_id",
        ),
        cluster_id=node.cluster_id,
        controller_id=controller_id(shown),
        topics=tuple(topics),
        error_code=ErrorCode.none,
        **values,
    )


async def _with_missing(
    node: BrokerNode,
    request: Any,
    image: MetadataImage,
    quota: ControllerMutationQuota,
    creator: str,
) -> tuple[MetadataImage, dict[str, SparklogError]]:
    """Create missing topics; return the new image, and the error of each that was not created.

    A topic over the client's quota is created when the client asks for it after its wait.
    """
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
        {name: partial(_create_missing, node, name, quota, creator) for name in names[:at_once]},
        ExistingTopics,
    )
    later = LeaderNotAvailable("the topic is created when it is asked for again")
    over_quota = [n for n, e in decided.refused.items() if isinstance(e, ThrottlingQuotaExceeded)]
    postponed = dict.fromkeys((*names[at_once:], *over_quota), later)
    return decided.image, {**decided.refused, **postponed}


def _create_missing(
    node: BrokerNode,
    name: str,
    quota: ControllerMutationQuota,
    creator: str,
    existing: ExistingTopics,
) -> list[Any]:
    if name in existing.image.topics:
        return []  # another request created it first
    partitions = node.config.whole("num.partitions")
    records = changes.create_topic(
        existing.image,
        name,
        new_topic_id(node.environment.entropy),
        partitions,
        {},
        default_replication_factor=node.config.whole("default.replication.factor"),
        existing=existing,
    )
    quota.accept(name, partitions)
    return changes.created_by(creator, records)


def _names_others(node: BrokerNode, image: MetadataImage, asked: Sequence[Any] | None) -> bool:
    """Return True if the response would send the client to a broker other than this one."""
    topics = image.topics.values() if asked is None else [_topic(image, a) for a in asked]
    own = (NO_LEADER, node.broker_id)
    return any(p.leader not in own for t in topics if t is not None for p in t.partition_states)


def _key_of(asked: Any) -> UUID | str | None:
    return named_or_identified(asked.name, getattr(asked, "topic_id", None))


def _topic(image: MetadataImage, asked: Any) -> Topic | None:
    found = topic_known_as(image, _key_of(asked))
    return found if isinstance(found, Topic) else None


def _asked(
    answer: ResponseBuilder,
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
        is_internal=name in LISTED_AS_INTERNAL,
        partitions=(),
        topic_authorized_operations=operations,
    )


def _found(answer: ResponseBuilder, image: MetadataImage, topic: Topic, operations: int) -> Any:
    partitions = range(topic.partitions)
    return described(answer, "MetadataResponse", image, topic, operations, partitions=partitions)


PARTITIONS_MAX = 2000
"""Partitions in one response, as Kafka's `max.request.partition.size.limit`."""


async def describe_topic_partitions(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return the named topics, or all, in the order of their names, from the cursor on.

    If the topic of the cursor was deleted meanwhile, the page begins with the next topic.
    """
    answer = ResponseBuilder.to(request)
    image = node.metadata.image
    named = {t.name for t in request.topics}
    names = sorted(named or image.topics)
    first, skipped = "", 0
    if request.cursor is not None:
        first, skipped = request.cursor.topic_name, max(0, request.cursor.partition_index)
    left = min(max(1, request.response_partition_limit), PARTITIONS_MAX)
    topics: list[Any] = []
    cursor = None
    for name in (n for n in names if n >= first):
        start = skipped if name == first else 0
        topic = image.topics.get(name)
        if left == 0:
            cursor = answer.entity("Cursor", topic_name=name, partition_index=0)
            break
        if topic is None:
            if name in named and name != first:
                topics.append(_unknown(answer, name))
            continue
        states = topic.partition_states[start : start + left]
        topics.append(
            described(
                answer,
                "DescribeTopicPartitionsResponse",
                image,
                topic,
                TOPIC_OPERATIONS,
                partitions=range(start, start + len(states)),
                eligible_leader_replicas=(),
                last_known_elr=(),
            )
        )
        left -= len(states)
        if start + len(states) < topic.partitions:
            end = start + len(states)
            cursor = answer.entity("Cursor", topic_name=name, partition_index=end)
            break
    return answer.response(throttle_time=NO_THROTTLE, topics=tuple(topics), next_cursor=cursor)


def _unknown(answer: ResponseBuilder, name: str) -> Any:
    return answer.entity(
        "DescribeTopicPartitionsResponseTopic",
        error_code=ErrorCode.unknown_topic_or_partition,
        name=name,
        topic_id=None,
        partitions=(),
    )


BROKERS = 1
"""The only type of endpoint here; Kafka's controllers have endpoints of their own."""


async def describe_cluster(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return the cluster as the metadata image shows it."""
    answer = ResponseBuilder.to(request)
    image = node.image_for(context)
    endpoint_type = getattr(request, "endpoint_type", BROKERS)
    asks_operations = request.include_cluster_authorized_operations
    answerable = endpoint_type == BROKERS
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none if answerable else ErrorCode.unsupported_endpoint_type,
        error_message=None if answerable else "brokers are controllers too; ask for brokers.",
        endpoint_type=endpoint_type,
        cluster_id=node.cluster_id,
        controller_id=controller_id(image),
        brokers=_brokers(answer, image, fenced=getattr(request, "include_fenced_brokers", False))
        if answerable
        else (),
        cluster_authorized_operations=CLUSTER_OPERATIONS if asks_operations else NOT_ASKED,
    )


def _brokers(answer: ResponseBuilder, image: MetadataImage, *, fenced: bool) -> tuple[Any, ...]:
    """Return the live brokers by id, and with `fenced` the fenced ones too. Source: KIP-1073."""
    shown = image.brokers.values() if fenced else image.live_brokers()
    return tuple(
        answer.entity(
            "DescribeClusterBroker",
            broker_id=one.broker_id,
            host=one.host,
            port=one.port,
            rack=one.rack,
            is_fenced=one.fenced,
        )
        for one in sorted(shown, key=lambda one: one.broker_id)
    )


SHARE: Final = 2
TOPICS: Final = {0: GROUPS_TOPIC, 1: TRANSACTIONS_TOPIC, SHARE: SHARE_STATE_TOPIC}
"""The topic that holds the state of each kind of key."""
MANY_SINCE: Final = 4
"""The first version with several keys."""
GROUP: Final = 0
ELECTED_WITHIN_S: Final = 0.3
"""Time in which a dead leader is replaced if the storage responds quickly. Later requests on the
same connection wait too, so the time is not longer."""
Found = dict[str, Broker | SparklogError]
"""The coordinator of each key, or the error if there is none."""


async def find_coordinator(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return the broker that coordinates each key."""
    answer = ResponseBuilder.to(request)
    many = answer.version >= MANY_SINCE
    keys = request.coordinator_keys if many else (request.key,)
    kind = int(getattr(request, "key_type", GROUP))
    found = _impossible_keys(kind, keys)
    possible = [key for key in keys if key not in found]
    if possible:
        try:
            topic = await _find_coordinator_topic(node, kind)
        except SparklogError as error:
            found.update(dict.fromkeys(possible, error))
        else:
            found.update(await _coordinators(node, topic, possible, context))
    if many:
        return answer.response(
            throttle_time=NO_THROTTLE,
            coordinators=tuple(
                answer.entity("Coordinator", key=key, error_message=_message(who), **_place(who))
                for key, who in ((key, found[key]) for key in dict.fromkeys(keys))
            ),
        )
    who = found[request.key]
    return answer.response(throttle_time=NO_THROTTLE, error_message=_message(who), **_place(who))


def _impossible_keys(kind: int, keys: Sequence[str]) -> Found:
    """Return the keys that no coordinator can have, with the error."""
    found: Found = {}
    if kind == SHARE:
        for key in keys:
            try:
                SharePartitionKey.parse(key)
            except InvalidRequest as error:
                found[key] = error
    return found


async def _find_coordinator_topic(node: BrokerNode, kind: int) -> Topic:
    name = TOPICS.get(kind)
    if name is None:
        raise InvalidRequest(f"no such kind of coordinator is known here. key_type={kind}")
    return await InternalTopic.of(name, node.config).ensure(node.metadata, node.environment)


async def _coordinators(
    node: BrokerNode, topic: Topic, keys: Sequence[str], context: RequestContext
) -> Found:
    """Return the coordinator of each key; wait for news of a dead broker, and for an election."""

    def look() -> Found:
        return {key: _coordinator(node, topic, key, context) for key in keys}

    found = look()
    if any(isinstance(who, Broker) and who.broker_id != node.broker_id for who in found.values()):
        await node.reachability.wait_for_news()
        found = look()
    with suppress(TimeoutError):
        async with asyncio.timeout(ELECTED_WITHIN_S):
            while any(isinstance(who, SparklogError) for who in found.values()):
                await node.metadata.beyond(node.metadata.image.end_offset)
                found = look()
    return found


def _coordinator(
    node: BrokerNode, topic: Topic, key: str, context: RequestContext
) -> Broker | SparklogError:
    image = node.addressed(node.reachability.for_clients(node.metadata.image), context)
    topic = image.topics.get(topic.name, topic)
    partition = partition_for(key, topic.partitions)
    leader = topic.partition_states[partition].leader
    broker = None if leader == NO_LEADER else image.brokers.get(leader)
    if broker is None or broker.fenced:
        return CoordinatorNotAvailable(
            "the coordinator's partition has no leader now; try again. "
            f"topic={topic.name} partition={partition}"
        )
    return broker


def _place(who: Broker | SparklogError) -> dict[str, Any]:
    if isinstance(who, SparklogError):
        return {"error_code": code_of(who), "node_id": -1, "host": "", "port": -1}
    return {
        "error_code": ErrorCode.none,
        "node_id": who.broker_id,
        "host": who.host,
        "port": who.port,
    }


def _message(who: Broker | SparklogError) -> str | None:
    return message_of(who) if isinstance(who, SparklogError) else None


FEATURES_SINCE: Final = 3
TELEMETRY_APIS: Final = frozenset({Api.GET_TELEMETRY_SUBSCRIPTIONS, Api.PUSH_TELEMETRY})
ANY_NODE: Final = -1


async def api_versions(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return the supported APIs and the finalized features."""
    answer = ResponseBuilder.to(request)
    known = _is_meant(node, request)
    return answer.response(
        error_code=ErrorCode.none if known else ErrorCode.rebootstrap_required,
        api_keys=_keys(answer, _served(node)) if known else (),
        throttle_time=NO_THROTTLE,
        **(_features(answer, node.metadata.image) if answer.version >= FEATURES_SINCE else {}),
    )


def _served(node: BrokerNode) -> list[tuple[int, int, int]]:
    """Return the APIs of this broker; as in Kafka, clients' metrics only where they are wanted."""
    if node.config.words("sparklog.client.metrics"):
        return advertised()
    return [one for one in advertised() if one[0] not in TELEMETRY_APIS]


def _is_meant(node: BrokerNode, request: Any) -> bool:
    """Return False if the client names another cluster or another broker (KIP-1242)."""
    cluster_id = getattr(request, "cluster_id", None)
    node_id = int(getattr(request, "node_id", ANY_NODE))
    return cluster_id in {None, node.cluster_id} and node_id in {ANY_NODE, node.broker_id}


def refuse(header: RequestHeader) -> Any:
    """Return UNSUPPORTED_VERSION in version 0, which every client can read."""
    answer = ResponseBuilder(Api.API_VERSIONS, 0)
    versions = APIS[Api.API_VERSIONS]
    known = [(int(Api.API_VERSIONS), versions.min, versions.max)]
    return answer.response(error_code=ErrorCode.unsupported_version, api_keys=_keys(answer, known))


def _features(answer: ResponseBuilder, image: MetadataImage) -> dict[str, Any]:
    own = level_of(image)
    finalized = {**{f.name: f.level for f in FEATURES}, SPARKLOG_VERSION: own}
    supported = {**{f.name: f.level for f in FEATURES}, SPARKLOG_VERSION: LEVEL}
    return {
        "supported_features": tuple(
            answer.entity("SupportedFeatureKey", name=name, min_version=1, max_version=level)
            for name, level in supported.items()
        ),
        "finalized_features_epoch": own - FIRST_LEVEL,
        "finalized_features": tuple(
            answer.entity(
                "FinalizedFeatureKey",
                name=name,
                max_version_level=level,
                min_version_level=level,
            )
            for name, level in finalized.items()
        ),
    }


def _keys(answer: ResponseBuilder, known: list[tuple[int, int, int]]) -> tuple[Any, ...]:
    return tuple(
        answer.entity("ApiVersion", api_key=key, min_version=lowest, max_version=highest)
        for key, lowest, highest in known
    )
