"""The stores of the conformance suite: one fixture, every implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from sparklog.store.open import open_store
from sparklog.store.retrying import RetryingStore
from sparklog.store.settings import StoreSettings
from tests.harness.moto_server import MotoServer, moto_server
from tests.harness.store_servers import (
    AZURE_ACCOUNT,
    KINDS,
    azure_environment,
    azurite,
    fake_gcs,
    gcs_environment,
    s3_environment,
    versitygw,
)

BUCKET = "conformance"

OpenStore = Callable[..., RetryingStore]


@pytest.fixture(scope="session")
def moto() -> Iterator[MotoServer]:
    """A real S3 server with one bucket."""
    with moto_server() as server:
        server.make_bucket(BUCKET)
        yield server


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of versitygw: a real S3 server with one bucket."""
    with versitygw(tmp_path_factory.mktemp("versitygw"), BUCKET) as port:
        yield port


@pytest.fixture(scope="session")
def azure() -> Iterator[int]:
    """The port of Azurite, with one container."""
    with azurite(BUCKET) as port:
        yield port


@pytest.fixture(scope="session")
def gcs() -> Iterator[int]:
    """The port of fake-gcs-server, with one bucket."""
    with fake_gcs(BUCKET) as port:
        yield port


SERVERS = [pytest.param(kind, marks=pytest.mark.soak) for kind in KINDS]


@pytest.fixture(params=["memory", "file", "s3", *SERVERS])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(kind: str, tmp_path: Path) -> str:
    """An empty root of each kind; the file one does not exist yet."""
    name = uuid4().hex
    return {
        "memory": f"memory://{name}",
        "file": (tmp_path / "not" / "there yet").as_uri(),
        "s3": f"s3://{BUCKET}/{name}/log",
        "versitygw": f"s3://{BUCKET}/{name}/log",
        "azure": f"abfs://{BUCKET}@{AZURE_ACCOUNT}/{name}/log",
        "gcs": f"gs://{BUCKET}/{name}/log",
    }[kind]


@pytest.fixture
def environment(kind: str, request: pytest.FixtureRequest) -> dict[str, str]:
    """Return the variables that lead to the server; none for memory and files."""
    if kind == "s3":
        server: MotoServer = request.getfixturevalue("moto")
        return server.environment()
    if kind == "versitygw":
        return s3_environment(request.getfixturevalue("gateway"))
    if kind == "azure":
        return azure_environment(request.getfixturevalue("azure"))
    if kind == "gcs":
        return gcs_environment(request.getfixturevalue("gcs"))
    return {}


@pytest.fixture
def open_again(root: str, environment: dict[str, str]) -> Iterator[OpenStore]:
    """Open the same root once more, as another process would."""
    opened: list[RetryingStore] = []

    def open_one(settings: StoreSettings | None = None) -> RetryingStore:
        opened.append(open_store(root, settings, environment=environment))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def store(open_again: OpenStore) -> RetryingStore:
    return open_again()
