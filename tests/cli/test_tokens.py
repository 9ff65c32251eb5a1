"""Delegation tokens on the command line, at a broker with logins."""

from __future__ import annotations

import stat
from pathlib import Path
from uuid import uuid4

import pytest

from sparklog.client.admin import Admin
from sparklog.core.errors import SaslAuthenticationFailed
from tests.cli.conftest import Cli
from tests.interop.brokers import Brokers

PREFIX = "org.apache.kafka.common.security."
PLAIN = f"{PREFIX}plain.PlainLoginModule required"
SCRAM = f"{PREFIX}scram.ScramLoginModule required"
PROTOCOL = {"security.protocol": "SASL_PLAINTEXT"}
LOGIN = {**PROTOCOL, "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "pw"}
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sparklog.sasl.plain.allow.cleartext": "true",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} user_a="pw";',
    "delegation.token.secret.key": "key of tokens",
}


def logs_in(address: str, token_id: str, password: str) -> bool:
    line = f'{SCRAM} username="{token_id}" password="{password}" tokenauth="true";'
    settings = {**PROTOCOL, "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": line}
    with Admin(address, settings=settings) as admin:
        try:
            return admin.topic_names() == []
        except SaslAuthenticationFailed:
            return False


def test_a_token_is_created_described_renewed_and_expired(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{name}={text}\n" for name, text in LOGIN.items()))
    given = ("--command-config", str(config))
    with Brokers(f"memory://{uuid4()}", settings=SETTINGS, client=LOGIN) as brokers:
        cli = Cli("", monkeypatch, capsysbinary, brokers.bootstrap)
        file = tmp_path / "hmac"
        create = ("tokens", *given, "--create", "--renewer-principal", "User:b")
        created = cli.ok(*create, "--hmac-file", str(file)).text
        token_id, password = created.split()[0], file.read_text().strip()
        assert "owner=User:a requester=User:a renewers=User:b" in created
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert logs_in(brokers.bootstrap, token_id, password)
        (document,) = cli.ok("tokens", *given, "--create", "--json").documents
        assert logs_in(brokers.bootstrap, document["tokenId"], document["hmac"])
        described = cli.ok("tokens", *given, "--describe", "--owner-principal", "User:a")
        assert {line.split()[0] for line in described.lines} == {token_id, document["tokenId"]}
        assert password not in described.text
        renewal = ("--renew", token_id, "--renew-time-period", "60000", "--json")
        (renewed,) = cli.ok("tokens", *given, *renewal).documents
        assert renewed["expiryTimestamp"] < document["expiryTimestamp"]
        assert cli.ok("tokens", *given, "--expire", token_id).text.startswith(f"Token {token_id}")
        assert not logs_in(brokers.bootstrap, token_id, password)
        assert "no token of this id" in cli.fails("tokens", *given, "--renew", token_id)
        wrong = cli.misused("tokens", *given, "--describe", "--hmac-file", str(file))
        assert "does not go with" in wrong
