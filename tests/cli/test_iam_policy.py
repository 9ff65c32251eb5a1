"""`sparklog iam-policy` on the command line."""

from __future__ import annotations

import json

from tests.cli.conftest import Cli
from tests.cli.test_acls import ADD
from tests.harness.iam import is_allowed

BUCKET = ("--for-root", "s3://bucket/logs")
ALICE = ("iam-policy", "--principal", "User:alice")


def test_policy_of_a_principal_is_printed_as_json(cli: Cli) -> None:
    created = cli.ok("topics", "--create", "--topic", "t", "--json").documents[0]
    cli.ok(*ADD, "--consumer", "--topic", "t", "--group", "g")
    printed = cli.ok(*ALICE, *BUCKET)
    document = json.loads(printed.text)
    folder = f"arn:aws:s3:::bucket/logs/topics/t~{created['topicId']}"
    assert is_allowed(document, "s3:GetObject", f"{folder}/0/log/x")
    assert not is_allowed(document, "s3:PutObject", f"{folder}/0/log/x")
    assert "the keys of users" in printed.errors
    assert cli.ok(*ALICE, *BUCKET, "--json").documents == [document]
    bare = cli.ok(*ALICE, *BUCKET, "--no-metadata")
    assert "__cluster_metadata" not in bare.text
    assert bare.errors == ""


def test_policies_that_grant_nothing_are_errors(cli: Cli) -> None:
    assert "principal=User:alice" in cli.fails(*ALICE, *BUCKET)
    cli.ok(*ADD, "--topic", "t")
    assert "no topic of the ACLs exists" in cli.fails(*ALICE, *BUCKET)
    assert "s3://bucket/prefix" in cli.fails(*ALICE)
    assert "kind:name" in cli.misused("iam-policy", "--principal", "alice", *BUCKET)


def test_long_policy_is_noted(cli: Cli) -> None:
    for number in range(60):
        cli.ok(*ADD, "--topic", f"t{number:03}-{'x' * 60}", "--resource-pattern-type", "prefixed")
    assert "up to 6144 characters" in cli.ok(*ALICE, *BUCKET).errors
