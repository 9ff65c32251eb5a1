"""ACLs and users by Kafka's own tools: they print the same for brokers as for Kafka."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from sparklog.client.addresses import bootstrap_addresses
from sparklog.client.connections import BrokerConnections, RequestDraft
from sparklog.cluster.log import open_log
from sparklog.core.config.broker import STANDARD_AUTHORIZER
from sparklog.protocol.api_keys import Api
from sparklog.security.sasl.credentials import ScramMechanism
from tests.cli.conftest import Cli
from tests.harness.plain_requests import codes_of
from tests.interop.brokers import Brokers
from tests.peers.kafka import KafkaCluster
from tests.peers.kafka_tools import KafkaTools, ToolFailed

ACLS, CONFIGS = "AclCommand", "ConfigCommand"
GUARDED = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
SHA_256, SHA_512 = ScramMechanism
Build = Callable[[RequestDraft], Any]


@pytest.fixture(scope="module")
def guarded_brokers() -> Iterator[Brokers]:
    # The tool may ask another broker than the one that appended, so there is one.
    with Brokers(f"memory://{uuid4()}", settings=GUARDED) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def guarded_kafka() -> Iterator[KafkaCluster]:
    with KafkaCluster(heap="256m", settings=GUARDED) as cluster:
        yield cluster


def in_order(lines: list[str]) -> list[str]:
    return sorted(" ".join(sorted(re.split(r"[, ]+", line.strip()))) for line in lines if line)


def said(tool: KafkaTools, name: str, *words: str) -> list[str]:
    """Return the lines that a tool prints, or the errors it ends with, in one order.

    Kafka prints sets, so the order of lines and of the parts of a line differs from run to run.
    """
    try:
        return in_order(tool(name, *words))
    except ToolFailed as failed:
        return sorted(set(re.findall(r"\w+Exception", str(failed))) - {"ExecutionException"})


def test_kafka_acls_prints_the_same_for_both(
    guarded_brokers: Brokers, guarded_kafka: KafkaCluster
) -> None:
    alice, bob = ("--allow-principal", "User:alice"), ("--deny-principal", "User:bob")
    prefixed = ("--resource-pattern-type", "prefixed")
    calls = [
        ("--add", *alice, "--producer", "--idempotent", "--topic", "t", "--transactional-id", "x"),
        ("--add", *alice, "--consumer", "--topic", "t", "--group", "g"),
        ("--add", *bob, "--deny-host", "10.0.0.1", "--topic", "t", *prefixed),
        ("--add", *alice, "--operation", "Read", "--topic", "t"),
        ("--add", *alice, "--operation", "Describe", "--cluster"),
        ("--list",),
        ("--list", "--principal", "User:bob"),
        ("--list", "--topic", "t2", "--resource-pattern-type", "match"),
        ("--list", "--topic", "t", "--resource-pattern-type", "any"),
        ("--remove", "--force", *alice, "--operation", "Read", "--topic", "t"),
        ("--remove", "--force", "--topic", "t", *prefixed),
        ("--remove", "--force", "--group", "g"),
        ("--list",),
    ]

    def conversation(bootstrap: str) -> list[list[str]]:
        return [said(KafkaTools(bootstrap), ACLS, *call) for call in calls]

    ours = conversation(guarded_brokers.bootstrap)
    assert ours == conversation(guarded_kafka.bootstrap)
    assert sum("(principal=User" in line for line in ours[5]) == 10
    assert sum("(principal=User" in line for line in ours[-1]) == 7
    with open_log(guarded_brokers.root) as log:
        assert len(log.acls()) == 7


def test_kafka_configs_sets_passwords_as_in_kafka(
    guarded_brokers: Brokers, guarded_kafka: KafkaCluster
) -> None:
    def user(name: str) -> tuple[str, ...]:
        return ("--entity-type", "users", "--entity-name", name)

    one = "SCRAM-SHA-256=[iterations=8192,password=correct-horse]"
    calls = [
        ("--alter", *user("alice"), "--add-config", one),
        ("--alter", *user("alice"), "--add-config", "SCRAM-SHA-512=[password=other]"),
        ("--alter", *user("bob"), "--add-config", f"{one},SCRAM-SHA-512=[password=other]"),
        ("--alter", *user("eve"), "--add-config", "SCRAM-SHA-256=[iterations=20,password=x]"),
        ("--describe", *user("alice")),
        ("--describe", *user("eve")),
        ("--describe", "--entity-type", "users"),
        ("--alter", *user("alice"), "--delete-config", "SCRAM-SHA-256"),
        ("--alter", *user("alice"), "--delete-config", "SCRAM-SHA-256"),
        ("--describe", *user("alice")),
    ]

    def conversation(bootstrap: str) -> list[list[str]]:
        return [said(KafkaTools(bootstrap), CONFIGS, *call) for call in calls]

    ours = conversation(guarded_brokers.bootstrap)
    assert ours == conversation(guarded_kafka.bootstrap)
    assert any("SCRAM-SHA-256=iterations=8192" in line for line in ours[4])
    with open_log(guarded_brokers.root) as log:
        credentials = log.refresh().scram_credentials["alice"]
    assert list(credentials) == [SHA_512]
    assert credentials[SHA_512].proves(SHA_512, "other")
    assert not credentials[SHA_512].proves(SHA_512, "correct-horse")


def test_sparklogs_commands_print_the_same_for_both(
    guarded_brokers: Brokers, guarded_kafka: KafkaCluster, cli_at: Callable[[str], Cli]
) -> None:
    carol = ("--allow-principal", "User:carol")
    acl_calls = [
        ("--add", *carol, "--producer", "--idempotent", "--topic", "c", "--transactional-id", "c"),
        ("--add", *carol, "--operation", "Read", "--topic", "c-", "--resource-pattern-type",
         "prefixed", "--json"),
        ("--add", *carol, "--operation", "Write", "--topic", "c"),
        ("--list", "--principal", "User:carol"),
        ("--list", "--topic", "c-1", "--resource-pattern-type", "match", "--json"),
        ("--remove", *carol, "--operation", "Write", "--topic", "c"),
        ("--remove", "--topic", "c", "--force", "--json"),
    ]  # fmt: skip
    user_calls = [
        ("--add", "carol", "--password-stdin"),
        ("--add", "carol", "--password-stdin", "--mechanism", "SCRAM-SHA-512", "--json"),
        ("--describe", "carol"),
        ("--remove", "carol", "--mechanism", "SCRAM-SHA-256"),
        ("--remove", "carol"),
        ("--remove", "carol"),
    ]

    def conversation(bootstrap: str) -> list[object]:
        cli = cli_at(bootstrap)
        told: list[object] = [cli("acls", *call).lines for call in acl_calls]
        for call in user_calls:
            done = cli("users", *call, stdin=b"secret")
            told.append((done.code, done.lines))
        return told

    ours = conversation(guarded_brokers.bootstrap)
    assert ours == conversation(guarded_kafka.bootstrap)
    assert ours[-2:] == [(0, ["Removed user carol."]), (1, [])]
    shown = cli_at(guarded_brokers.bootstrap).ok("acls", "--list").lines
    by_tool = said(KafkaTools(guarded_brokers.bootstrap), ACLS, "--list")
    assert in_order(shown) == by_tool


def alteration(deleted: list[tuple[str, int]], put: list[tuple[str, int, int]]) -> Build:
    """Return a request that deletes (user, mechanism) and sets (user, mechanism, iterations)."""

    def build(of: RequestDraft) -> Any:
        return of.request(
            deletions=tuple(
                of.part("ScramCredentialDeletion", name=name, mechanism=mechanism)
                for name, mechanism in deleted
            ),
            upsertions=tuple(
                of.part(
                    "ScramCredentialUpsertion", name=name, mechanism=mechanism,
                    iterations=iterations, salt=b"salt", salted_password=b"p" * 32,
                )
                for name, mechanism, iterations in put
            ),
        )  # fmt: skip

    return build


def creation(**changes: Any) -> Build:
    """Return a request that creates one ACL, in which some fields are changed."""
    fields = {
        "resource_type": 2,
        "resource_name": "w",
        "resource_pattern_type": 3,
        "principal": "User:w",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
        **changes,
    }
    return lambda of: of.request(creations=(of.part("AclCreation", **fields),))


def test_wrong_requests_get_the_codes_of_kafka(
    guarded_brokers: Brokers, guarded_kafka: KafkaCluster
) -> None:
    alter, create = Api.ALTER_USER_SCRAM_CREDENTIALS, Api.CREATE_ACLS
    calls: list[tuple[Api, Build, list[int]]] = [
        (create, creation(), [0]),
        (create, creation(), [0]),
        (create, creation(host="10.0.0.0/8"), [0]),
        (create, creation(host="10.0.0.0/33"), [42]),
        (create, creation(host=""), [42]),
        (create, creation(resource_name=""), [42]),
        (create, creation(resource_type=4, operation=9, resource_name="x"), [42]),
        (create, creation(principal="w"), [42]),
        (alter, alteration([], [("w", 1, 4096), ("v", 2, 16384)]), [0, 0]),
        (alter, alteration([], [("w", 1, 4096), ("w", 2, 4096)]), [92]),
        (alter, alteration([("w", 1)], [("w", 2, 4096)]), [92]),
        (alter, alteration([("w", 1), ("w", 2)], []), [92]),
        (alter, alteration([], [("u", 1, 4095), ("t", 1, 16385), ("", 1, 4096)]), [93, 93, 93]),
        (alter, alteration([], [("u", 0, 4096), ("t", 3, 4096)]), [33, 33]),
        (alter, alteration([("w", 2), ("u", 1), ("v", 9), ("", 1)], []), [33, 91, 91, 93]),
        (alter, alteration([("w", 1), ("v", 2)], []), [0, 0]),
    ]
    for bootstrap in (guarded_brokers.bootstrap, guarded_kafka.bootstrap):
        asked = BrokerConnections(bootstrap_addresses(bootstrap))
        answers = [asked.change(api, 0, 3, build) for api, build, _ in calls]
        assert [sorted(codes_of(answer)) for answer in answers] == [codes for *_, codes in calls]
        asked.close()
