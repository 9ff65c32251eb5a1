"""CreateTopics (19). Any broker decides it; the metadata log puts decisions in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of, message_of, named_twice
from sparklog.broker.handlers.deciding import decide_apart, refusing
from sparklog.broker.handlers.leading import until_led
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.cluster import registry
from sparklog.cluster.image import Topic
from sparklog.cluster.records import Record
from sparklog.cluster.registry import ExistingTopics
from sparklog.core.entropy import new_topic_id
from sparklog.core.errors import (
    InvalidConfig,
    InvalidReplicaAssignment,
    InvalidRequest,
    SparklogError,
)
from sparklog.core.told_settings import topic_told
from sparklog.protocol.building import Answer
from sparklog.protocol.topic_ids import uuid_of

DEFAULT = -1


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Create every topic that can be; the others have their own errors."""
    answer = Answer.to(request)
    times = Counter(t.name for t in request.topics)
    total = sum(_partitions(node, t) for t in request.topics)
    validate_only = getattr(request, "validate_only", False)
    decisions: dict[str, Callable[[ExistingTopics], list[Record]]] = {
        t.name: partial(_create, node, t, total)
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
        throttle_time=NO_THROTTLE,
        topics=tuple(
            _result(answer, name, decided.refused.get(name), decided.image.topics.get(name))
            for name in decisions
        ),
    )


def _partitions(node: HandlerNode, wanted: Any) -> int:
    """Return how many partitions a topic is to have."""
    if wanted.assignments:
        return len(wanted.assignments)
    if wanted.num_partitions == DEFAULT:
        return node.config.whole("num.partitions")
    return max(0, int(wanted.num_partitions))


def _create(node: HandlerNode, wanted: Any, total: int, existing: ExistingTopics) -> list[Record]:
    registry.check_partitions_created(total)
    configs = _configs(wanted)
    partitions, factor = wanted.num_partitions, wanted.replication_factor
    if wanted.assignments and (partitions != DEFAULT or factor != DEFAULT):
        raise InvalidRequest(
            "with an assignment, partitions and replication factor are -1. "
            f"topic={wanted.name} partitions={partitions} replication_factor={factor}"
        )
    return registry.create_topic(
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


def _result(answer: Answer, name: str, error: SparklogError | None, topic: Topic | None) -> Any:
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
                name=told.setting.name,
                value=told.value,
                read_only=False,
                config_source=told.source,
                is_sensitive=False,
            )
            for told in topic_told(topic.configs, topic.defaults)
        )
        if _has_configs(answer)
        else (),
    )


def _has_configs(answer: Answer) -> bool:
    return answer.version >= 5
