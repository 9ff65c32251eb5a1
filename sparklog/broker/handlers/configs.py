"""AlterConfigs (33) and IncrementalAlterConfigs (44): settings of topics, groups and brokers.

Source: KIP-226, KIP-339, KIP-848.

A broker resource without an id stands for the defaults of all topics. While a broker runs, only
its settings in `core.config.dynamic_broker` can be changed. Deleting a setting that is not set
succeeds: Kafka's reassignment tool removes throttles from all brokers when it is done.

DescribeConfigs (32): settings of topics, groups and this broker, with their origin.

Source of the codes for types: Kafka `DescribeConfigsResponse.ConfigType`.

ListConfigResources (74): the resources that have settings, by type. Source: KIP-1142.

Version 0 lists only the metrics subscriptions of clients; there are none here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.request_parts import AcceptedItems, decide_each, refusing
from sparklog.broker.handlers.responses import (
    NO_THROTTLE,
    code_of,
    error_fields,
    message_of,
    named_twice,
)
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.metadata_access import Decision
from sparklog.broker.runtime.request import RequestContext
from sparklog.cluster.metadata import changes
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import EVERY_BROKER, Record
from sparklog.core.config.broker import BROKER_SETTINGS
from sparklog.core.config.describe import (
    CREATED_BY,
    DescribedConfig,
    described_broker,
    described_defaults,
    described_group,
    described_topic,
)
from sparklog.core.config.dynamic_broker import ONE_BROKER_SETTINGS
from sparklog.core.config.group import GROUP_CONFIGS
from sparklog.core.config.model import Config, Setting, SettingType, check_names, parse_configs
from sparklog.core.config.topic import TOPIC_SETTINGS
from sparklog.core.config.topic_defaults import DEFAULT_SETTINGS
from sparklog.core.errors import InvalidConfig, InvalidRequest, SparklogError
from sparklog.protocol.messages.builder import ResponseBuilder


class ConfigResourceType(IntEnum):
    """Types of the resources that have settings."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


_TYPES: Final = {
    SettingType.BOOLEAN: 1,
    SettingType.STRING: 2,
    SettingType.INT: 3,
    SettingType.LONG: 5,
    SettingType.DOUBLE: 6,
    SettingType.LIST: 7,
    SettingType.SHORT: 4,
    SettingType.CLASS: 8,
    SettingType.PASSWORD: 9,
}


def entries(
    answer: ResponseBuilder,
    described: Iterable[DescribedConfig],
    asked: Collection[str] | None,
    *,
    alterable: Collection[str] | None,
    synonyms: bool,
    documentation: bool,
) -> tuple[Any, ...]:
    """Return settings as DescribeConfigs responses list them.

    `asked` None or empty asks for all; `alterable` None: a topic's creator only is read-only.
    """
    return tuple(
        _entry(
            answer, one,
            one.setting.name == CREATED_BY
            or (alterable is not None and one.setting.name not in alterable),
            synonyms=synonyms, documentation=documentation,
        )
        for one in described
        if not asked or one.setting.name in asked
    )  # fmt: skip


def _entry(
    answer: ResponseBuilder,
    described: DescribedConfig,
    read_only: bool,
    *,
    synonyms: bool,
    documentation: bool,
) -> Any:
    return answer.entity(
        "DescribeConfigsResourceResult",
        name=described.setting.name,
        value=described.value,
        read_only=read_only,
        config_source=described.source,
        is_sensitive=described.setting.kind is SettingType.PASSWORD,
        synonyms=tuple(
            answer.entity("DescribeConfigsSynonym", name=o.name, value=o.value, source=o.source)
            for o in described.origins
        )
        if synonyms
        else (),
        config_type=_TYPES[described.setting.kind],
        documentation=described.setting.reason if documentation else None,
    )


ResourceKey = tuple[int, str]


class Operation(IntEnum):
    """The operation on one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def replace_all(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Set the given settings and delete all others (33)."""
    return await _alter(node, request, _replaced)


