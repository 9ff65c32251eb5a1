"""S3 servers that others wrote: one that holds under a race, and one that does not."""

from __future__ import annotations

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
from tests.harness.store_servers import KINDS, S3_KEY, S3_SECRET, free_port, served, versitygw
from tests.peers.jars import JarSet, Resolution

pytestmark = pytest.mark.soak
S3MOCK = JarSet("s3mock", (Resolution(("com.adobe.testing:s3mock:5.2.0",)),))
BUCKET = "raced"
ROUNDS = 10


@contextmanager
def moto(_: Path, bucket: str) -> Iterator[int]:
    with moto_server() as server:
        server.make_bucket(bucket)
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
    access = S3Access(f"http://127.0.0.1:{port}", "us-east-1", S3_KEY, S3_SECRET)
    return S3Store(BUCKET, "log", access, StoreSettings())


@pytest.mark.parametrize("kind", ["moto", *({"versitygw"} & set(KINDS))])
def test_probe_accepts_a_server_that_holds_under_a_race(kind: str, tmp_path: Path) -> None:
    serve = moto if kind == "moto" else versitygw
    with serve(tmp_path, BUCKET) as port:
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
