"""Brokers without authentication: answers about logins, and about resources with settings."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request
from tests.harness.handler_node import ToyNode, tell
from tests.harness.handler_requests import alter_configs, create_topics

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET = 0


def test_sasl_is_an_illegal_state_where_no_login_is_expected() -> None:
    async def story(node: ToyNode) -> None:
        chosen = await node.ask(build_request(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN"))
        assert (chosen.error_code, chosen.mechanisms) == (ErrorCode.illegal_sasl_state, ())
        token = await node.ask(build_request(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"x"))
        assert token.error_code is ErrorCode.illegal_sasl_state
        assert "expects no login" in token.error_message

    tell(story)


def test_resources_with_settings_are_listed_by_type() -> None:
    async def listed(node: ToyNode, *types: int, version: int = 1) -> list[tuple[str, int]]:
        more: dict[str, Any] = {"resource_types": types} if version else {}
        answer = await node.ask(build_request(Api.LIST_CONFIG_RESOURCES, version, **more))
        assert answer.error_code is ErrorCode.none
        return [(r.resource_name, r.resource_type) for r in answer.config_resources]

    async def story(node: ToyNode) -> None:
        await node.ask(create_topics("b", "a"))
        await node.ask(alter_configs(GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")))
        topics, brokers, groups = [("a", TOPIC), ("b", TOPIC)], [("1", BROKER)], [("g", GROUP)]
        assert await listed(node, TOPIC) == topics
        assert await listed(node, GROUP, BROKER) == brokers + groups
        assert await listed(node, CLIENT_METRICS) == []
        assert await listed(node) == topics + brokers + groups
        assert await listed(node, version=0) == []
        strange = build_request(Api.LIST_CONFIG_RESOURCES, 1, resource_types=(99,))
        answer = await node.ask(strange)
        assert answer.error_code is ErrorCode.unsupported_version
        assert answer.config_resources == ()

    tell(story)
