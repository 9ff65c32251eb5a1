"""The archive of `sparklog debug`: what is in it, and that no secret is."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from sparklog.cli.commands.debug import hide_secrets
from tests.cli.conftest import Cli
from tests.interop.brokers import Brokers

SECRET = "hunter2-very-secret"


@pytest.mark.parametrize(
    "text",
    [
        f"sasl.password={SECRET}",
        f"aws_secret_access_key = {SECRET}",
        f'{{"ssl.key.password": "{SECRET}", "a": 1}}',
        f"'token': '{SECRET}'",
        f"s3://user:{SECRET}@host/log",
        f"Authorization: Bearer {SECRET}",
        f"AWS_ACCESS_KEY_ID:{SECRET}",
        f'sasl.jaas.config="Plain username=x password={SECRET};"',
    ],
)
def test_values_that_look_like_secrets_are_hidden(text: str) -> None:
    hidden = hide_secrets(text.encode()).decode()
    assert SECRET not in hidden
    assert "[hidden]" in hidden


def test_documents_stay_json_when_values_are_hidden() -> None:
    document = {"password": SECRET, "token.lifetime.ms": 5, "secret": None, "a": [1]}
    hidden = json.loads(hide_secrets(json.dumps(document, indent=1).encode()))
    assert hidden == {**dict.fromkeys(document, "[hidden]"), "a": [1]}


def test_ordinary_lines_stay_as_they_are() -> None:
    line = b"broker lives identity=1 address=127.0.0.1:9092 tokens of 3 users, key=N14228"
    assert hide_secrets(line) == line


def test_a_bundle_has_the_state_of_brokers_and_no_secret(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    settings = {"metrics.port": "0", "delegation.token.secret.key": SECRET}
    log = tmp_path / "stderr"
    log.write_text(f"INFO started\nERROR login failed password={SECRET}\n")
    bundle = tmp_path / "bundle.tar.gz"
    with Brokers((tmp_path / "log").as_uri(), 1, settings) as brokers:
        (ready,) = brokers.ready
        page = f"127.0.0.1:{ready.metrics_port}"
        files = cli.ok(
            *("debug", "--bundle", str(bundle), "--page", page, "--page", "127.0.0.1:1"),
            *("--logs", str(log), "--bootstrap-server", brokers.bootstrap),
        ).lines  # fmt: skip
        with tarfile.open(bundle) as archive:
            found = {
                member.name.removeprefix("sparklog-debug/"): archive.extractfile(member).read()  # type: ignore[union-attr]
                for member in archive.getmembers()
            }
    assert sorted(files) == sorted(found)
    of_broker = f"brokers/0-{page.replace(':', '_')}"
    assert set(found) == {
        *("versions.json", "machine.jsonl", "root.jsonl", "settings.json", "problems.txt"),
        "logs/0-stderr",
        *(f"{of_broker}/metrics.txt", f"{of_broker}/state.json"),
    }
    assert json.loads(found[f"{of_broker}/state.json"])["broker"]["id"] == 1
    assert b"kafka_server_replicamanager_partitioncount" in found[f"{of_broker}/metrics.txt"]
    assert "pyarrow" in json.loads(found["versions.json"])["packages"]
    broker = json.loads(found["settings.json"])["broker_settings"]["1"]
    assert broker["delegation.token.secret.key"] == "[hidden]"
    assert broker["metrics.port"] == "0"
    assert b"password=[hidden]" in found["logs/0-stderr"]
    assert found["problems.txt"].count(b"the page does not answer") == 2
    assert not [name for name, content in found.items() if SECRET.encode() in content]
