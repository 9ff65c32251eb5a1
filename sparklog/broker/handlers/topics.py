"""CreateTopics (19). Any broker decides it; the metadata log puts decisions in order.

DeleteTopics (20): by name, or by id.

A topic is deleted at once, also for direct writers. Its objects are then without a name in the
metadata. The broker deletes them after `file.delete.delay.ms`, except those that named snapshots
keep. If the broker stops before that, retention deletes the objects.

CreatePartitions (37).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from sparklog.broker.handlers.created_partitions import mutation_quota, until_led
from sparklog.broker.handlers.request_parts import (
    UnknownTopicId,
    decide_apart,
    decide_each,
    refusing,
)
from sparklog.broker.handlers.responses import (
    code_of,
    error_fields,
    message_of,
    named_twice,
)
from sparklog.broker.network.quotas import ControllerMutationQuota
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.metadata_access import Decision
from sparklog.broker.runtime.request import RequestContext
from sparklog.cluster.metadata import changes
from sparklog.cluster.metadata.changes import ExistingTopics
from sparklog.cluster.metadata.image import MetadataImage, Topic
from sparklog.cluster.metadata.records import Record
from sparklog.core.config.describe import described_topic
from sparklog.core.config.model import understood_configs
from sparklog.core.config.topic import TOPIC_SETTINGS
from sparklog.core.entropy import new_nonce, new_topic_id
from sparklog.core.errors import (
    InvalidConfig,
    InvalidReplicaAssignment,
    InvalidRequest,
    SparklogError,
)
from sparklog.log.manifest.tombstone import deletable_objects, write_tombstone
from sparklog.log.manifest.view import PartitionView
from sparklog.protocol.messages.builder import ResponseBuilder
from sparklog.protocol.topic_ids import topic_id_of, uuid_of

DEFAULT = -1
CREATE_STRICT_SINCE, DELETE_STRICT_SINCE, GROW_STRICT_SINCE = 6, 5, 3
"""Versions from which on a client gets an error for a change over its quota (KIP-599)."""


async def create_topics(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Create every valid topic; each other topic gets its own error."""
    answer = ResponseBuilder.to(request)
    times = Counter(t.name for t in request.topics)
    total = sum(_partitions(node, t) for t in request.topics)
    validate_only = getattr(request, "validate_only", False)
    quota = mutation_quota(node, context, strict=answer.version >= CREATE_STRICT_SINCE)
    decisions: dict[str, Callable[[ExistingTopics], list[Record]]] = {
        t.name: partial(_create, node, t, total, quota, context.creator)
        if times[t.name] == 1
        else refusing(named_twice("topic", t.name))
        for t in request.topics
    }
    decided = await decide_apart(
        node.metadata, decisions, ExistingTopics, validate_only=validate_only
    )
    if not validate_only:
        created = [name for name in decisions if name not in decided.refused]
        await until_led(node, created, request.timeout)
    return answer.response(
        throttle_time=quota.throttle_time(),
        topics=tuple(
            _result(answer, name, decided.refused.get(name), decided.image.topics.get(name))
            for name in decisions
        ),
    )


def _partitions(node: BrokerNode, wanted: Any) -> int:
    """Return the number of partitions that a topic shall have."""
    if wanted.assignments:
        return len(wanted.assignments)
    if wanted.num_partitions == DEFAULT:
        return node.config.whole("num.partitions")
    return max(0, int(wanted.num_partitions))


def _create(
    node: BrokerNode,
    wanted: Any,
    total: int,
    quota: ControllerMutationQuota,
    creator: str,
    existing: ExistingTopics,
) -> list[Record]:
    changes.check_partitions_created(total)
    configs = _configs(wanted)
    partitions, factor = wanted.num_partitions, wanted.replication_factor
    if wanted.assignments and (partitions != DEFAULT or factor != DEFAULT):
        raise InvalidRequest(
            "with an assignment, partitions and replication factor are -1. "
            f"topic={wanted.name} partitions={partitions} replication_factor={factor}"
        )
    records = changes.create_topic(
        existing.image,
        wanted.name,
        new_topic_id(node.environment.entropy),
        node.config.whole("num.partitions") if partitions == DEFAULT else partitions,
        configs,
        replication_factor=None if factor == DEFAULT else factor,
        assignment=_assignment(wanted) if wanted.assignments else None,
        default_replication_factor=node.config.whole("default.replication.factor"),
        existing=existing,
    )
    quota.accept(wanted.name, _partitions(node, wanted))
    return changes.created_by(creator, records)


