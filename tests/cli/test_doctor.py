"""`sparklog doctor` finds each fault, made for real, and names what to do."""

from __future__ import annotations

import re
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.cli.doctor import machine
from sparklog.cli.doctor.machine import Finding, Level
from sparklog.cli.doctor.root import root
from sparklog.cluster.log import open_log
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.testing.cluster import SparklogCluster
from tests.cli.conftest import Cli
from tests.harness.fault_proxy import Action, FaultProxy
from tests.harness.moto_server import moto_server

SECRET = "s3cr3t-0f-the-test"
OLD = "Sat, 01 Jan 2022 00:00:00 GMT"


@pytest.fixture
def at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Cli:
    return Cli(str(tmp_path / "root"), monkeypatch, capsysbinary)


@pytest.fixture
def port() -> Iterator[int]:
    """A port that something else listens at."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        yield int(taken.getsockname()[1])


def levels(cli: Cli, *options: str) -> dict[str, str]:
    """Return the level of each check of the doctor."""
    outcome = cli("doctor", "--port", "0", *options, "--json")
    found = {one["check"]: one["level"] for one in outcome.documents}
    assert outcome.code == int("failure" in found.values())
    return found


def of(findings: Iterator[Finding], check: str) -> Finding:
    """Return a check's finding; later checks do not run."""
    return next(one for one in findings if one.check == check)


