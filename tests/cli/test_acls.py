"""ACLs on the command line, of a root that no broker serves."""

from __future__ import annotations

import pytest

from sparklog.cluster.log import open_log
from sparklog.security.acls import AclOperation, AclPermission, ResourceType
from tests.cli.conftest import Cli

ADD = ("acls", "--add", "--allow-principal", "User:alice")
TOPIC_T = "ResourcePattern(resourceType=TOPIC, name=t, patternType=LITERAL)"


def entry(operation: str, *, host: str = "*", permission: str = "ALLOW") -> str:
    return (
        f"\t(principal=User:alice, host={host}, operation={operation}, permissionType={permission})"
    )


def listed(cli: Cli, *options: str) -> list[tuple[str, str, str]]:
    """Return resource type, name and operation of each ACL."""
    return [
        (one["resourceType"], one["name"], one["operation"])
        for one in cli.ok("acls", "--list", "--json", *options).documents
    ]


def test_acls_are_added_listed_and_removed_in_the_words_of_kafka_acls(cli: Cli) -> None:
    added = cli.ok(*ADD, "--topic", "t", "--operation", "Read", "--operation", "DescribeConfigs")
    entries = [entry("READ"), entry("DESCRIBE_CONFIGS")]
    assert added.lines == [f"Adding ACLs for resource `{TOPIC_T}`:", *entries, ""]
    again = cli.ok(*ADD, "--topic", "t", "--operation", "read")
    assert again.text == f"Acl (pattern={TOPIC_T}, entry={entry('READ')[1:]}) already exists.\n"
    current = [f"Current ACLs for resource `{TOPIC_T}`:", *entries, ""]
    assert cli.ok("acls", "--list").lines == current
    options = ("--allow-principal", "User:alice", "--topic", "t", "--operation", "Read")
    removed = cli.ok("acls", "--remove", *options)
    assert removed.lines == [f"Removed ACLs for resource `{TOPIC_T}`:", entry("READ"), ""]
    assert "no ACL matches" in cli.ok("acls", "--remove", *options).errors
    cli.ok("acls", "--remove", "--topic", "t", "--force")
    assert listed(cli) == []


def test_denials_hosts_and_patterns_are_stored(file_cli: Cli) -> None:
    options = ("--deny-host", "10.0.0.0/8", "--deny-host", "::1", "--group", "g-")
    file_cli.ok(
        "acls", "--add", "--deny-principal", "User:alice", *options,
        "--resource-pattern-type", "prefixed", "--operation", "Read",
    )  # fmt: skip
    with open_log(file_cli.root) as log:
        found = log.acls()
    assert [acl.host for acl in found] == ["10.0.0.0/8", "::1"]
    assert {acl.resource_type for acl in found} == {ResourceType.GROUP}
    assert {acl.permission for acl in found} == {AclPermission.DENY}
    assert all(acl.matches_resource("g-1") for acl in found)


def test_producer_and_consumer_stand_for_kafkas_operations(cli: Cli) -> None:
    cli.ok(*ADD, "--producer", "--idempotent", "--topic", "t", "--transactional-id", "x")
    assert listed(cli) == [
        ("TOPIC", "t", "WRITE"),
        ("TOPIC", "t", "CREATE"),
        ("TOPIC", "t", "DESCRIBE"),
        ("CLUSTER", "kafka-cluster", "IDEMPOTENT_WRITE"),
        ("TRANSACTIONAL_ID", "x", "WRITE"),
        ("TRANSACTIONAL_ID", "x", "DESCRIBE"),
    ]
    cli.ok(*ADD, "--consumer", "--topic", "t", "--group", "g")
    assert ("TOPIC", "t", "READ") in listed(cli)
    assert listed(cli, "--group", "g") == [("GROUP", "g", "READ")]


