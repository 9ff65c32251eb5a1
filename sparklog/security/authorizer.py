"""Decides whether a principal may do something, as Kafka's StandardAuthorizer does.

AUTHORIZER-1: A super user may do everything.
AUTHORIZER-2: A DENY that fits wins. It denies its own operation only, or all with `ALL`.
AUTHORIZER-3: An ALLOW that fits allows its operation, and those that the operation implies.
AUTHORIZER-4: Without any ACL on the resource, `allow.everyone.if.no.acl.found` decides. Else it is
    denied.
AUTHORIZER-5: The audit topic needs an ALLOW that names it or a prefix of it. Neither that setting
    nor an
ALLOW for all topics is enough. Kafka has no such topic.

An authorizer does not change. A new list of ACLs makes a new one, so decisions can be kept.
Source: org.apache.kafka.metadata.authorizer of Kafka 4.4; decision 57.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from sparklog.core.topic_names import AUDIT_TOPIC
from sparklog.security.acls import (
    ANY_NAME,
    OPERATIONS,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from sparklog.security.principal import Principal

IMPLYING: Final = {
    AclOperation.DESCRIBE: frozenset(
        {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
}
"""Operations whose ALLOW also allows the key."""
KEPT_MAX: Final = 65_536
"""Decisions that an authorizer keeps; beyond that it forgets all of them."""
KEPT_NAME_CHARS_MAX: Final = 249
"""Decisions about longer names are made each time: no topic has one, and clients choose names."""
_ORDINARY_NAME: Final = "hardcode"
"""Kafka asks for this name to see if a principal may write each ordinary topic."""


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer, and the rule behind it for the audit log."""

    allowed: bool
    rule: str
    """`MatchingAcl(acl=…)`, `SuperUser` or `DefaultDeny`, as in Kafka's audit log."""


@dataclass(frozen=True, slots=True)
class _Patterns:
    """ACLs of one resource type by their patterns."""

    literal: dict[str, list[AclBinding]]
    prefixed: dict[str, list[AclBinding]]
    lengths: list[int]
    """Lengths of the prefixes, each once, the longest first."""

    def of(self, name: str) -> Iterator[AclBinding]:
        """Yield the ACLs on a resource."""
        yield from self.literal.get(name, ())
        if name != ANY_NAME:
            yield from self.literal.get(ANY_NAME, ())
        for length in self.lengths:
            if length <= len(name):
                yield from self.prefixed.get(name[:length], ())

    def __iter__(self) -> Iterator[AclBinding]:
        """Yield all ACLs."""
        for by_name in (self.literal, self.prefixed):
            for acls in by_name.values():
                yield from acls


class Authorizer:
    """Decides by one list of ACLs. Of one event loop only."""

    def __init__(
        self,
        acls: Iterable[AclBinding],
        super_users: frozenset[Principal] = frozenset(),
        *,
        allow_if_no_acl: bool = False,
    ) -> None:
        """Index the ACLs by type and pattern."""
        self._super_users = super_users
        self._unlisted = Decision(
            allow_if_no_acl, "DefaultAllow" if allow_if_no_acl else "DefaultDeny"
        )
        self._by_type = _indexed(acls)
        self._kept: dict[tuple[Principal, str, int, int, str], Decision] = {}

    def authorize(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> Decision:
        """Return whether a principal at an address may do an operation. Cost: one look-up."""
        asked = (principal, host, operation, resource_type, name)
        found = self._kept.get(asked)
        if found is None:
            found = self._decided(*asked)
            if len(name) <= KEPT_NAME_CHARS_MAX:
                if len(self._kept) >= KEPT_MAX:
                    self._kept.clear()
                self._kept[asked] = found
        return found

    def authorize_by_resource_type(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
    ) -> bool:
        """Return whether a principal may do an operation on at least one resource of a type.

        ALLOWs of other operations do not imply this one here, as in Kafka.
        """
        if self.authorize(principal, host, operation, resource_type, _ORDINARY_NAME).allowed:
            return True
        fitting = [
            acl
            for acl in self._by_type.get(resource_type, ())
            if acl.operation in (operation, AclOperation.ALL)
            and acl.matches_caller(principal, host)
        ]
        denied = [acl for acl in fitting if acl.permission == AclPermission.DENY]
        names = {a.resource_name for a in denied if a.pattern_type == PatternType.LITERAL}
        if ANY_NAME in names:
            return False
        prefixes = tuple(a.resource_name for a in denied if a.pattern_type == PatternType.PREFIXED)
        return any(
            acl.permission == AclPermission.ALLOW
            and not acl.resource_name.startswith(prefixes)
            and (acl.pattern_type == PatternType.PREFIXED or acl.resource_name not in names)
            for acl in fitting
        )

    def authorized_operations(
        self, principal: Principal, host: str, resource_type: ResourceType, name: str
    ) -> int:
        """Return the operations allowed on a resource as bits: bit 3 is `READ`, and so on."""
        return sum(
            1 << operation
            for operation in OPERATIONS[resource_type]
            if self.authorize(principal, host, operation, resource_type, name).allowed
        )

    def _decided(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
    ) -> Decision:
        if principal in self._super_users:
            return Decision(allowed=True, rule="SuperUser")
        patterns = self._by_type.get(resource_type)
        acls = list(patterns.of(name)) if patterns is not None else []
        is_audit = name == AUDIT_TOPIC and resource_type == ResourceType.TOPIC
        if not acls and not is_audit:
            return self._unlisted
        allowing: AclBinding | None = None
        for acl in acls:
            if not acl.matches_caller(principal, host):
                continue
            is_same = acl.operation in (operation, AclOperation.ALL)
            if acl.permission == AclPermission.DENY:
                if is_same:
                    return Decision(allowed=False, rule=_matching(acl))
            elif is_audit and acl.resource_name == ANY_NAME:
                continue
            elif is_same or acl.operation in IMPLYING.get(operation, ()):
                allowing = allowing or acl
        if allowing is not None:
            return Decision(allowed=True, rule=_matching(allowing))
        return Decision(allowed=False, rule="DefaultDeny")


def _indexed(acls: Iterable[AclBinding]) -> dict[ResourceType, _Patterns]:
    literal: dict[ResourceType, dict[str, list[AclBinding]]] = defaultdict(dict)
    prefixed: dict[ResourceType, dict[str, list[AclBinding]]] = defaultdict(dict)
    for acl in acls:
        by_type = literal if acl.pattern_type == PatternType.LITERAL else prefixed
        by_type[acl.resource_type].setdefault(acl.resource_name, []).append(acl)
    return {
        kind: _Patterns(
            literal[kind],
            prefixed[kind],
            sorted({len(one) for one in prefixed[kind]}, reverse=True),
        )
        for kind in {*literal, *prefixed}
    }


def _matching(acl: AclBinding) -> str:
    """Return the rule of a matching ACL in the words of Kafka's audit log."""
    pattern = f"{acl.resource_type.name}:{acl.pattern_type.name}:{acl.resource_name}"
    return (
        f"MatchingAcl(acl={acl.principal} {acl.permission.name} {acl.operation.name} "
        f"on {pattern} from {acl.host})"
    )
