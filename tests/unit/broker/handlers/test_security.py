"""Brokers without authentication: answers about ACLs, passwords and resources with settings."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part
from tests.harness.handler_node import ToyNode, tell
from tests.harness.handler_requests import alter_configs, create_topics

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET = 0
SCRAM_SHA_256 = 1


def test_there_are_no_acls_and_every_call_says_so() -> None:
    async def story(node: ToyNode) -> None:
        described = await node.ask(
            build_request(
                Api.DESCRIBE_ACLS,
                3,
                resource_type_filter=1,
                resource_name_filter=None,
                pattern_type_filter=1,
                principal_filter=None,
                host_filter=None,
                operation=1,
                permission_type=1,
            )
        )
        assert described.error_code is ErrorCode.security_disabled
        assert "authorizer" in described.error_message
        creation = build_request_part(
            Api.CREATE_ACLS,
            3,
            "AclCreation",
            resource_type=2,
            resource_name="t",
            resource_pattern_type=3,
            principal="User:x",
            host="*",
            operation=3,
            permission_type=3,
        )
        created = await node.ask(build_request(Api.CREATE_ACLS, 3, creations=(creation,) * 2))
        assert [r.error_code for r in created.results] == [ErrorCode.security_disabled] * 2

    tell(story)


def test_scram_credentials_are_absent_and_cannot_be_created() -> None:
    api = Api.ALTER_USER_SCRAM_CREDENTIALS

    async def story(node: ToyNode) -> None:
        request = build_request(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
        everybody = await node.ask(request)
        assert (everybody.error_code, everybody.results) == (ErrorCode.none, ())
        user = build_request_part(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, "UserName", name="u")
        named = await node.ask(build_request(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=(user,)))
        assert named.error_code is ErrorCode.none
        assert [(r.user, r.error_code) for r in named.results] == [
            ("u", ErrorCode.resource_not_found)
        ]
        gone = build_request_part(
            api, 0, "ScramCredentialDeletion", name="u", mechanism=SCRAM_SHA_256
        )
        new = build_request_part(
            api,
            0,
            "ScramCredentialUpsertion",
            name="v",
            mechanism=SCRAM_SHA_256,
            iterations=4096,
            salt=b"s",
            salted_password=b"p",
        )
        changed = await node.ask(build_request(api, 0, deletions=(gone,), upsertions=(new, new)))
        assert [(r.user, r.error_code) for r in changed.results] == [
            ("u", ErrorCode.unsupported_sasl_mechanism),
            ("v", ErrorCode.unsupported_sasl_mechanism),
        ]

    tell(story)


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
