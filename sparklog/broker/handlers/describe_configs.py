"""DescribeConfigs (32): settings of topics, groups and this broker, with their origin."""

from __future__ import annotations

from typing import Any, Final

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of, message_of
from sparklog.broker.handlers.config_entries import Resource, entries
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.cluster import registry
from sparklog.cluster.records import EVERY_BROKER
from sparklog.core.dynamic_settings import ONE_BROKER_SETTINGS
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.core.told_settings import (
    ToldSetting,
    broker_told,
    defaults_told,
    group_told,
    topic_told,
)
from sparklog.core.topic_defaults import DEFAULT_SETTINGS
from sparklog.protocol.building import Answer

ALTERABLE: Final = frozenset({*ONE_BROKER_SETTINGS, *DEFAULT_SETTINGS})
"""Settings under brokers' names that can be changed at run time, for one broker or for all."""


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Describe every resource that there is; the others have their own errors."""
    answer = Answer.to(request)
    results = tuple(_result(node, answer, request, resource) for resource in request.resources)
    return answer.response(throttle_time=NO_THROTTLE, results=results)


def _result(node: HandlerNode, answer: Answer, request: Any, resource: Any) -> Any:
    error: SparklogError | None = None
    configs: tuple[Any, ...] = ()
    try:
        configs = entries(
            answer,
            _told(node, resource.resource_type, resource.resource_name),
            resource.configuration_keys,
            alterable=ALTERABLE if resource.resource_type == Resource.BROKER else None,
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


def _told(node: HandlerNode, resource_type: int, name: str) -> list[ToldSetting]:
    if resource_type == Resource.TOPIC:
        topic = registry.known_topic(node.metadata.image, name)
        return topic_told(topic.configs, topic.defaults)
    if resource_type == Resource.BROKER:
        defaults = node.metadata.image.broker_configs.get(EVERY_BROKER, {})
        if name == EVERY_BROKER:
            return defaults_told(defaults, set_only=True)
        if name != str(node.broker_id):
            raise InvalidRequest(
                "a broker knows its own settings only; ask that one. "
                f"broker={node.broker_id} asked={name}"
            )
        own = node.metadata.image.broker_configs.get(name, {})
        return broker_told(node.config, own, defaults)
    if resource_type == Resource.GROUP:
        return group_told(node.metadata.image.group_configs.get(name, {}), node.config)
    raise InvalidRequest(
        f"only topics, brokers and groups have settings. resource_type={resource_type}"
    )
