"""S3 servers that others wrote: one that holds under a race, and one that does not."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.entropy import SYSTEM_ENTROPY
from sparklog.core.errors import InvalidConfig
from sparklog.store.probe_race import race
from sparklog.store.s3 import S3Store
from sparklog.store.settings import S3Access, StoreSettings
from tests.harness.moto_server import moto_server
from tests.harness.waiting import eventually
from tests.peers.jars import JarSet, Resolution

pytestmark = pytest.mark.soak
VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
S3MOCK = JarSet("s3mock", (Resolution(("com.adobe.testing:s3mock:5.2.0",)),))
BUCKET = "raced"
KEY, SECRET = "test", "test-secret"
HOLDING = ["moto", *(["versitygw"] if shutil.which("go") else [])]
ROUNDS = 10


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def served(command: list[str], port: int, environment: dict[str, str]) -> Iterator[None]:
    """Run a server until the end; it answers when this returns."""

    def answers() -> bool:
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/")
            return connection.getresponse().status > 0
        except OSError:
            return False
        finally:
            connection.close()

    process = subprocess.Popen(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(answers, "the server answers")
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def versitygw(folder: Path) -> Iterator[int]:
    """Serve a folder by versitygw; the first use builds it."""
    programs = Path(sys.prefix) / "go-bin"
    if not (programs / "versitygw").exists():
        environment = {**os.environ, "GOBIN": str(programs)}
        subprocess.run(["go", "install", VERSITYGW], env=environment, check=True)
    (folder / BUCKET).mkdir(parents=True)
    port = free_port()
    command = [str(programs / "versitygw"), "--port", f"127.0.0.1:{port}", "posix", str(folder)]
    keys = {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}
    with served(command, port, keys):
        yield port


@contextmanager
def moto(_: Path) -> Iterator[int]:
    with moto_server() as server:
        server.make_bucket(BUCKET)
        yield server.port


@contextmanager
def s3mock(folder: Path) -> Iterator[int]:
    """Serve by Adobe S3Mock."""
    port = free_port()
    main = "com.adobe.testing.s3mock.S3MockApplication"
    ports = ["--server.port=0", f"--http.port={port}"]
    home = {"root": str(folder)}
    with served(["java", "-Xmx700m", "-cp", S3MOCK.class_path(), main, *ports], port, home):
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("PUT", f"/{BUCKET}")
        assert connection.getresponse().status == 200
        connection.close()
        yield port


def store_at(port: int) -> S3Store:
    access = S3Access(f"http://127.0.0.1:{port}", "us-east-1", KEY, SECRET)
    return S3Store(BUCKET, "log", access, StoreSettings())


@pytest.mark.parametrize("kind", HOLDING)
def test_probe_accepts_a_server_that_holds_under_a_race(kind: str, tmp_path: Path) -> None:
    with {"moto": moto, "versitygw": versitygw}[kind](tmp_path) as port:
        store = store_at(port)
        for number in range(ROUNDS):
            race(store, f"probe-{number}", SYSTEM_CLOCK, SYSTEM_ENTROPY)
        assert list(store.list("")) == []
        store.close()


def test_probe_refuses_a_server_that_loses_races(tmp_path: Path) -> None:
    with s3mock(tmp_path) as port:
        store = store_at(port)
        refused = 0
        for number in range(ROUNDS):
            try:
                race(store, f"probe-{number}", SYSTEM_CLOCK, SYSTEM_ENTROPY)
            except InvalidConfig:
                refused += 1
        store.close()
        assert refused >= ROUNDS - 1, "12 names let it pass once in 500 times"