def _configs(wanted: Any) -> dict[str, str]:
    configs: dict[str, str] = {}
    for config in wanted.configs:
        if config.value is None:
            raise InvalidConfig(f"a setting has no value. topic={wanted.name} name={config.name}")
        configs[config.name] = config.value
    return configs


def _assignment(wanted: Any) -> Mapping[int, tuple[int, ...]]:
    assignment = {a.partition_index: tuple(a.broker_ids) for a in wanted.assignments}
    if len(assignment) != len(wanted.assignments):
        raise InvalidReplicaAssignment(f"a partition is assigned twice. topic={wanted.name}")
    return assignment


def _result(
    answer: ResponseBuilder, name: str, error: SparklogError | None, topic: Topic | None
) -> Any:
    if error is not None or topic is None:
        return answer.entity(
            "CreatableTopicResult",
            name=name,
            topic_id=None,
            error_code=code_of(error),
            error_message=message_of(error),
            configs=(),
        )
    return answer.entity(
        "CreatableTopicResult",
        name=name,
        topic_id=uuid_of(topic.topic_id),
        error_code=code_of(None),
        error_message=None,
        num_partitions=topic.partitions,
        replication_factor=len(topic.partition_states[0].replicas),
        configs=tuple(
            answer.entity(
                "CreatableTopicConfigs",
                name=described.setting.name,
                value=described.value,
                read_only=False,
                config_source=described.source,
                is_sensitive=False,
            )
            for described in described_topic(topic.configs, topic.defaults)
        )
        if _has_configs(answer)
        else (),
    )


def _has_configs(answer: ResponseBuilder) -> bool:
    return answer.version >= 5


logger = logging.getLogger(__name__)


class TopicDeletionDisabled(InvalidRequest):
    """`delete.topic.enable` is false on this broker."""

    kafka_code = 73


