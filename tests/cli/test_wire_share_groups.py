"""`sparklog groups` for share groups, against sparklog's brokers."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.cli.conftest import Cli
from tests.harness.share_member import ShareMember
from tests.interop.brokers import Brokers


@pytest.fixture
def cli(wire_cli: Cli) -> Cli:
    return wire_cli


@pytest.fixture
def topic(cli: Cli) -> str:
    """A topic of two partitions; partition 1 holds ten records."""
    name = f"t-{uuid4().hex[:8]}"
    cli.ok("topics", "--create", "--topic", name, "--partitions", "2")
    lines = "".join(f"key2\t{n}\n" for n in range(10)).encode()
    cli.ok("produce", "--topic", name, "--property", "parse.key=true", stdin=lines)
    return name


@pytest.fixture
def member(brokers: Brokers, topic: str) -> Iterator[ShareMember]:
    """A member of a share group of its own, which has all partitions of the topic."""
    found = ShareMember(brokers.bootstrap, f"share-{uuid4().hex[:8]}")
    found.join(topic)
    yield found
    if found.epoch >= 0:
        found.beat(-1)


def test_share_groups_are_listed_with_their_type(cli: Cli, member: ShareMember) -> None:
    assert member.group_id in cli.ok("groups", "--list").lines
    table = cli.ok("groups", "--list", "--type").lines
    assert [member.group_id, "Share"] in [line.split() for line in table]
    only = cli.ok("groups", "--list", "--type", "share", "--state", "stable", "--json").documents
    assert {"group": member.group_id, "type": "Share", "state": "Stable"} in only
    assert {document["type"] for document in only} == {"Share"}
    assert member.group_id not in cli.ok("groups", "--list", "--type", "consumer,classic").text


def test_members_and_state_are_described(cli: Cli, member: ShareMember, topic: str) -> None:
    describe = ("groups", "--describe", "--group", member.group_id)
    _, head, row = cli.ok(*describe, "--members").lines
    assert head.split() == [
        "GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT",
    ]  # fmt: skip
    words = row.split()
    assert (words[0], words[1]) == (member.group_id, "member-1")
    assert words[4:] == ["2", f"{topic}:0,1"]
    _, head, row = cli.ok(*describe, "--members", "--verbose").lines
    assert head.split()[-2:] == ["MEMBER-EPOCH", "ASSIGNMENT"]
    assert row.split()[-2:] == [str(member.epoch), f"{topic}:0,1"]
    _, head, row = cli.ok(*describe, "--state").lines
    assert head.split() == ["GROUP", "COORDINATOR", "(ID)", "STATE", "#MEMBERS"]
    assert row.split()[-2:] == ["Stable", "1"]
    (state,) = cli.ok(*describe, "--state", "--json").documents
    assert (state["type"], state["assignor"], state["members"]) == ("Share", "simple", 1)


def test_offsets_are_reset_shown_and_deleted(cli: Cli, member: ShareMember, topic: str) -> None:
    of_group = ("--group", member.group_id)
    described = cli.ok("groups", "--describe", *of_group)
    assert [line.split()[3:] for line in described.lines[2:]] == [["-", "-"], ["-", "-"]]
    reset = ("groups", "--reset-offsets", *of_group, "--topic", topic, "--execute")
    assert "is inactive, but the current state is Stable" in cli(*reset, "--to-earliest").errors
    member.beat(-1)
    plan = cli.ok(*reset, "--to-earliest").lines
    assert [line.split() for line in plan[2:]] == [
        [member.group_id, topic, "0", "0"],
        [member.group_id, topic, "1", "0"],
    ]
    shift = ("groups", "--reset-offsets", *of_group, "--all-topics", "--shift-by", "4")
    cli.ok(*shift, "--execute")
    outcome = cli.ok("groups", "--describe", *of_group, "--verbose")
    assert (
        f"Share group '{member.group_id}' has no active members."
        in cli.ok("groups", "--describe", *of_group, "--state").errors
    )
    assert outcome.lines[1].split() == [
        "GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "START-OFFSET", "LAG",
    ]  # fmt: skip
    assert [line.split()[2:] for line in outcome.lines[2:]] == [
        ["0", "-", "0", "0"],
        ["1", "-", "4", "6"],
    ]
    documents = cli.ok("groups", "--describe", *of_group, "--json").documents
    assert [(d["partition"], d["startOffset"], d["lag"]) for d in documents] == [
        (0, 0, 0),
        (1, 4, 6),
    ]

    delete = ("groups", "--delete-offsets", *of_group, "--topic", topic)
    assert "whole topics" in cli.misused(*delete[:-1], f"{topic}:1")
    assert [line.split() for line in cli.ok(*delete).lines[1:]] == [
        ["TOPIC", "STATUS"],
        [topic, "Successful"],
    ]
    assert len(cli.ok("groups", "--describe", *of_group).lines) == 2
    again = cli(*delete)
    assert again.code == 1
    assert "There is no offset information to delete" in again.text


def test_a_new_share_group_begins_where_it_was_reset_to(
    cli: Cli, brokers: Brokers, topic: str
) -> None:
    group = f"share-{uuid4().hex[:8]}"
    reset = ("groups", "--reset-offsets", "--group", group, "--topic", topic, "--to-latest")
    cli.ok(*reset, "--type", "share", "--execute")
    (line,) = [line for line in cli.ok("groups", "--list", "--type").lines if group in line]
    assert line.split() == [group, "Share"]
    member = ShareMember(brokers.bootstrap, group)
    member.join(topic)
    described = cli.ok("groups", "--describe", "--group", group).lines
    assert [line.split()[2:] for line in described[2:]] == [["0", "0", "0"], ["1", "10", "0"]]
    member.beat(-1)


def test_share_groups_are_deleted_and_others_left(cli: Cli, member: ShareMember) -> None:
    of_group = ("--group", member.group_id)
    refused = cli("groups", "--delete", *of_group)
    assert refused.code == 1
    assert "error=NON_EMPTY_GROUP" in refused.errors
    member.beat(-1)
    assert member.group_id not in cli.ok("groups", "--describe", "--all-groups", "--state").text
    shares = cli.ok("groups", "--describe", "--all-groups", "--type", "share", "--state")
    assert member.group_id in shares.text
    deleted = cli.ok("groups", "--delete", *of_group)
    assert deleted.text == (
        f"Deletion of requested share groups ('{member.group_id}') was successful.\n"
    )
    assert member.group_id not in cli.ok("groups", "--list").lines
    assert "does not exist" in cli("groups", "--describe", *of_group).errors
    assert "--type goes with" in cli.misused("groups", "--delete", *of_group, "--type", "share")