def test_list_selects_by_resource_and_principal(cli: Cli) -> None:
    cli.ok(*ADD, "--topic", "t", "--topic", "u", "--cluster")
    prefixed = ("--resource-pattern-type", "prefixed", "--operation", "Write")
    cli.ok("acls", "--add", "--allow-principal", "User:bob", "--topic", "t", *prefixed)
    assert listed(cli, "--topic", "t") == [("TOPIC", "t", "ALL")]
    matching = ("--topic", "t1", "--resource-pattern-type", "match")
    assert listed(cli, *matching) == [("TOPIC", "t", "WRITE")]
    every_t = ("--topic", "t", "--resource-pattern-type", "any")
    assert listed(cli, *every_t) == [("TOPIC", "t", "ALL"), ("TOPIC", "t", "WRITE")]
    assert listed(cli, "--cluster") == [("CLUSTER", "kafka-cluster", "ALL")]
    assert listed(cli, "--principal", "User:bob") == [("TOPIC", "t", "WRITE")]
    assert cli.ok("acls", "--list", "--principal", "User:carol").lines == [
        "ACLs for principal `User:carol`"
    ]


def test_json_shows_whether_an_acl_is_new(cli: Cli) -> None:
    cli.ok(*ADD, "--topic", "t", "--operation", "Read")
    both = cli.ok(*ADD, "--topic", "t", "--operation", "Read", "--operation", "Write", "--json")
    assert [(one["operation"], one["created"]) for one in both.documents] == [
        ("READ", False),
        ("WRITE", True),
    ]
    assert both.documents[0] == {
        "resourceType": "TOPIC",
        "name": "t",
        "patternType": "LITERAL",
        "principal": "User:alice",
        "host": "*",
        "operation": "READ",
        "permissionType": "ALLOW",
        "created": False,
    }
    gone = cli.ok("acls", "--remove", "--topic", "t", "--force", "--json").documents
    assert [(one["operation"], one["deleted"]) for one in gone] == [("READ", True), ("WRITE", True)]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--topic", "t", "--operation", "ClusterAction"), "no operation CLUSTER_ACTION"),
        (("--topic", "t", "--allow-host", "10.0.0.0/33"), "10.0.0.0/33"),
        (("--topic", "t", "--allow-host", "broker"), "an IP address"),
        (("--topic", ""), "empty or too long"),
        (("--topic", "*", "--resource-pattern-type", "prefixed"), "only in a LITERAL pattern"),
    ],
)
def test_acls_that_kafka_rejects_are_rejected(cli: Cli, words: tuple[str, ...], why: str) -> None:
    assert why in cli.fails(*ADD, "--group", "g", "--operation", "Read", *words)
    assert listed(cli) == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--add", "--topic", "t"), "--allow-principal or --deny-principal"),
        ((*ADD[1:],), "needs a resource"),
        ((*ADD[1:], "--topic", "t", "--resource-pattern-type", "match"), "literal or prefixed"),
        ((*ADD[1:], "--topic", "t", "--operation", "Destroy"), "no such operation"),
        ((*ADD[1:], "--topic", "t", "--deny-host", "::1"), "needs --deny-principal"),
        ((*ADD[1:], "--consumer", "--topic", "t"), "needs --group"),
        ((*ADD[1:], "--producer", "--topic", "t", "--operation", "Read"), "no --operation"),
        ((*ADD[1:], "--topic", "t", "--idempotent"), "goes with --producer"),
        (("--add", "--allow-principal", "alice", "--topic", "t"), "kind:name"),
        (("--remove", "--topic", "t"), "--force"),
        (("--list", "--operation", "Read"), "does not go with --list"),
        (("--list", "--cluster", "--resource-pattern-type", "any"), "one resource"),
    ],
)
def test_contradicting_options_of_acls_are_misuse(
    cli: Cli, words: tuple[str, ...], why: str
) -> None:
    assert why in cli.misused("acls", *words)
    assert listed(cli) == []


def test_acls_come_back_from_the_bucket_alone(file_cli: Cli) -> None:
    file_cli.ok(*ADD, "--topic", "t", "--operation", "Write")
    with open_log(file_cli.root) as log:
        (acl,) = log.acls()
    assert (acl.operation, str(acl.principal)) == (AclOperation.WRITE, "User:alice")