async def incremental(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Change the given settings and no others (44)."""
    return await _alter(node, request, _changed)


async def _alter(node: BrokerNode, request: Any, alter: Any) -> Any:
    decisions: dict[ResourceKey, Decision] = {}
    for resource in request.resources:
        key = (resource.resource_type, resource.resource_name)
        decisions[key] = (
            refusing(named_twice("resource", resource.resource_name))
            if key in decisions
            else _decision(resource, alter, node.broker_id, node.config)
        )
    decided = await decide_each(node.metadata, decisions, validate_only=request.validate_only)
    return _response(ResponseBuilder.to(request), decisions, decided)


def _response(
    answer: ResponseBuilder,
    decisions: Mapping[ResourceKey, Decision],
    decided: AcceptedItems[ResourceKey],
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
    if resource.resource_type == ConfigResourceType.TOPIC:
        return partial(alter, resource, _of_topic)
    if resource.resource_type == ConfigResourceType.GROUP:
        return partial(alter, resource, partial(_of_group, broker))
    if resource.resource_type == ConfigResourceType.BROKER:
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
    """The settings to change: of one topic, group or broker, or the defaults of all topics."""

    table: Mapping[str, Setting]
    own: Mapping[str, str]
    """The values that are set on the resource itself."""
    in_force: Mapping[str, str]
    """The values that are set on the resource or, for a topic, as defaults of all topics."""
    decide: Callable[[Mapping[str, str], Iterable[str]], list[Record]]


FindSettings = Callable[[MetadataImage, str], _Settings]


def _of_topic(image: MetadataImage, name: str) -> _Settings:
    topic = changes.known_topic(image, name)
    decide = partial(changes.alter_configs, image, name)
    return _Settings(TOPIC_SETTINGS, topic.configs, topic.settings, decide)


def _of_all_topics(image: MetadataImage, name: str) -> _Settings:
    own = image.broker_configs.get(name, {})
    decide = partial(changes.alter_topic_defaults, image)
    return _Settings(DEFAULT_SETTINGS, own, own, decide)


def _of_group(broker: Config, image: MetadataImage, group_id: str) -> _Settings:
    own = image.group_configs.get(group_id, {})
    decide = partial(changes.alter_group_configs, image, group_id, broker)
    return _Settings(GROUP_CONFIGS, own, own, decide)


def _of_one_broker(image: MetadataImage, name: str) -> _Settings:
    own = image.broker_configs.get(name, {})
    decide = partial(changes.alter_broker_configs, image, name)
    return _Settings({**DEFAULT_SETTINGS, **BROKER_SETTINGS}, own, own, decide)


def _unset(resource: Any, image: MetadataImage) -> list[Record]:
    """Delete settings of one broker; ignore those that are not set or not known."""
    names = [c.name for c in resource.configs]
    return changes.alter_broker_configs(image, resource.resource_name, {}, names)


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
    """Return the value of a setting after an operation other than a deletion."""
    value = _value(config)
    if config.config_operation == Operation.SET:
        return value
    setting = settings.table.get(config.name)
    if config.config_operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise InvalidRequest(f"no such operation. operation={config.config_operation}")
    if setting is None or setting.kind is not SettingType.LIST:
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


ALTERABLE: Final = frozenset({*ONE_BROKER_SETTINGS, *DEFAULT_SETTINGS})
"""Settings under brokers' names that can be changed at run time, for one broker or for all."""


async def describe_configs(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Describe every resource that exists; each other resource gets its own error."""
    answer = ResponseBuilder.to(request)
    results = tuple(_result(node, answer, request, resource) for resource in request.resources)
    return answer.response(throttle_time=NO_THROTTLE, results=results)


def _result(node: BrokerNode, answer: ResponseBuilder, request: Any, resource: Any) -> Any:
    error: SparklogError | None = None
    configs: tuple[Any, ...] = ()
    try:
        configs = entries(
            answer,
            _described(node, resource.resource_type, resource.resource_name),
            resource.configuration_keys,
            alterable=ALTERABLE if resource.resource_type == ConfigResourceType.BROKER else None,
            synonyms=request.include_synonyms,
            documentation=getattr(request, "include_documentation", False),
        )
    except SparklogError as refused:
        error = refused
    return answer.entity(
        "DescribeConfigsResult",
        error_code=code_of(error),
        error_message=message_of(error),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=configs,
    )


def _described(node: BrokerNode, resource_type: int, name: str) -> list[DescribedConfig]:
    if resource_type == ConfigResourceType.TOPIC:
        topic = changes.known_topic(node.metadata.image, name)
        return described_topic(topic.configs, topic.defaults, topic.creator)
    if resource_type == ConfigResourceType.BROKER:
        defaults = node.metadata.image.broker_configs.get(EVERY_BROKER, {})
        if name == EVERY_BROKER:
            return described_defaults(defaults, set_only=True)
        if name != str(node.broker_id):
            raise InvalidRequest(
                "a broker knows its own settings only; ask that one. "
                f"broker={node.broker_id} asked={name}"
            )
        own = node.metadata.image.broker_configs.get(name, {})
        return described_broker(node.config, own, defaults)
    if resource_type == ConfigResourceType.GROUP:
        return described_group(node.metadata.image.group_configs.get(name, {}), node.config)
    raise InvalidRequest(
        f"only topics, brokers and groups have settings. resource_type={resource_type}"
    )


CLIENT_METRICS: Final = 16
BROKER_LOGGER: Final = 8
KNOWN: Final = frozenset({*ConfigResourceType, CLIENT_METRICS, BROKER_LOGGER})
"""Types that Kafka lists. Those that are no `ConfigResourceType` have no resources here."""


async def list_config_resources(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """List the resources of the given types, or of all types if none is given."""
    answer = ResponseBuilder.to(request)
    asked = getattr(request, "resource_types", (CLIENT_METRICS,)) or KNOWN
    known = KNOWN.issuperset(asked)
    return answer.response(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none if known else ErrorCode.unsupported_version,
        config_resources=tuple(
            answer.entity("ConfigResource", resource_name=name, resource_type=kind)
            for kind in ConfigResourceType
            if known and kind in asked
            for name in _names(node.metadata.image, kind)
        ),
    )


def _names(image: MetadataImage, kind: ConfigResourceType) -> list[str]:
    match kind:
        case ConfigResourceType.TOPIC:
            return sorted(image.topics)
        case ConfigResourceType.BROKER:
            return [str(broker.broker_id) for broker in image.live_brokers()]
        case ConfigResourceType.GROUP:
            return sorted(image.group_configs)
