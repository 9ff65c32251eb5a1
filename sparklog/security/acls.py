"""Access control lists: who may do what to which resource, from which host.

Names and numbers are Kafka's, as requests and records carry them. Source: KIP-11, KIP-290, and the
message definitions CreateAclsRequest and AccessControlEntryRecord of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final

from sparklog.core.errors import InvalidRequest
from sparklog.security.principal import EVERY_USER, Principal, parse_principal

ANY_HOST: Final = "*"
ANY_NAME: Final = "*"
"""As a literal name: each resource of the type."""
CLUSTER_NAME: Final = "kafka-cluster"
NAME_CHARS_MAX: Final = 249
_SHOWN_CHARS: Final = 100


class ResourceType(IntEnum):
    """Kind of a resource."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """Relation of a pattern to the names of resources. `ANY` and `MATCH` are of filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """Operation on a resource."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    """Effect of an ACL."""

    ANY = 1
    DENY = 2
    ALLOW = 3


_TOPIC_OPERATIONS: Final = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.CREATE,
    AclOperation.DESCRIBE,
    AclOperation.DELETE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
OPERATIONS: Final[Mapping[ResourceType, tuple[AclOperation, ...]]] = {
    ResourceType.TOPIC: _TOPIC_OPERATIONS,
    ResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (
        AclOperation.DESCRIBE,
        AclOperation.WRITE,
        AclOperation.TWO_PHASE_COMMIT,
    ),
    ResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    ResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
"""Operations that a resource of each type has. An ACL may also name `ALL`."""


@dataclass(frozen=True, slots=True)
class AclBinding:
    """One ACL and the pattern of resources it is bound to."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: Principal
    host: str
    """An address, a network such as `10.0.0.0/8`, or `*`."""
    operation: AclOperation
    permission: AclPermission

    def matches_resource(self, name: str) -> bool:
        """Return whether a resource of the same type has the pattern."""
        if self.pattern_type == PatternType.PREFIXED:
            return name.startswith(self.resource_name)
        return self.resource_name in (name, ANY_NAME)

    def matches_caller(self, principal: Principal, host: str) -> bool:
        """Return whether a principal at an address is meant."""
        return self.principal in (principal, EVERY_USER) and host_matches(self.host, host)


@dataclass(frozen=True, slots=True)
class AclFilter:
    """ACLs to describe or delete. None and `ANY` leave a part open."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    """`MATCH`: each pattern that a resource of this name has."""
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    def matches(self, acl: AclBinding) -> bool:
        """Return whether an ACL is one of these."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, str(acl.principal))
            and self.host in (None, acl.host)
            and self.operation in (AclOperation.ANY, acl.operation)
            and self.permission in (AclPermission.ANY, acl.permission)
        )

    def _matches_pattern(self, acl: AclBinding) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type == PatternType.MATCH:
            return acl.matches_resource(self.resource_name)
        return acl.resource_name == self.resource_name


def checked_binding(
    resource_type: int,
    resource_name: str,
    pattern_type: int,
    principal: str,
    host: str,
    operation: int,
    permission: int,
) -> AclBinding:
    """Return the ACL that a request or a record of a client describes.

    Raises:
        InvalidRequest: a code is unknown, or as `check_binding`.
    """
    try:
        acl = AclBinding(
            ResourceType(resource_type),
            resource_name,
            PatternType(pattern_type),
            parse_principal(principal),
            host,
            AclOperation(operation),
            AclPermission(permission),
        )
    except ValueError as error:
        raise InvalidRequest(f"the ACL has a code that Kafka lacks. reason={error}") from error
    check_binding(acl)
    return acl


def check_binding(acl: AclBinding) -> None:
    """Check an ACL that is to be created.

    Raises:
        InvalidRequest: a wrong name, an operation that the type lacks, a host that is no address,
            or a code of filters.
    """
    _check_resource(acl)
    operations = OPERATIONS[acl.resource_type]
    if acl.operation != AclOperation.ALL and acl.operation not in operations:
        raise InvalidRequest(
            f"a resource of type {acl.resource_type.name} has no operation {acl.operation.name}. "
            f"choose=ALL, {', '.join(one.name for one in operations)}"
        )
    if acl.permission == AclPermission.ANY:
        raise InvalidRequest("an ACL either allows or denies; ANY is of filters only.")
    _check_host(acl.host)


def checked_filter(
    resource_type: int,
    resource_name: str | None,
    pattern_type: int,
    principal: str | None,
    host: str | None,
    operation: int,
    permission: int,
) -> AclFilter:
    """Return the filter that a request describes.

    Raises:
        InvalidRequest: a code is unknown.
    """
    try:
        return AclFilter(
            ResourceType(resource_type),
            resource_name,
            PatternType(pattern_type),
            principal,
            host,
            AclOperation(operation),
            AclPermission(permission),
        )
    except ValueError as error:
        raise InvalidRequest(f"the filter has a code that Kafka lacks. reason={error}") from error


def _check_resource(acl: AclBinding) -> None:
    name = acl.resource_name
    if acl.resource_type == ResourceType.ANY:
        raise InvalidRequest("an ACL is of one resource type; ANY is of filters only.")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise InvalidRequest(
            "an ACL has a LITERAL or PREFIXED pattern; ANY and MATCH are of filters only."
        )
    if not name or len(name) > NAME_CHARS_MAX:
        raise InvalidRequest(
            f"the resource name is empty or too long. name={name[:_SHOWN_CHARS]!r} "
            f"most={NAME_CHARS_MAX}"
        )
    if acl.pattern_type == PatternType.PREFIXED and name == ANY_NAME:
        raise InvalidRequest("the name * stands for each resource only in a LITERAL pattern.")
    if acl.resource_type == ResourceType.CLUSTER and (
        name != CLUSTER_NAME or acl.pattern_type != PatternType.LITERAL
    ):
        raise InvalidRequest(
            f"the cluster is the literal resource {CLUSTER_NAME}. name={name[:_SHOWN_CHARS]!r}"
        )


def _check_host(host: str) -> None:
    """Reject hosts that no client has: names, and networks that are none."""
    if host == ANY_HOST:
        return
    try:
        if "/" in host:
            ip_network(host, strict=False)
        else:
            ip_address(host)
    except ValueError as error:
        raise InvalidRequest(
            "the host of an ACL is an IP address, a network such as 10.0.0.0/8, or *. "
            f"host={host[:_SHOWN_CHARS]!r}"
        ) from error


def host_matches(pattern: str, host: str) -> bool:
    """Return whether the host of an ACL stands for an address."""
    if pattern in (ANY_HOST, host):
        return True
    network = _network(pattern)
    if network is None:
        return False
    try:
        return ip_address(host) in network
    except ValueError:
        return False


@lru_cache(maxsize=4096)
def _network(pattern: str) -> IPv4Network | IPv6Network | None:
    if "/" not in pattern:
        return None
    try:
        return ip_network(pattern, strict=False)
    except ValueError:
        return None