def make_java(home: Path, version: str) -> dict[str, str]:
    """Return an environment whose Java is a program that prints this version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024' >&2\n")
    program.chmod(0o755)
    return {"JAVA_HOME": str(home)}


def test_sound_machine_and_root_have_no_failure(at: Cli) -> None:
    with open_log(at.root) as log:
        log.create_topic("t", partitions=2)
        log.partition("t", 0).append([pa.record_batch({"value": [b"x"]})])
    found = levels(at)
    assert "failure" not in found.values()
    assert {"python", "java", "pyspark", "pyarrow", "kernels", "file limit", "listener"} <= set(
        found
    )
    assert found["put-if-absent"] == found["head"] == found["brokers"] == "ok"
    assert [path.name for path in Path(at.root).glob("put-if-absent*")] == []
    lines = at("doctor", "--port", "0").lines
    assert lines[0].startswith("ok       python: Python 3.")


def test_root_that_is_absent_or_unusable_is_left_alone(at: Cli, tmp_path: Path) -> None:
    assert levels(at)["log"] == "ok"
    assert not Path(at.root).exists()
    (tmp_path / "file").write_text("")
    assert levels(at, "--root", str(tmp_path / "file" / "root"))["disk"] == "failure"
    assert levels(at, "--root", "ftp://nowhere")["root"] == "failure"


@pytest.mark.parametrize(
    ("version", "level", "words"),
    [
        ("17.0.9", Level.OK, "Java 17"),
        ("1.8.0_402", Level.FAILURE, "Java 8 .* too old"),
        ("26", Level.WARNING, "not tested"),
        ("none", Level.FAILURE, "no version"),
    ],
)
def test_java_is_judged_by_its_version(
    tmp_path: Path, version: str, level: Level, words: str
) -> None:
    finding = machine.java(make_java(tmp_path, version))
    assert finding.level is level
    assert re.search(words, finding.text)


def test_missing_java_names_the_variable(tmp_path: Path) -> None:
    finding = machine.java({"JAVA_HOME": str(tmp_path), "PATH": ""})
    assert finding.level is Level.FAILURE
    assert f"JAVA_HOME={tmp_path} has none" in finding.text


def test_python_with_o_and_wrong_packages_are_failures() -> None:
    program = "from sparklog.cli.doctor import machine; print(machine.python().level.value)"
    words = [sys.executable, "-O", "-c", program]
    assert subprocess.check_output(words, text=True) == "failure\n"
    for found, need, level in (
        ("25.0.1", "pyarrow<27,>=26", Level.FAILURE),
        ("27.0", "pyarrow<27,>=26", Level.FAILURE),
        ("26.0.1", "pyarrow<27,>=26", Level.OK),
        ("4.4.0", "delta-spark==4.4.0", Level.OK),
        ("4.4.1", "delta-spark==4.4.0", Level.FAILURE),
    ):
        assert machine.package_version("p", found, need).level is level, (found, need)


def test_few_files_and_a_full_disk_are_found(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1000, hard))
    try:
        finding = machine.file_limit()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert (finding.level, "ulimit -n 4096" in finding.text) == (Level.WARNING, True)
    space, _ = machine.disk(tmp_path, SYSTEM_CLOCK, free_bytes_min=1 << 60)
    assert (space.level, space.check) == (Level.FAILURE, "disk")


def test_taken_port_and_unknown_host_are_found(port: int) -> None:
    finding = machine.listener("127.0.0.1", port)
    assert (finding.level, "in use" in finding.text) == (Level.FAILURE, True)
    assert machine.advertised("x" * 70).level is Level.FAILURE
    assert machine.advertised("").level is Level.FAILURE
    assert machine.advertised("127.0.0.1").level is Level.WARNING


def test_damage_is_named_with_its_partition(at: Cli) -> None:
    with open_log(at.root) as log:
        log.create_topic("t")
        log.partition("t", 0).append([pa.record_batch({"value": [b"x"]})])
    (segment,) = Path(at.root).glob("topics/t~*/0/log/*.arrow")
    segment.write_bytes(segment.read_bytes()[:100])
    outcome = at("doctor", "--port", "0")
    assert outcome.code == 1
    assert any(line.startswith("failure  head: t-0: ") for line in outcome.lines)
    metadata = next(Path(at.root).glob("topics/__cluster_metadata~*/0/log/*.arrow"))
    metadata.write_bytes(b"not an object of a log")
    assert levels(at)["log"] == "failure"


def test_dead_broker_and_its_damaged_write_ahead_log_are_named(at: Cli) -> None:
    with SparklogCluster(2, root=at.root) as cluster:
        cluster.topic("t")
        found = levels(at)
        assert (found["broker 1"], found["broker 2"]) == ("ok", "ok")
        assert found["write-ahead log of broker 1"] == "ok"
        cluster.stop(2)
        cluster.produce("t", [b"not flushed"])
        cluster.kill(1)
        newest = max(Path(at.root).glob("wal/1-*/*.arrow"))
        newest.write_bytes(newest.read_bytes()[:-100])
        found = levels(at)
        assert (found["broker 1"], found["write-ahead log of broker 1"]) == ("failure", "failure")


def test_clock_far_from_the_stores_is_a_failure() -> None:
    class Answer(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response_only(403)
            self.send_header("Date", OLD)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        environment = {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "key"}
        finding = of(root("s3://bucket/log", environment), "clock")
        assert (finding.level, "synchronize" in finding.text) == (Level.FAILURE, True)
        keys = of(root("s3://bucket/log", environment), "credentials")
        assert (keys.level, "set both" in keys.text) == (Level.FAILURE, True)
    finally:
        server.shutdown()
        server.server_close()


def test_store_that_loses_races_is_refused_and_secrets_stay_hidden() -> None:
    with moto_server() as server:
        server.make_bucket("bucket")
        proxy = FaultProxy(int(server.environment()["AWS_ENDPOINT_URL"].rpartition(":")[2]))
        try:
            environment = {
                **server.environment(proxy.endpoint_url),
                "AWS_SECRET_ACCESS_KEY": SECRET,
            }
            proxy.add(Action.LOSE_RACES, "PUT")
            found = list(root("s3://bucket/log", environment))
            assert {one.check for one in found if one.level is not Level.OK} == {"put-if-absent"}
            assert {"credentials", "clock", "head", "brokers"} <= {one.check for one in found}
            assert not any(SECRET in one.text for one in found)
        finally:
            proxy.close()
