"""DescribeAcls, CreateAcls and DeleteAcls over the wire codec."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparklog.broker.handlers import acls
from sparklog.cluster.metadata import access_changes
from sparklog.core.config.broker import STANDARD_AUTHORIZER
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part
from tests.harness.handler_node import ToyNode, tell

TOPIC, GROUP, CLUSTER = 2, 3, 4
ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
READ, WRITE, CLUSTER_ACTION = 3, 4, 9
ALLOW = 3
OK, INVALID = ErrorCode.none, ErrorCode.invalid_request


def tell_with_authorizer(story: Callable[[ToyNode], Awaitable[None]]) -> None:
    tell(story, authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:ANONYMOUS")


def creation(name: str = "t", **changes: Any) -> dict[str, Any]:
    return {
        "resource_type": TOPIC,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": "User:a",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
        **changes,
    }


def acl_filter(**changes: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
        **changes,
    }


async def create(node: ToyNode, *creations: dict[str, Any], version: int = 3) -> list[ErrorCode]:
    parts = tuple(
        build_request_part(Api.CREATE_ACLS, version, "AclCreation", **one) for one in creations
    )
    answer = await node.ask(build_request(Api.CREATE_ACLS, version, creations=parts))
    assert all(bool(r.error_message) != (r.error_code is OK) for r in answer.results)
    return [result.error_code for result in answer.results]


async def described(node: ToyNode, version: int = 3, **changes: Any) -> list[tuple[Any, ...]]:
    """Return type, name, pattern, principal, host, operation and permission of each ACL."""
    answer = await node.ask(build_request(Api.DESCRIBE_ACLS, version, **acl_filter(**changes)))
    assert answer.error_code is OK, answer.error_message
    return [
        (
            resource.resource_type, resource.resource_name, resource.pattern_type,
            acl.principal, acl.host, acl.operation, acl.permission_type,
        )
        for resource in answer.resources
        for acl in resource.acls
    ]  # fmt: skip


async def delete(node: ToyNode, *filters: dict[str, Any], version: int = 3) -> Any:
    parts = tuple(
        build_request_part(Api.DELETE_ACLS, version, "DeleteAclsFilter", **one) for one in filters
    )
    answer = await node.ask(build_request(Api.DELETE_ACLS, version, filters=parts))
    return answer.filter_results


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_are_created_described_and_deleted(version: int) -> None:
    async def story(node: ToyNode) -> None:
        prefixed = creation("t", resource_pattern_type=PREFIXED, host="10.0.0.0/8")
        group = creation("g", resource_type=GROUP)
        given = (creation(), prefixed, group, creation())
        assert await create(node, *given, version=version) == [OK] * 4
        assert await described(node, version) == [
            (TOPIC, "t", LITERAL, "User:a", "*", READ, ALLOW),
            (TOPIC, "t", PREFIXED, "User:a", "10.0.0.0/8", READ, ALLOW),
            (GROUP, "g", LITERAL, "User:a", "*", READ, ALLOW),
        ]
        matching = {"resource_name_filter": "t2", "pattern_type_filter": MATCH}
        assert len(await described(node, version, **matching)) == 1
        wanted = [
            acl_filter(resource_name_filter="t", pattern_type_filter=LITERAL),
            acl_filter(resource_type_filter=TOPIC),
            acl_filter(principal_filter="User:b"),
        ]
        results = await delete(node, *wanted, version=version)
        assert [r.error_code for r in results] == [OK] * 3
        gone = [[(a.resource_name, a.pattern_type) for a in r.matching_acls] for r in results]
        assert gone == [[("t", LITERAL)], [("t", LITERAL), ("t", PREFIXED)], []]
        assert [acl[0] for acl in await described(node, version)] == [GROUP]
        assert len(node.metadata.image.acls) == 1

    tell_with_authorizer(story)


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_pattern_type": MATCH},
        {"resource_pattern_type": ANY},
        {"resource_pattern_type": 0},
        {"resource_type": 1},
        {"resource_type": 0},
        {"resource_name": ""},
        {"resource_type": CLUSTER, "operation": CLUSTER_ACTION, "resource_name": "other"},
        {"operation": 1},
        {"operation": 99},
        {"permission_type": 1},
        {"host": "10.0.0.0/33"},
        {"host": "::/129"},
        {"host": "broker.local"},
        {"principal": "alice"},
    ],
)
def test_one_wrong_acl_is_refused_and_the_others_created(wrong: dict[str, Any]) -> None:
    async def story(node: ToyNode) -> None:
        given = (creation("a"), creation(**wrong), creation("b"))
        assert await create(node, *given) == [OK, INVALID, OK]
        assert [acl[1] for acl in await described(node)] == ["a", "b"]

    tell_with_authorizer(story)


def test_filters_with_unknown_codes_are_refused() -> None:
    async def story(node: ToyNode) -> None:
        await create(node, creation())
        for part in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type"):
            asked = build_request(Api.DESCRIBE_ACLS, 3, **acl_filter(**{part: 0}))
            answer = await node.ask(asked)
            assert (answer.error_code, answer.resources) == (INVALID, ())
            (result,) = await delete(node, acl_filter(**{part: 0}))
            assert (result.error_code, result.matching_acls) == (INVALID, ())
        assert len(await described(node)) == 1

    tell_with_authorizer(story)


def test_requests_and_clusters_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_changes, "ACLS_MAX", 2)
    monkeypatch.setattr(acls, "ACLS_MAX", 3)
    monkeypatch.setattr(acls, "FILTERS_MAX", 1)

    async def story(node: ToyNode) -> None:
        assert await create(node, *map(creation, "abc")) == [OK, OK, INVALID]
        assert await create(node, *map(creation, "abcd")) == [INVALID] * 4
        results = await delete(node, acl_filter(), acl_filter())
        assert [r.error_code for r in results] == [INVALID] * 2
        assert len(await described(node)) == 2

    tell_with_authorizer(story)


def test_without_an_authorizer_each_call_is_refused() -> None:
    off = ErrorCode.security_disabled

    async def story(node: ToyNode) -> None:
        answer = await node.ask(build_request(Api.DESCRIBE_ACLS, 3, **acl_filter()))
        assert (answer.error_code, answer.resources) == (off, ())
        assert "authorizer" in answer.error_message
        assert await create(node, creation(), creation()) == [off, off]
        assert [r.error_code for r in await delete(node, acl_filter())] == [off]
        assert not node.metadata.image.acls

    tell(story)