async def delete_topics(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Delete every known topic; each other topic gets its own error."""
    answer = ResponseBuilder.to(request)
    asked = _asked(request)
    first = {one: place for place, one in reversed(list(enumerate(asked)))}
    quota = mutation_quota(node, context, strict=answer.version >= DELETE_STRICT_SINCE)
    decisions: dict[int, Decision] = {
        place: _decision(node, name, topic_id, first[name, topic_id] < place, quota)
        for place, (name, topic_id) in enumerate(asked)
    }
    known = [_topic(node.metadata.image, name, topic_id) for name, topic_id in asked]
    decided = await decide_each(node.metadata, decisions)
    results = []
    for place, ((name, topic_id), topic) in enumerate(zip(asked, known, strict=True)):
        error = decided.refused.get(place)
        results.append(_delete_topics_result(answer, name, topic_id, topic, error))
        if error is None and topic is not None:
            node.background(_delete_objects(node, topic), f"delete objects of {topic.name}")
    return answer.response(throttle_time=quota.throttle_time(), responses=tuple(results))


def _asked(request: Any) -> list[tuple[str | None, str | None]]:
    """Return the name and the id of each topic; one of the two is None."""
    names = getattr(request, "topic_names", None)
    if names is not None:
        return [(name, None) for name in names]
    return [
        (t.name, None if t.topic_id is None else topic_id_of(t.topic_id)) for t in request.topics
    ]


def _topic(image: MetadataImage, name: str | None, topic_id: str | None) -> Topic | None:
    if name is not None:
        return image.topics.get(name)
    return image.topic_of(topic_id) if topic_id is not None else None


def _decision(
    node: BrokerNode,
    name: str | None,
    topic_id: str | None,
    repeated: bool,
    quota: ControllerMutationQuota,
) -> Decision:
    if not node.config.flag("delete.topic.enable"):
        return refusing(
            TopicDeletionDisabled("this broker deletes none: delete.topic.enable=false")
        )
    if (name is None) == (topic_id is None):
        return refusing(InvalidRequest(f"give a name or an id. name={name} topic_id={topic_id}"))
    if repeated:
        return refusing(named_twice("topic", name or str(topic_id)))
    return partial(_delete, name, topic_id, quota)


def _delete(
    name: str | None,
    topic_id: str | None,
    quota: ControllerMutationQuota,
    image: MetadataImage,
) -> list[Record]:
    if name is None:
        topic = _topic(image, name, topic_id)
        if topic is None:
            raise UnknownTopicId(f"no topic has this id. topic_id={topic_id}")
        name = topic.name
    records = changes.delete_topic(image, name)
    quota.accept((name, topic_id), image.topics[name].partitions)
    return records


def _delete_topics_result(
    answer: ResponseBuilder,
    name: str | None,
    topic_id: str | None,
    topic: Topic | None,
    error: SparklogError | None,
) -> Any:
    if topic is not None:
        name, topic_id = topic.name, topic.topic_id
    return answer.entity(
        "DeletableTopicResult",
        name=name,
        topic_id=None if topic_id is None else uuid_of(topic_id),
        error_code=code_of(error),
        error_message=message_of(error),
    )


async def _delete_objects(node: BrokerNode, topic: Topic) -> None:
    """Write a deleted topic's tombstones; delete its objects after a delay.

    During the delay running reads and flushes end.
    """
    store, entropy = node.environment.store, node.environment.entropy
    try:
        configs = understood_configs(topic.settings, TOPIC_SETTINGS)
        delay_ms = configs.whole("file.delete.delay.ms")
        layouts = topic.layouts()
        burials = [
            store.run(write_tombstone(PartitionView(one), new_nonce(entropy))) for one in layouts
        ]
        tombstones = await asyncio.gather(*burials)
        await asyncio.sleep(delay_ms / 1000)
        for layout, tombstone in zip(layouts, tombstones, strict=True):
            doomed, problem = await store.run(deletable_objects(layout, tombstone))
            for info in doomed:
                await store.delete(info.key)
            if problem:
                logger.error("objects of a deleted topic stay: %s topic=%s", problem, topic.name)
    except SparklogError as error:
        logger.warning("objects of a deleted topic stay: %s topic=%s", error, topic.name)


async def create_partitions(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Add partitions to every valid topic; each other topic gets its own error."""
    answer = ResponseBuilder.to(request)
    times = Counter(t.name for t in request.topics)
    topics = node.metadata.image.topics
    total = sum(
        max(0, t.count - topics[t.name].partitions) for t in request.topics if t.name in topics
    )
    quota = mutation_quota(node, context, strict=answer.version >= GROW_STRICT_SINCE)
    decisions: dict[str, Callable[[ExistingTopics], list[Record]]] = {
        t.name: partial(_grow, node, t, total, quota)
        if times[t.name] == 1
        else refusing(named_twice("topic", t.name))
        for t in request.topics
    }
    decided = await decide_apart(
        node.metadata, decisions, ExistingTopics, validate_only=request.validate_only
    )
    if not request.validate_only:
        grown = [name for name in decisions if name not in decided.refused]
        await until_led(node, grown, request.timeout)
    return answer.response(
        throttle_time=quota.throttle_time(),
        results=tuple(
            answer.entity(
                "CreatePartitionsTopicResult",
                name=name,
                **error_fields(decided.refused.get(name)),
            )
            for name in decisions
        ),
    )


def _grow(
    node: BrokerNode,
    wanted: Any,
    total: int,
    quota: ControllerMutationQuota,
    existing: ExistingTopics,
) -> list[Record]:
    changes.check_partitions_created(total)
    assignment = wanted.assignments
    records = changes.add_partitions(
        existing.image,
        wanted.name,
        wanted.count,
        assignment=None if assignment is None else [tuple(a.broker_ids) for a in assignment],
        default_replication_factor=node.config.whole("default.replication.factor"),
        existing=existing,
    )
    added = wanted.count - existing.image.topics[wanted.name].partitions
    quota.accept(wanted.name, added)
    return records
