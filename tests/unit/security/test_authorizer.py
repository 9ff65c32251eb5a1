"""The authorizer decides as a plain walk over all ACLs would."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from sparklog.core.topic_names import AUDIT_TOPIC
from sparklog.security.acls import (
    OPERATIONS,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from sparklog.security.authorizer import Authorizer
from sparklog.security.principal import EVERY_USER, Principal

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
HOSTS = ("10.0.0.1", "10.0.9.9")
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED

names = st.text("ab", min_size=1, max_size=3)
operations = st.sampled_from(OPERATIONS[TOPIC])
patterns = st.one_of(
    st.tuples(st.just(LITERAL), names | st.just("*")), st.tuples(st.just(PREFIXED), names)
)
acls = st.builds(
    lambda kind, pattern, principal, host, operation, permission: AclBinding(
        kind, pattern[1], pattern[0], principal, host, operation, permission
    ),
    st.sampled_from([TOPIC, GROUP]),
    patterns,
    st.sampled_from([ALICE, BOB, EVERY_USER]),
    st.sampled_from(["*", HOSTS[0], "10.0.0.0/24"]),
    operations | st.just(ALL),
    st.sampled_from([ALLOW, ALLOW, DENY]),
)
lists = st.lists(acls, max_size=12)


def fits(acl: AclBinding, principal: Principal, host: str, kind: ResourceType, name: str) -> bool:
    """Return whether an ACL is on a resource and means the caller."""
    on_name = (
        name.startswith(acl.resource_name)
        if acl.pattern_type == PREFIXED
        else acl.resource_name in (name, "*")
    )
    on_host = acl.host in ("*", host) or (acl.host.endswith("/24") and host == HOSTS[0])
    return (
        acl.resource_type == kind
        and on_name
        and on_host
        and acl.principal in (principal, EVERY_USER)
    )


def expected(
    listed: Sequence[AclBinding],
    principal: Principal,
    host: str,
    operation: AclOperation,
    name: str,
    *,
    allow_if_no_acl: bool,
) -> bool:
    """Return what Kafka decides about a topic."""
    anyone = [
        acl
        for acl in listed
        if fits(acl, acl.principal, HOSTS[0], TOPIC, name)  # on the resource, of any caller
    ]
    if not anyone:
        return allow_if_no_acl
    mine = [acl for acl in listed if fits(acl, principal, host, TOPIC, name)]
    if any(acl.permission == DENY and acl.operation in (operation, ALL) for acl in mine):
        return False
    enough = {operation, ALL}
    if operation == AclOperation.DESCRIBE:
        enough |= {READ, WRITE, AclOperation.DELETE, AclOperation.ALTER}
    if operation == AclOperation.DESCRIBE_CONFIGS:
        enough |= {AclOperation.ALTER_CONFIGS}
    return any(acl.permission == ALLOW and acl.operation in enough for acl in mine)


@given(
    lists, st.sampled_from([ALICE, BOB]), st.sampled_from(HOSTS), operations, names, st.booleans()
)
def test_authorizer_decides_like_a_walk_over_all_acls(
    listed: list[AclBinding],
    principal: Principal,
    host: str,
    operation: AclOperation,
    name: str,
    allow_if_no_acl: bool,
) -> None:
    authorizer = Authorizer(listed, allow_if_no_acl=allow_if_no_acl)
    wanted = expected(listed, principal, host, operation, name, allow_if_no_acl=allow_if_no_acl)
    for _ in range(2):  # the second answer comes from those kept
        found = authorizer.authorize(principal, host, operation, TOPIC, name)
        assert found.allowed is wanted


@given(lists, st.sampled_from([ALICE, BOB]), st.sampled_from(HOSTS), st.sampled_from([READ, WRITE]))
def test_some_resource_is_allowed_when_one_name_is(
    listed: list[AclBinding], principal: Principal, host: str, operation: AclOperation
) -> None:
    exact = [acl for acl in listed if acl.operation in (operation, ALL)]
    stems = ["", *(acl.resource_name for acl in exact if acl.resource_name != "*")]
    candidates = {stem + end for stem in stems for end in ("", "c")} - {""}
    wanted = any(
        expected(exact, principal, host, operation, name, allow_if_no_acl=False)
        for name in candidates
    )
    authorizer = Authorizer(exact)
    found = authorizer.authorize_by_resource_type(principal, host, operation, TOPIC)
    assert found is wanted


def test_audit_topic_needs_an_acl_that_names_it_or_a_prefix() -> None:
    def may(*found: AclBinding, operation: AclOperation = READ) -> bool:
        authorizer = Authorizer(found, frozenset({BOB}), allow_if_no_acl=True)
        assert authorizer.authorize(BOB, HOSTS[0], READ, TOPIC, AUDIT_TOPIC).allowed
        assert authorizer.authorize(ALICE, HOSTS[0], READ, GROUP, AUDIT_TOPIC).allowed
        return authorizer.authorize(ALICE, HOSTS[0], operation, TOPIC, AUDIT_TOPIC).allowed

    def acl(
        name: str,
        pattern: PatternType = LITERAL,
        operation: AclOperation = READ,
        permission: AclPermission = ALLOW,
    ) -> AclBinding:
        return AclBinding(TOPIC, name, pattern, ALICE, "*", operation, permission)

    everything = acl("*", operation=ALL)
    for operation in OPERATIONS[TOPIC]:
        assert not may(operation=operation)
        assert not may(everything, operation=operation)
    assert may(acl(AUDIT_TOPIC))
    assert may(everything, acl("__sparklog", PREFIXED))
    assert not may(acl(AUDIT_TOPIC), acl("*", permission=DENY))


@given(lists, names)
def test_super_users_may_do_everything(listed: list[AclBinding], name: str) -> None:
    authorizer = Authorizer(listed, frozenset({ALICE}))
    assert authorizer.authorized_operations(ALICE, HOSTS[0], TOPIC, name) == sum(
        1 << operation for operation in OPERATIONS[TOPIC]
    )
    assert authorizer.authorize_by_resource_type(ALICE, HOSTS[0], WRITE, GROUP)


def test_authorized_operations_are_bits_at_kafkas_codes() -> None:
    acl = AclBinding(TOPIC, "t", LITERAL, ALICE, "*", READ, ALLOW)
    bits = Authorizer([acl]).authorized_operations(ALICE, HOSTS[0], TOPIC, "t")
    assert bits == 1 << 3 | 1 << 8, "READ, and DESCRIBE that it implies"


def test_decision_names_the_acl_that_made_it() -> None:
    allow = AclBinding(TOPIC, "t", PREFIXED, EVERY_USER, "*", ALL, ALLOW)
    deny = AclBinding(TOPIC, "t1", LITERAL, ALICE, "10.0.0.0/24", WRITE, DENY)
    authorizer = Authorizer([allow, deny])
    refused = authorizer.authorize(ALICE, HOSTS[0], WRITE, TOPIC, "t1")
    assert not refused.allowed
    assert refused.rule == (
        "MatchingAcl(acl=User:alice DENY WRITE on TOPIC:LITERAL:t1 from 10.0.0.0/24)"
    )
    assert authorizer.authorize(ALICE, HOSTS[1], WRITE, TOPIC, "t1").allowed
    assert authorizer.authorize(ALICE, HOSTS[0], READ, GROUP, "g").rule == "DefaultDeny"


def test_decisions_about_long_names_are_not_kept() -> None:
    authorizer = Authorizer([], allow_if_no_acl=True)
    kept = [authorizer.authorize(ALICE, "h", READ, TOPIC, "n" * 249) for _ in range(2)]
    assert kept[0] is kept[1]
    tracemalloc.start()
    for number in range(100):
        assert authorizer.authorize(ALICE, "h", READ, TOPIC, f"{number}" + "n" * 30_000).allowed
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < 100_000
