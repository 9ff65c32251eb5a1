"""ACLs: the checks of new ones, filters, and hosts."""

from __future__ import annotations

from typing import Any

import pytest

from sparklog.core.errors import InvalidRequest
from sparklog.security.acls import (
    OPERATIONS,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    checked_binding,
    host_matches,
)
from sparklog.security.principal import Principal

ALICE = "User:alice"


def binding(**changes: Any) -> AclBinding:
    """An ACL that lets Alice read the topic `orders`, with changes."""
    parts: dict[str, Any] = {
        "resource_type": 2,
        "resource_name": "orders",
        "pattern_type": 3,
        "principal": ALICE,
        "host": "*",
        "operation": 3,
        "permission": 3,
    }
    return checked_binding(**{**parts, **changes})


def test_checked_binding_has_kafkas_types() -> None:
    assert binding() == AclBinding(
        ResourceType.TOPIC,
        "orders",
        PatternType.LITERAL,
        Principal("User", "alice"),
        "*",
        AclOperation.READ,
        AclPermission.ALLOW,
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_type": 1},
        {"resource_type": 0},
        {"resource_type": 99},
        {"resource_name": ""},
        {"resource_name": "x" * 250},
        {"pattern_type": 1},
        {"pattern_type": 2},
        {"pattern_type": 4, "resource_name": "*"},
        {"resource_type": 4, "operation": 5},
        {"resource_type": 4, "resource_name": "kafka-cluster", "pattern_type": 4, "operation": 5},
        {"principal": "alice"},
        {"principal": ":alice"},
        {"host": "10.0.0.0/33"},
        {"host": "::1/129"},
        {"host": "localhost"},
        {"host": ""},
        {"operation": 1},
        {"operation": 9},
        {"operation": 16},
        {"permission": 1},
        {"permission": 4},
    ],
)
def test_checked_binding_rejects_parts_that_kafka_rejects(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        binding(**wrong)


def test_each_resource_type_takes_its_operations_and_all() -> None:
    for kind, operations in OPERATIONS.items():
        name = "kafka-cluster" if kind == ResourceType.CLUSTER else "r"
        for operation in (*operations, AclOperation.ALL):
            made = binding(resource_type=kind, resource_name=name, operation=operation)
            assert made.operation == operation


@pytest.mark.parametrize(
    ("pattern", "host", "matches"),
    [
        ("*", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.4", False),
        ("10.1.0.0/16", "10.1.255.1", True),
        ("10.1.0.0/16", "10.2.0.1", False),
        ("10.1.2.3/16", "10.1.9.9", True),
        ("2001:db8::/32", "2001:db8:1::5", True),
        ("2001:db8::/32", "10.1.2.3", False),
        ("10.1.0.0/16", "not an address", False),
    ],
)
def test_host_matches_addresses_and_networks(pattern: str, host: str, matches: bool) -> None:
    assert host_matches(pattern, host) is matches


@pytest.mark.parametrize(
    ("wanted", "matches"),
    [
        (AclFilter(), True),
        (AclFilter(ResourceType.TOPIC), True),
        (AclFilter(ResourceType.GROUP), False),
        (AclFilter(resource_name="orders-eu"), False),
        (AclFilter(resource_name="orders"), True),
        (AclFilter(resource_name="orders-eu", pattern_type=PatternType.MATCH), True),
        (AclFilter(resource_name="order", pattern_type=PatternType.MATCH), False),
        (AclFilter(pattern_type=PatternType.LITERAL), False),
        (AclFilter(principal=ALICE), True),
        (AclFilter(principal="User:bob"), False),
        (AclFilter(host="10.0.0.1"), False),
        (AclFilter(operation=AclOperation.WRITE), False),
        (AclFilter(permission=AclPermission.DENY), False),
    ],
)
def test_filter_matches_an_acl_of_a_prefix(wanted: AclFilter, matches: bool) -> None:
    assert wanted.matches(binding(pattern_type=4)) is matches
