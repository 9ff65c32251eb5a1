"""The command on an S3 root, and on a store that cannot be reached."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sparklog.cli import target
from sparklog.cluster.log import open_log
from sparklog.registry import decisions
from sparklog.registry.model.schema import read_content
from sparklog.registry.registry import SchemaRegistry
from sparklog.registry.schema_log import RootSchemaLog
from sparklog.store.settings import StoreSettings
from tests.cli.conftest import Cli
from tests.harness.moto_server import MotoServer, moto_server


@pytest.fixture(scope="module")
def server() -> Iterator[MotoServer]:
    with moto_server() as started:
        started.make_bucket("logs")
        yield started


@pytest.fixture
def s3(
    server: MotoServer, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Cli:
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    return Cli("s3://logs/here", monkeypatch, capsysbinary)


def test_records_go_in_and_come_out_of_s3(s3: Cli) -> None:
    s3.ok("topics", "--create", "--topic", "t", "--partitions", "2")
    s3.ok("produce", "--topic", "t", "--property", "parse.key=true", stdin=b"a\t1\nb\t2\n")
    consumed = s3.ok("consume", "--topic", "t", "--from-beginning", "--timeout-ms", "0")
    assert sorted(consumed.lines) == ["1", "2"]
    offsets = s3.ok("get-offsets", "--topic", "t").lines
    assert sum(int(line.rpartition(":")[2]) for line in offsets) == 2
    dumped = s3.ok("dump-log", "--topic", "t", "--print-data-log").lines
    names = [line.removeprefix("Dumping ") for line in dumped if line.startswith("Dumping")]
    by_url = s3.ok("dump-log", "--print-data-log", "--files", f"s3://logs/here/{names[0]}").lines
    assert by_url == dumped[: len(by_url)]
    s3.ok("snapshots", "--create", "s", "--topic", "t")
    s3.ok("topics", "--delete", "--topic", "t")
    assert sorted(s3.ok("consume", "--topic", "t", "--snapshot", "s").lines) == ["1", "2"]
    s3.ok("snapshots", "--drop", "s")


def test_a_bucket_that_is_not_there_is_named(s3: Cli) -> None:
    error = s3.fails("topics", "--create", "--topic", "t", root="s3://nowhere/x")
    assert "s3://nowhere/x" in error


@pytest.mark.parametrize("argv", [("topics", "--list"), ("consume", "--topic", "t")])
def test_a_store_that_cannot_be_reached_is_one_line(
    s3: Cli, monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...]
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{unused.getsockname()[1]}")
        monkeypatch.setattr(target, "STORE_SETTINGS", StoreSettings(retry_deadline_s=0.3))
        error = s3.fails(*argv)
    assert "s3://logs/here" in error
    assert "check that it is up" in error


def test_a_person_does_not_wait_as_long_as_a_job(tmp_path: Path) -> None:
    assert target.STORE_SETTINGS.retry_deadline_s < StoreSettings().retry_deadline_s


def test_registries_on_s3_give_no_id_twice(s3: Cli) -> None:
    logs = [open_log("s3://logs/registry") for _ in range(2)]
    registries = [SchemaRegistry(RootSchemaLog(log)) for log in logs]

    def register(number: int) -> int:
        registry = registries[number % 2]
        content = read_content({"schema": f'{{"type":"fixed","name":"F{number}","size":1}}'})
        made = registry.candidate(f"s{number}", content)
        found = registry.change(lambda state, parsed: decisions.register(state, made, parsed))
        return int(found.schema_id)

    with ThreadPoolExecutor(4) as pool:
        ids = list(pool.map(register, range(12)))
    assert sorted(ids) == list(range(1, 13))
    for log in logs:
        log.close()
    with open_log("s3://logs/registry") as fresh:
        state = SchemaRegistry(RootSchemaLog(fresh)).query(lambda found: dict(found.subjects))
    assert {subject: one[1].schema_id for subject, one in state.items()} == {
        f"s{number}": schema_id for number, schema_id in enumerate(ids)
    }
