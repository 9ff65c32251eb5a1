"""DescribeConfigs (32): every setting of topics and of this broker, with where it comes from."""

from __future__ import annotations

from typing import Any

from sparklog.broker.handlers.answering import NO_THROTTLE, code_of, message_of
from sparklog.broker.handlers.config_entries import Resource, Source, entries
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.cluster import registry
from sparklog.core.config import Config
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.core.settings import parse_topic_configs
from sparklog.protocol.building import Answer


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Describe every resource that there is; the others have their own errors."""
    answer = Answer.to(request)
    results = tuple(_result(node, answer, request, resource) for resource in request.resources)
    return answer.response(throttle_time=NO_THROTTLE, results=results)


def _result(node: HandlerNode, answer: Answer, request: Any, resource: Any) -> Any:
    error: SparklogError | None = None
    configs: tuple[Any, ...] = ()
    try:
        config, source = _config(node, resource.resource_type, resource.resource_name)
        configs = entries(
            answer,
            config,
            source,
            resource.configuration_keys,
            read_only=source is Source.STARTED_WITH,
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


def _config(node: HandlerNode, resource_type: int, name: str) -> tuple[Config, Source]:
    if resource_type == Resource.TOPIC:
        topic = registry.known_topic(node.metadata.image, name)
        return parse_topic_configs(topic.configs), Source.TOPIC
    if resource_type == Resource.BROKER:
        if name not in ("", str(node.broker_id)):
            raise InvalidRequest(
                "a broker knows its own settings only; ask that one. "
                f"broker={node.broker_id} asked={name}"
            )
        return node.config, Source.STARTED_WITH
    raise InvalidRequest(f"only topics and brokers have settings. resource_type={resource_type}")
