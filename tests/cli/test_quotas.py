"""Quotas on the command line, of a root that no broker serves."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.cli.conftest import Cli
from tests.harness.waiting import eventually

RATE = "producer_byte_rate=1024"


def test_quotas_are_set_described_and_deleted_in_kafka_configs_words(cli: Cli) -> None:
    by_type = ("--entity-type", "clients", "--entity-name", "billing")
    altered = cli.ok("configs", "--alter", *by_type, "--add-config", RATE)
    assert altered.text == "Completed updating config for client billing.\n"
    more = "consumer_byte_rate=2048,controller_mutation_rate=0.5,request_percentage=12.5"
    cli.ok("configs", "--alter", "--client", "billing", "--add-config", more)
    default = cli.ok("configs", "--alter", "--client-defaults", "--add-config", RATE)
    assert default.text == "Completed updating default config for clients in the cluster.\n"
    cli.ok("configs", "--alter", "--user", "u", "--client", "c", "--add-config", RATE)
    cli.ok("configs", "--alter", "--entity-type", "users", "--entity-default", "--add-config", RATE)
    billing = (
        "Quota configs for client-id 'billing' are "
        "consumer_byte_rate=2048.0, controller_mutation_rate=0.5, "
        "producer_byte_rate=1024.0, request_percentage=12.5"
    )
    told = "are producer_byte_rate=1024.0"
    pair = f"Quota configs for user-principal 'u', client-id 'c' {told}"
    clients = [billing, pair, f"Quota configs for the default client-id {told}"]
    users = [pair, f"Quota configs for the default user-principal {told}"]
    assert sorted(cli.ok("configs", "--describe", "--entity-type", "clients").lines) == sorted(
        clients
    )
    assert sorted(cli.ok("configs", "--describe", "--entity-type", "users").lines) == sorted(users)
    assert cli.ok("configs", "--describe", *by_type).lines == [billing]
    assert cli.ok("configs", "--describe", "--user", "u", "--client", "c").lines == [pair]
    (document,) = cli.ok("configs", "--describe", "--client", "billing", "--json").documents
    assert document == {
        "entity": {"client-id": "billing"},
        "quotas": {
            "consumer_byte_rate": 2048.0,
            "controller_mutation_rate": 0.5,
            "producer_byte_rate": 1024.0,
            "request_percentage": 12.5,
        },
    }
    cli.ok(
        "configs", "--alter", "--client", "billing",
        "--delete-config", "producer_byte_rate,consumer_byte_rate",
        "--delete-config", "controller_mutation_rate,request_percentage",
    )  # fmt: skip
    assert cli.ok("configs", "--describe", "--client", "billing").lines == []


def test_quotas_of_addresses_are_set_described_and_deleted(cli: Cli) -> None:
    by_type, rate = (
        ("--entity-type", "ips", "--entity-name", "10.0.0.1"),
        "connection_creation_rate",
    )
    altered = cli.ok("configs", "--alter", *by_type, "--add-config", f"{rate}=20")
    assert altered.text == "Completed updating config for ip 10.0.0.1.\n"
    cli.ok("configs", "--alter", "--ip-defaults", "--add-config", f"{rate}=100")
    own = f"Quota configs for ip '10.0.0.1' are {rate}=20.0"
    default = f"Quota configs for the default ip are {rate}=100.0"
    told = cli.ok("configs", "--describe", "--entity-type", "ips").lines
    assert sorted(told) == sorted([own, default])
    assert cli.ok("configs", "--describe", "--ip", "10.0.0.1").lines == [own]
    cli.ok("configs", "--alter", "--ip", "10.0.0.1", "--delete-config", rate)
    assert cli.ok("configs", "--describe", "--entity-type", "ips").lines == [default]
    host = ("--ip", "example.com", "--add-config", f"{rate}=20")
    assert "give an IP address" in cli.fails("configs", "--alter", *host)


@pytest.mark.parametrize(
    ("quota", "why"),
    [
        ("request_percentage=-5", "a number above 0"),
        ("producer_byte_rate=0", "at least 1"),
        ("producer_bytes=1", "no such quota"),
    ],
)
def test_invalid_quota_is_rejected(cli: Cli, quota: str, why: str) -> None:
    assert why in cli.fails("configs", "--alter", "--client", "c", "--add-config", quota)
    assert cli.ok("configs", "--describe", "--entity-type", "clients").lines == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--client", "c", "--add-config", "producer_byte_rate=fast"), "a number per second"),
        (("--client", "c", "--add-config", RATE, "--delete-config", RATE[:18]), "set and deleted"),
        (("--client", "c"), "--alter needs"),
        (("--entity-type", "clients", "--add-config", RATE), "--alter needs"),
        (("--client", "c", "--client-defaults", "--add-config", RATE), "give one"),
        (("--client", "c", "--entity-type", "users", "--add-config", RATE), "say once"),
        (("--client", "c", "--topic", "t", "--add-config", RATE), "leave out"),
    ],
)
def test_a_call_that_contradicts_itself_is_misuse(
    cli: Cli, words: tuple[str, ...], why: str
) -> None:
    assert why in cli.misused("configs", "--alter", *words)
    assert cli.ok("configs", "--describe", "--entity-type", "clients").lines == []


def test_quota_options_are_the_same_with_brokers(wire_cli: Cli) -> None:
    name = f"c-{uuid4().hex[:8]}"
    by_name = ("--client", name)
    assert "at least 1" in wire_cli.fails(
        "configs", "--alter", *by_name, "--add-config", "producer_byte_rate=0"
    )
    wire_cli.ok("configs", "--alter", *by_name, "--add-config", RATE)
    told = [f"Quota configs for client-id '{name}' are producer_byte_rate=1024.0"]
    eventually(
        lambda: wire_cli.ok("configs", "--describe", *by_name).lines == told, "all have heard"
    )
    wire_cli.ok("configs", "--alter", *by_name, "--delete-config", "producer_byte_rate")
    eventually(lambda: wire_cli.ok("configs", "--describe", *by_name).lines == [], "all have heard")
