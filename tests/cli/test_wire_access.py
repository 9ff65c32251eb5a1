"""Users and ACLs on the command line, over the wire."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from sparklog.cluster.log import open_log
from sparklog.core.config.broker import STANDARD_AUTHORIZER
from tests.cli.conftest import Cli
from tests.cli.test_acls import ADD, TOPIC_T, entry, listed
from tests.cli.test_users import PASSWORD, add, proves
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers

GUARDED = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Brokers]:
    with Brokers(f"memory://{uuid4()}", settings=GUARDED) as serving:
        yield serving


@pytest.fixture
def guarded_cli(
    guarded: Brokers,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> Cli:
    return Cli("", monkeypatch, capsysbinary, guarded.bootstrap)


def test_brokers_get_users_that_a_root_shows(guarded_cli: Cli, guarded: Brokers) -> None:
    assert add(guarded_cli, "alice") == "Added user alice.\n"
    assert proves(guarded.root, "alice", PASSWORD) == [True, True]
    changed = add(guarded_cli, "alice", "--mechanism", "SCRAM-SHA-512", password="other")
    assert changed == "Changed the password of user alice.\n"
    assert proves(guarded.root, "alice", "other") == [False, True]
    error = guarded_cli.fails("users", "--add", "", "--password-stdin", stdin=b"correct-horse")
    assert "UNACCEPTABLE_CREDENTIAL" in error
    assert PASSWORD not in error
    assert guarded_cli.ok("users", "--list").lines == ["alice"]
    unknown = guarded_cli.fails("users", "--remove", "bob")
    assert "user='bob'" in unknown
    only = ("--remove", "alice", "--mechanism", "SCRAM-SHA-256", "--json")
    assert guarded_cli.ok("users", *only).documents == [
        {"user": "alice", "credentials": [{"mechanism": "SCRAM-SHA-512", "iterations": 4096}]}
    ]
    assert "RESOURCE_NOT_FOUND" in guarded_cli.fails("users", *only)
    assert guarded_cli.ok("users", "--remove", "alice").text == "Removed user alice.\n"
    assert guarded_cli.ok("users", "--list").lines == []


def test_brokers_get_acls_that_a_root_shows(guarded_cli: Cli, guarded: Brokers) -> None:
    added = guarded_cli.ok(*ADD, "--topic", "t", "--operation", "Read")
    assert added.lines == [f"Adding ACLs for resource `{TOPIC_T}`:", entry("READ"), ""]
    again = guarded_cli.ok(*ADD, "--topic", "t", "--operation", "Read")
    assert "already exists" in again.text
    guarded_cli.ok(*ADD, "--group", "g", "--allow-host", "10.0.0.0/8")
    assert listed(guarded_cli) == [("TOPIC", "t", "READ"), ("GROUP", "g", "ALL")]
    with open_log(guarded.root) as log:
        assert [acl.host for acl in log.acls()] == ["*", "10.0.0.0/8"]
    matching = ("--topic", "t", "--resource-pattern-type", "match")
    assert listed(guarded_cli, *matching) == [("TOPIC", "t", "READ")]
    removed = guarded_cli.ok("acls", "--remove", "--topic", "t", "--force")
    assert removed.lines == [f"Removed ACLs for resource `{TOPIC_T}`:", entry("READ"), ""]
    guarded_cli.ok("acls", "--remove", "--group", "g", "--force")
    assert listed(guarded_cli) == []


def test_users_are_known_to_each_of_several_brokers(wire_cli: Cli) -> None:
    name = f"u-{uuid4().hex[:8]}"
    add(wire_cli, name)

    def is_listed() -> bool:
        return name in wire_cli.ok("users", "--list").lines

    eventually(is_listed, "the broker that answers has read the metadata log")
    eventually(
        lambda: wire_cli("users", "--remove", name).code == 0, "the broker that answers knows it"
    )


def test_acls_need_brokers_with_an_authorizer(wire_cli: Cli) -> None:
    for call in (("--list",), ("--remove", "--topic", "t", "--force"), (*ADD[1:], "--topic", "t")):
        assert "SECURITY_DISABLED" in wire_cli.fails("acls", *call)
