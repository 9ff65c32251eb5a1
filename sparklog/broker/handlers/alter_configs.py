"""AlterConfigs (33) and IncrementalAlterConfigs (44): settings of topics and groups.

Source: KIP-226, KIP-339, KIP-848.

Brokers without an id stand for the defaults of all topics. Of a broker's own settings those of
`core.dynamic_settings` can be changed while it runs. Unsetting what is not set succeeds: Kafka's
reassignment tool lifts throttles from all brokers when it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any

from sparklog.broker.handlers.answering import NO_THROTTLE, error_fields, named_twice
from sparklog.broker.handlers.config_entries import Resource
from sparklog.broker.handlers.deciding import Decided, decide_each, refusing
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.metadata_access import Decision
from sparklog.broker.request import RequestContext
from sparklog.cluster import registry
from sparklog.cluster.image import MetadataImage
from sparklog.cluster.records import EVERY_BROKER, Record
from sparklog.core.broker_settings import BROKER_SETTINGS
from sparklog.core.config import Config, Kind, Setting, check_names, parse_configs
from sparklog.core.errors import InvalidConfig, InvalidRequest
from sparklog.core.group_configs import GROUP_CONFIGS
from sparklog.core.settings import TOPIC_SETTINGS
from sparklog.core.topic_defaults import DEFAULT_SETTINGS
from sparklog.protocol.building import Answer

ResourceKey = tuple[int, str]


class Operation(IntEnum):
    """What is done to one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def replace_all(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Make the settings given the only ones that are set (33)."""
    return await _alter(node, request, _replaced)


async def incremental(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Change the settings given and no others (44)."""
    return await _alter(node, request, _changed)


async def _alter(node: HandlerNode, request: Any, alter: Any) -> Any:
    decisions: dict[ResourceKey, Decision] = {}
    for resource in request.resources:
        key = (resource.resource_type, resource.resource_name)
        decisions[key] = (
            refusing(named_twice("resource", resource.resource_name))
            if key in decisions
            else _decision(resource, alter, node.broker_id, node.config)
        )
    decided = await decide_each(node.metadata, decisions, validate_only=request.validate_only)
    return _response(Answer.to(request), decisions, decided)


def _response(
    answer: Answer, decisions: Mapping[ResourceKey, Decision], decided: Decided[ResourceKey]
) -> Any:
    return answer.response(
        throttle_time=NO_THROTTLE,
        responses=tuple(
            answer.entity(
                "AlterConfigsResourceResponse",
                resource_type=key[0],
                resource_name=key[1],
                **error_fields(decided.refused.get(key)),
            )
            for key in decisions
        ),
    )


def _decision(resource: Any, alter: Any, broker_id: int, broker: Config) -> Decision:
    if resource.resource_type == Resource.TOPIC:
        return partial(alter, resource, _of_topic)
    if resource.resource_type == Resource.GROUP:
        return partial(alter, resource, partial(_of_group, broker))
    if resource.resource_type == Resource.BROKER:
        if resource.resource_name == EVERY_BROKER:
            return partial(alter, resource, _of_all_topics)
        if resource.resource_name != str(broker_id):
            return refusing(
                InvalidRequest(
                    "a broker changes its own settings only; ask that one. "
                    f"broker={broker_id} asked={resource.resource_name!r}"
                )
            )
        if all(getattr(c, "config_operation", None) == Operation.DELETE for c in resource.configs):
            return partial(_unset, resource)
        return partial(alter, resource, _of_one_broker)
    return refusing(
        InvalidRequest(
            "only topics, one by one or all, and groups have settings to change. "
            f"resource_type={resource.resource_type}"
        )
    )


@dataclass(frozen=True, slots=True)
class _Settings:
    """What is changed: the settings of one topic or group, or the defaults of all topics."""

    table: Mapping[str, Setting]
    own: Mapping[str, str]
    """What is set."""
    in_force: Mapping[str, str]
    """What is set, and what is in force where nothing is."""
    decide: Callable[[Mapping[str, str], Iterable[str]], list[Record]]


FindSettings = Callable[[MetadataImage, str], _Settings]


def _of_topic(image: MetadataImage, name: str) -> _Settings:
    topic = registry.known_topic(image, name)
    decide = partial(registry.alter_configs, image, name)
    return _Settings(TOPIC_SETTINGS, topic.configs, topic.settings, decide)


def _of_all_topics(image: MetadataImage, name: str) -> _Settings:
    own = image.broker_configs.get(name, {})
    decide = partial(registry.alter_topic_defaults, image)
    return _Settings(DEFAULT_SETTINGS, own, own, decide)


def _of_group(broker: Config, image: MetadataImage, group_id: str) -> _Settings:
    own = image.group_configs.get(group_id, {})
    decide = partial(registry.alter_group_configs, image, group_id, broker)
    return _Settings(GROUP_CONFIGS, own, own, decide)


def _of_one_broker(image: MetadataImage, name: str) -> _Settings:
    own = image.broker_configs.get(name, {})
    decide = partial(registry.alter_broker_configs, image, name)
    return _Settings({**DEFAULT_SETTINGS, **BROKER_SETTINGS}, own, own, decide)


def _unset(resource: Any, image: MetadataImage) -> list[Record]:
    """Reset settings of one broker; those that are not set, or not known, are passed over."""
    names = [c.name for c in resource.configs]
    return registry.alter_broker_configs(image, resource.resource_name, {}, names)


def _replaced(resource: Any, find: FindSettings, image: MetadataImage) -> list[Record]:
    settings = find(image, resource.resource_name)
    wanted = {c.name: _value(c) for c in resource.configs}
    if len(wanted) != len(resource.configs):
        raise named_twice("setting", resource.resource_name)
    gone = [name for name in settings.own if name not in wanted]
    return settings.decide(wanted, gone)


def _changed(resource: Any, find: FindSettings, image: MetadataImage) -> list[Record]:
    settings = find(image, resource.resource_name)
    names = [c.name for c in resource.configs]
    if len(set(names)) != len(names):
        raise named_twice("setting", resource.resource_name)
    check_names((name for name in names if name not in settings.own), settings.table)
    set_: dict[str, str] = {}
    gone: list[str] = []
    for config in resource.configs:
        if config.config_operation == Operation.DELETE:
            gone.append(config.name)
        else:
            set_[config.name] = _operated(settings, config)
    return settings.decide(set_, gone)


def _operated(settings: _Settings, config: Any) -> str:
    """Return the value a setting has after an operation that is no deletion."""
    value = _value(config)
    if config.config_operation == Operation.SET:
        return value
    setting = settings.table.get(config.name)
    if config.config_operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise InvalidRequest(f"no such operation. operation={config.config_operation}")
    if setting is None or setting.kind is not Kind.LIST:
        raise InvalidConfig(f"only lists are appended to or subtracted from. name={config.name}")
    stored = {n: text for n, text in settings.in_force.items() if n == config.name}
    words = parse_configs(stored, settings.table).words(config.name)
    given = [word.strip() for word in value.split(",") if word.strip()]
    if config.config_operation == Operation.APPEND:
        return ",".join((*words, *(word for word in given if word not in words)))
    return ",".join(word for word in words if word not in given)


def _value(config: Any) -> str:
    if config.value is None:
        raise InvalidConfig(f"a setting has no value. name={config.name}")
    return str(config.value)
